"""A link: messages of one kind from a sender to a receiver (or to several that hear the same),
through a channel.

Both ends keep the same public state; the sender keeps a private one besides. Over public copies
(graphs, hubs, `memory = "copies"`) the public state holds a copy h of the last message: a message
is sent as C(m − h), both ends add what arrived to h, and h is what the receiver works with. What
was cut off stays in m − h and is sent later. With `memory = "errors"` the sender adds what was cut
off to its next message.

Inside compiled rounds `transmit` does all of it at once; ends.py does the same in two halves, with
real bytes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel.base import Channel
from coterie.channel.codec import size_of
from coterie.channel.values import rounded

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


class LinkState(NamedTuple):
    public: Public
    private: Private


class Outgoing(NamedTuple):
    """A message on its way, with what both ends know of it beforehand."""

    message: Any
    reference: Any = None
    """Something near the message (see `LinkKind.moving`)."""
    key: Any = None
    """The same at both ends; what a channel draws from."""
    t: Any = 0
    scale: Any = None
    """Graph, downwards: the sum of the weights of a pull."""


class Sent(NamedTuple):
    """One message's way: what arrived, the link afterwards, what it took, and what was sent."""

    arrived: Any
    link: Any
    bytes: Any
    payload: Any = None
    quiet: Any = None
    """Whether only a note was sent (`Channel.quiet`); None: no."""


@dataclasses.dataclass(frozen=True)
class LinkKind:
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


PASSES = LinkKind(passes=True)


def as_it_is(channel: Channel) -> bool:
    """Whether messages go up as they are, and nothing is remembered."""
    return channel.lossless and channel.memory != "copies" and channel.quiet is None


def star_up(channel: Channel) -> LinkKind:
    """What a client sends to the hub of a star."""
    if as_it_is(channel):
        return PASSES
    if channel.cyclic:
        # A copy of an update would be applied in every round of a cycle; so there is none.
        return LinkKind(moving=True)
    memory = channel.memory
    return LinkKind(copies=memory == "copies", errors=memory == "errors", moving=True)


def graph_up(channel: Channel) -> LinkKind:
    """What a client sends to its neighbours, or to the hub between them.

    Neighbours have nothing in common but what they sent before, so graphs always go over public
    copies.
    """
    return PASSES if as_it_is(channel) else LinkKind(copies=True)


def star_down(channel: Channel) -> LinkKind:
    """What the hub of a star sends: as it is, or over public copies."""
    return LinkKind(copies=True) if channel.down else PASSES


def graph_down(channel: Channel) -> LinkKind:
    """What a hub between neighbours sends: as it is, or over public copies."""
    return LinkKind(copies=True, moving=True) if channel.down else PASSES


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


def open_link(kind: LinkKind, channel: Channel, message: Any) -> Any:
    """A fresh link.

    `message` is what both ends take for the message before the first one (`moving`: for its
    difference to the reference).
    """
    if kind.passes or not jax.tree.leaves(message):
        return ()
    x = flat(message)
    d, dtype = x.shape[0], x.dtype
    accumulates = kind.copies and channel.accumulates
    return LinkState(
        Public(
            jnp.int32(0) if kind.copies else (),
            x if kind.copies else (),
            channel.shared_init(d, dtype),
        ),
        Private(
            jnp.zeros_like(x) if kind.errors else (),
            x if accumulates else (),
            channel.private_init(d, dtype),
        ),
    )


def base_of(kind: LinkKind, public: Public, out: Outgoing) -> Any:
    """What both ends know that is near the message, as a vector."""
    if not kind.copies:
        return flat(out.reference)
    if not kind.moving:
        return public.copy
    near = flat(out.reference) + public.copy
    # Both ends are compiled apart, and must round alike.
    return near if out.scale is None else rounded(out.scale * near)


def copy_of(kind: LinkKind, public: Public, arrived: Any, out: Outgoing) -> Any:
    """What `base_of` would make `arrived` of."""
    if not kind.moving:
        return arrived
    if out.scale is None:
        return arrived - flat(out.reference)
    there = out.scale > 0
    # A division by one number may become a product, and that be fused with the sum.
    per_unit = rounded(arrived / jnp.where(there, out.scale, 1)) - flat(out.reference)
    return jnp.where(there, per_unit, public.copy)


def _prepare(
    kind: LinkKind, channel: Channel, link: LinkState, out: Outgoing
) -> tuple[Any, Any, Private]:
    """On the sender: (payload, what was meant to arrive, private state but for the error)."""
    x = flat(out.message)
    if kind.errors:
        x = x + link.private.error
    base = base_of(kind, link.public, out)
    own, shared = link.private.own, link.public.shared
    if not isinstance(link.private.last, tuple):
        # The compressor sums up increments by itself: give it those.
        payload, own = channel.compress(x, link.private.last, own, shared, out.key, out.t)
        return payload, x, Private((), x, own)
    payload, own = channel.compress(x, base, own, shared, out.key, out.t)
    return payload, x, Private((), (), own)


def receive(
    kind: LinkKind, channel: Channel, public: Public, payload: Any, out: Outgoing
) -> tuple[Any, Public]:
    """On both ends: (the vector as it arrived, public state). `out.message` is not looked at."""
    base = base_of(kind, public, out)
    arrived, shared = channel.expand(payload, base, public.shared, out.key, out.t)
    if not kind.copies:
        return arrived, Public((), (), shared)
    version = (public.version + 1) % VERSIONS
    return arrived, Public(version, copy_of(kind, public, arrived, out), shared)


def transmit(kind: LinkKind, channel: Channel, link: Any, out: Outgoing) -> Sent:
    """A message from one end to the other, inside a compiled round."""
    if kind.passes or not jax.tree.leaves(out.message):
        return Sent(out.message, link, size_of(out.message), out.message)
    payload, meant, private = _prepare(kind, channel, link, out)
    arrived, public = receive(kind, channel, link.public, payload, out)
    size = kind.header + channel.size(payload, arrived.shape[0])
    quiet = None
    if channel.quiet is not None:
        base = base_of(kind, link.public, out)
        # Largest numbers, not lengths: a maximum is the same in every program.
        quiet = jnp.max(jnp.abs(meant - base)) <= channel.quiet * jnp.max(jnp.abs(base))
        kept = link.private._replace(error=private.error)
        unmoved = noted(kind, link.public, out)
        choose = lambda a, b: jax.tree.map(lambda x, y: jnp.where(quiet, x, y), a, b)
        arrived, public, private = choose((*unmoved, kept), (arrived, public, private))
        size = jnp.where(quiet, kind.header, size)
    if kind.errors:
        private = private._replace(error=meant - arrived)
    link = LinkState(public, private)
    return Sent(shaped(arrived, out.message), link, size, payload, quiet)


def noted(kind: LinkKind, public: Public, out: Outgoing) -> tuple[Any, Public]:
    """On both ends, when only a note was sent: what `receive` would give."""
    base = base_of(kind, public, out)
    if not kind.copies:
        return base, public
    return base, public._replace(version=(public.version + 1) % VERSIONS)


def known(kind: LinkKind, link: Any, like: Any) -> Any:
    """What the receiver had last over public copies, in the shapes of a message."""
    assert kind.copies
    assert not kind.moving
    return shaped(link.public.copy, like)
