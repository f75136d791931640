"""The two ends of a link on a wire, with real bytes (link.py does both at once).

A message over public copies begins with two bytes: one bit "this is a whole copy" and a 15-bit
version. A receiver that sees another version than the next one has lost or repeated a message; it
says so, leaves its state alone, and takes a whole copy to be in step again.
"""

from __future__ import annotations

import struct
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel.base import Channel
from coterie.channel.codec import PlainCodec, size_of
from coterie.channel.link import (
    HEADER,
    VERSIONS,
    LinkKind,
    LinkState,
    Outgoing,
    Private,
    Public,
    Sent,
    base_of,
    copy_of,
    flat,
    noted,
    open_link,
    receive,
    shaped,
    transmit,
)
from coterie.core.errors import CoterieError, InvalidInput

_transmitted = jax.jit(transmit, static_argnames="kind")
_received = jax.jit(receive, static_argnames="kind")
_noted = jax.jit(noted, static_argnames="kind")


class OutOfStep(CoterieError):
    """A message was lost or repeated.

    The receiver's state is unchanged; `repeated` says which; a whole copy from the sender mends it.
    """

    def __init__(self, sentence: str, *, repeated: bool) -> None:
        super().__init__(sentence)
        self.repeated = repeated


def encoded(kind: LinkKind, channel: Channel, sent: Sent) -> bytes:
    """What `transmit` sent, as bytes."""
    leaves = jax.tree.leaves(sent.arrived)
    if kind.passes or not leaves:
        return PlainCodec().encode(sent.arrived)
    if sent.quiet is not None and bool(sent.quiet):
        return _header(sent.link.public, whole=False) if kind.copies else b""
    d = sum(int(np.prod(leaf.shape)) for leaf in leaves)
    wire = channel.encode(jax.tree.map(np.asarray, sent.payload), d, np.dtype(leaves[0].dtype))
    return _header(sent.link.public, whole=False) + wire if kind.copies else wire


def _header(public: Public, *, whole: bool) -> bytes:
    return struct.pack("<H", int(public.version) % VERSIONS | (VERSIONS if whole else 0))


def whole_copy(public: Public) -> bytes:
    """The public state as it is, for a receiver that is out of step."""
    return _header(public, whole=True) + PlainCodec().encode((public.copy, public.shared))


def is_whole(wire: bytes) -> bool:
    """Whether a message over public copies is a whole copy."""
    return len(wire) >= HEADER and bool(wire[1] & 0x80)


class Sender:
    """The sending end of a link: `send` gives the bytes of a message, `resend` a whole copy for a
    receiver that is out of step.
    """

    def __init__(self, kind: LinkKind, channel: Channel, message: Any, link: Any = None) -> None:
        self.kind, self.channel = kind, channel
        self.link = open_link(kind, channel, message) if link is None else link

    def send(self, out: Outgoing) -> tuple[bytes, Any]:
        """The bytes of a message, and the message as it will arrive."""
        if self.kind.passes or not jax.tree.leaves(out.message):
            return PlainCodec().encode(out.message), out.message
        sent = _transmitted(self.kind, self.channel, self.link, out)
        self.link = sent.link
        return encoded(self.kind, self.channel, sent), sent.arrived

    def resend(self) -> bytes:
        """The public state as it is after the last message, whole."""
        return whole_copy(self.link.public)

    def send_whole(self, out: Outgoing) -> tuple[bytes, Any]:
        """A message in full over a link that may be out of step."""
        assert self.kind.copies
        x, old = flat(out.message), self.link.public
        fresh: LinkState = open_link(self.kind, self.channel, out.message)
        version = jnp.int32((old.version + 1) % VERSIONS)
        public = Public(version, copy_of(self.kind, old, x, out), fresh.public.shared)
        last = () if isinstance(fresh.private.last, tuple) else x
        self.link = LinkState(public, Private(fresh.private.error, last, fresh.private.own))
        return whole_copy(public), shaped(base_of(self.kind, public, out), out.message)


class Receiver:
    """The receiving end of a link. `message` gives the shapes of what comes."""

    def __init__(self, kind: LinkKind, channel: Channel, message: Any, public: Any = None) -> None:
        self.kind, self.channel = kind, channel
        self.like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), message)
        if public is None:
            link = open_link(kind, channel, message)
            public = link.public if link != () else ()
        self.public: Any = public

    def receive(self, wire: bytes, known: Outgoing) -> Any:
        """The message as it arrived; `known` is what both ends know of it beforehand.

        Raises OutOfStep or InvalidInput, and then nothing has changed.
        """
        leaves = jax.tree.leaves(self.like)
        if self.kind.passes or not leaves:
            return PlainCodec().decode(wire, self.like)
        if self.kind.copies:
            if len(wire) < HEADER:
                raise InvalidInput(
                    f"a message has {len(wire)} bytes, but must have at least {HEADER}."
                )
            (header,) = struct.unpack("<H", wire[:HEADER])
            wire = wire[HEADER:]
            if header >= VERSIONS:
                return self._whole(header % VERSIONS, wire, known)
            self._check_version(header)
        known = known._replace(message=None)
        if not wire and self.channel.quiet is not None:
            arrived, self.public = _noted(self.kind, self.public, known)
            return shaped(arrived, self.like)
        d = sum(int(np.prod(leaf.shape)) for leaf in leaves)
        decoded = self.channel.decode(wire, d, np.dtype(leaves[0].dtype))
        payload = jax.tree.map(jnp.asarray, decoded)
        arrived, self.public = _received(self.kind, self.channel, self.public, payload, known)
        return shaped(arrived, self.like)

    def _whole(self, version: int, wire: bytes, known: Outgoing) -> Any:
        copy, shared = PlainCodec().decode(wire, (self.public.copy, self.public.shared))
        shared = jax.tree.map(jnp.asarray, shared)
        self.public = Public(jnp.int32(version), jnp.asarray(copy), shared)
        return shaped(base_of(self.kind, self.public, known), self.like)

    def _check_version(self, version: int) -> None:
        mine = int(self.public.version)
        if version == mine:
            raise OutOfStep(
                f"message {version} came twice; the second one is ignored.", repeated=True
            )
        if version != (mine + 1) % VERSIONS:
            raise OutOfStep(
                f"message {version} came after message {mine}: one or more in between were lost.",
                repeated=False,
            )


def zeros(like: Any) -> Any:
    """A message of these shapes that says nothing."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)


def largest(kind: LinkKind, channel: Channel, like: Any) -> int:
    """The most bytes that a message of these shapes may have: a whole copy, or what the channel
    makes of it at worst.
    """
    plain = size_of(like)
    if kind.passes or not jax.tree.leaves(like):
        return plain
    opened = jax.eval_shape(lambda: open_link(kind, channel, zeros(like)))
    # A channel that inflates more than that is none.
    return HEADER + 2 * plain + size_of(opened.public.shared) + 64
