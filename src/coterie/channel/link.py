"""A link: one stream of messages from a sender to a receiver (or to several that hear the same),
through a channel.

Both ends keep the same public state; the sender keeps a private one besides. Over public copies
(graphs, hubs, `memory = "copies"`) the public state holds a copy h of the stream: a message is sent
as C(m − h), both ends add what arrived to h, and h is what the receiver works with. What was cut
off stays in m − h and is sent later. With `memory = "errors"` the sender adds what was cut off to
its next message.

Inside compiled rounds `transmit` does all of it at once. On a wire `Sender` and `Receiver` do the
same in two halves, with real bytes: a message over public copies begins with two bytes, one bit
"this is a whole copy" and a 15-bit version. A receiver that sees another version than the next one
has lost or repeated a message; it says so, leaves its state alone, and takes a whole copy to be in
step again.
"""

from __future__ import annotations

import dataclasses
import struct
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel.base import Channel
from coterie.channel.codec import Identity, size_of
from coterie.channel.values import rounded
from coterie.core.errors import CoterieError, InvalidInput

HEADER = 2
"""Bytes before every message over public copies: the version and whether this is a whole copy."""
VERSIONS = 1 << 15


class Public(NamedTuple):
    """What both ends know. `copy` is () unless there are public copies."""

    version: Any
    copy: Any
    shared: Any


class Private(NamedTuple):
    """What the sender alone knows: what was cut off, its last message, the compressor's own memory;
    each () when not needed.
    """

    error: Any
    last: Any
    own: Any


class Link(NamedTuple):
    public: Public
    private: Private


class Sent(NamedTuple):
    """One message's way: what arrived, the link afterwards, and what it took."""

    arrived: Any
    link: Any
    bytes: Any


@dataclasses.dataclass(frozen=True)
class Stream:
    """How one kind of message uses a channel; static.

    `moving`: the public copy is of the message's difference to a reference that both ends know
    (after division by `scale`, where there is one), instead of the message itself. In a star the
    reference is the model that is sent back and forth and moves by itself: only the client's update
    is new. On a graph, going down, it is the client's own part of the pull: only its neighbours'
    mean is new.
    """

    copies: bool = False
    errors: bool = False
    moving: bool = False
    passes: bool = False
    """Nothing is done to the message: no state, no flattening."""

    @property
    def header(self) -> int:
        return HEADER if self.copies else 0


def uplink(channel: Channel, exchange: str) -> Stream:
    """What a client sends.

    Neighbours on a graph have nothing in common but what they sent before, so graphs always go over
    public copies.
    """
    if exchange not in ("star", "graph") or (channel.lossless and channel.memory != "copies"):
        return Stream(passes=True)
    graph = exchange == "graph"
    if (
        channel.takes_turns and not graph
    ):  # a copy of an update would be applied in every round of a cycle; so there is none
        return Stream(moving=True)
    return Stream(
        copies=graph or channel.memory == "copies",
        errors=not graph and channel.memory == "errors",
        moving=not graph,
    )


def downlink(channel: Channel, exchange: str) -> Stream:
    """What a hub sends: as it is, or over public copies."""
    if exchange not in ("star", "graph") or not channel.down:
        return Stream(passes=True)
    return Stream(copies=True, moving=exchange == "graph")


# -- messages as vectors ---------------------------------------------------------------------------


def flat(message: Any) -> Any:
    """All numbers of a message as one vector."""
    leaves = jax.tree.leaves(message)
    return (
        jnp.ravel(leaves[0])
        if len(leaves) == 1
        else jnp.concatenate([jnp.ravel(leaf) for leaf in leaves])
    )


def shaped(vector: Any, like: Any) -> Any:
    """The inverse of `flat`, in the shapes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    out, start = [], 0
    for leaf in leaves:
        size = int(np.prod(leaf.shape))
        out.append(jnp.reshape(vector[start : start + size], leaf.shape))
        start += size
    return jax.tree.unflatten(structure, out)


# -- inside compiled rounds ------------------------------------------------------------------------


def open_link(stream: Stream, channel: Channel, message: Any) -> Any:
    """A fresh link.

    `message` is what both ends take for the message before the first one (`moving`: for its
    difference to the reference).
    """
    if stream.passes or not jax.tree.leaves(message):
        return ()
    x = flat(message)
    d, dtype = x.shape[0], x.dtype
    accumulates = stream.copies and channel.accumulates
    return Link(
        Public(
            jnp.int32(0) if stream.copies else (),
            x if stream.copies else (),
            channel.shared_init(d, dtype),
        ),
        Private(
            jnp.zeros_like(x) if stream.errors else (),
            x if accumulates else (),
            channel.private_init(d, dtype),
        ),
    )


def _base(stream: Stream, public: Public, reference: Any, scale: Any) -> Any:
    if not stream.copies:
        return flat(reference)
    if not stream.moving:
        return public.copy
    near = flat(reference) + public.copy
    return (
        near if scale is None else rounded(scale * near)
    )  # both ends, compiled apart, must round alike


def _copy(stream: Stream, public: Public, arrived: Any, reference: Any, scale: Any) -> Any:
    """What `_base` would make `arrived` of."""
    if not stream.moving:
        return arrived
    if scale is None:
        return arrived - flat(reference)
    return jnp.where(
        scale > 0, arrived / jnp.where(scale > 0, scale, 1) - flat(reference), public.copy
    )


def _prepare(
    stream: Stream,
    channel: Channel,
    link: Link,
    message: Any,
    reference: Any,
    scale: Any,
    key: Any,
    t: Any,
) -> tuple[Any, Any, Private]:
    """On the sender: (payload, what was meant to arrive, private state but for the error)."""
    x = flat(message)
    if stream.errors:
        x = x + link.private.error
    base = _base(stream, link.public, reference, scale)
    if not isinstance(
        link.private.last, tuple
    ):  # the compressor sums up increments by itself: give it those
        payload, own = channel.compress(
            x, link.private.last, link.private.own, link.public.shared, key, t
        )
        return payload, x, Private((), x, own)
    payload, own = channel.compress(x, base, link.private.own, link.public.shared, key, t)
    return payload, x, Private((), (), own)


def _receive(
    stream: Stream,
    channel: Channel,
    public: Public,
    payload: Any,
    reference: Any,
    scale: Any,
    key: Any,
    t: Any,
) -> tuple[Any, Public]:
    """On both ends: (the vector as it arrived, public state)."""
    arrived, shared = channel.expand(
        payload, _base(stream, public, reference, scale), public.shared, key, t
    )
    if not stream.copies:
        return arrived, Public((), (), shared)
    return arrived, Public(
        (public.version + 1) % VERSIONS, _copy(stream, public, arrived, reference, scale), shared
    )


def transmit(
    stream: Stream,
    channel: Channel,
    link: Any,
    message: Any,
    reference: Any,
    key: Any,
    t: Any,
    scale: Any = None,
) -> Sent:
    """A message from one end to the other, inside a compiled round."""
    if stream.passes or not jax.tree.leaves(message):
        return Sent(message, link, size_of(message))
    payload, meant, private = _prepare(stream, channel, link, message, reference, scale, key, t)
    arrived, public = _receive(stream, channel, link.public, payload, reference, scale, key, t)
    if stream.errors:
        private = private._replace(error=meant - arrived)
    return Sent(
        shaped(arrived, message),
        Link(public, private),
        stream.header + channel.size(payload, arrived.shape[0]),
    )


def known(stream: Stream, link: Any, like: Any) -> Any:
    """What the receiver had last over public copies, in the shapes of a message."""
    assert stream.copies
    assert not stream.moving
    return shaped(link.public.copy, like)


# -- on a wire -------------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=(0,))
def _sent(
    stream: Stream,
    channel: Channel,
    link: Link,
    message: Any,
    reference: Any,
    scale: Any,
    key: Any,
    t: Any,
) -> tuple[Any, Any, Link]:
    """On the sender, compiled: (payload, the vector as it will arrive, the link afterwards)."""
    payload, meant, private = _prepare(stream, channel, link, message, reference, scale, key, t)
    arrived, public = _receive(stream, channel, link.public, payload, reference, scale, key, t)
    if stream.errors:
        private = private._replace(error=meant - arrived)
    return payload, arrived, Link(public, private)


_received = partial(jax.jit, static_argnums=(0,))(_receive)


class OutOfStep(CoterieError):
    """A message was lost or repeated.

    The receiver's state is unchanged; `repeated` says which; a whole copy from the sender mends it.
    """

    def __init__(self, sentence: str, *, repeated: bool) -> None:
        super().__init__(sentence)
        self.repeated = repeated


class Sender:
    """The sending end of a link: `send` gives the bytes of a message, `resend` a whole copy for a
    receiver that is out of step.
    """

    def __init__(self, stream: Stream, channel: Channel, message: Any, link: Any = None) -> None:
        self.stream, self.channel = stream, channel
        self.link = open_link(stream, channel, message) if link is None else link

    def send(
        self, message: Any, reference: Any = None, key: Any = None, t: Any = 0, scale: Any = None
    ) -> bytes:
        if self.stream.passes or not jax.tree.leaves(message):
            return Identity().encode(message)
        payload, arrived, self.link = _sent(
            self.stream, self.channel, self.link, message, reference, scale, key, t
        )
        public = self.link.public
        wire = self.channel.encode(
            jax.tree.map(np.asarray, payload), arrived.shape[0], arrived.dtype
        )
        return (
            struct.pack("<H", int(public.version) % VERSIONS) if self.stream.copies else b""
        ) + wire

    def resend(self) -> bytes:
        """The public state as it is after the last message, whole."""
        public = self.link.public
        return struct.pack("<H", int(public.version) % VERSIONS | VERSIONS) + Identity().encode(
            (public.copy, public.shared)
        )


class Receiver:
    """The receiving end of a link. `like` is a message (or its shapes)."""

    def __init__(self, stream: Stream, channel: Channel, message: Any, public: Any = None) -> None:
        self.stream, self.channel = stream, channel
        link = open_link(stream, channel, message)
        self.like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), message)
        self.public: Any = (link.public if link != () else ()) if public is None else public

    def receive(
        self, wire: bytes, reference: Any = None, key: Any = None, t: Any = 0, scale: Any = None
    ) -> Any:
        """The message as it arrived.

        Raises OutOfStep or InvalidInput, and then nothing has changed.
        """
        if self.stream.passes or not jax.tree.leaves(self.like):
            return Identity().decode(wire, self.like)
        d = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(self.like))
        dtype = jax.tree.leaves(self.like)[0].dtype
        if self.stream.copies:
            if len(wire) < HEADER:
                raise InvalidInput(
                    f"a message has {len(wire)} bytes, but must have at least {HEADER}."
                )
            (header,) = struct.unpack("<H", wire[:HEADER])
            wire = wire[HEADER:]
            version, mine = header % VERSIONS, int(self.public.version)
            if header >= VERSIONS:
                copy, shared = Identity().decode(wire, (self.public.copy, self.public.shared))
                self.public = Public(
                    jnp.int32(version), jnp.asarray(copy), jax.tree.map(jnp.asarray, shared)
                )
                return shaped(_base(self.stream, self.public, reference, scale), self.like)
            if version == mine:
                raise OutOfStep(
                    f"message {version} came twice; the second one is ignored.", repeated=True
                )
            if version != (mine + 1) % VERSIONS:
                raise OutOfStep(
                    f"message {version} came after message {mine}: one or more in between were"
                    " lost.",
                    repeated=False,
                )
        payload = jax.tree.map(jnp.asarray, self.channel.decode(wire, d, np.dtype(dtype)))
        arrived, self.public = _received(
            self.stream, self.channel, self.public, payload, reference, scale, key, t
        )
        return shaped(arrived, self.like)
