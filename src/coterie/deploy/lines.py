"""Both ends of a link on a wire (see channel/link.py), and how they get in step again: the sender
sends a whole message, uncompressed.
"""

from __future__ import annotations

import struct
from typing import Any

import jax
import jax.numpy as jnp

from coterie.channel.base import Channel
from coterie.channel.codec import Identity, size_of
from coterie.channel.link import (
    HEADER,
    VERSIONS,
    Link,
    Private,
    Public,
    Stream,
    _base,
    _copy,
    flat,
    open_link,
    shaped,
)


def send_whole(
    stream: Stream, channel: Channel, line: Any, message: Any, reference: Any, scale: Any = None
) -> tuple[bytes, Any, Any]:
    """A message in full over a link that may be out of step: (bytes, the link afterwards, the
    message as it arrives).
    """
    assert stream.copies
    x = flat(message)
    fresh: Link = open_link(stream, channel, message)
    version = (line.public.version + 1) % VERSIONS
    public = Public(
        jnp.int32(version), _copy(stream, line.public, x, reference, scale), fresh.public.shared
    )
    wire = struct.pack("<H", int(version) | VERSIONS) + Identity().encode(
        (public.copy, public.shared)
    )
    private = Private(
        fresh.private.error,
        x if not isinstance(fresh.private.last, tuple) else (),
        fresh.private.own,
    )
    return wire, Link(public, private), shaped(_base(stream, public, reference, scale), message)


def zeros(like: Any) -> Any:
    """A message of these shapes that says nothing."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)


def largest(stream: Stream, channel: Channel, like: Any) -> int:
    """The most bytes that a message of these shapes may have: a whole copy, or what the channel
    makes of it at worst.
    """
    plain = size_of(like)
    if stream.passes or not jax.tree.leaves(like):
        return plain
    opened = jax.eval_shape(lambda: open_link(stream, channel, zeros(like)))
    return (
        HEADER + 2 * plain + size_of(opened.public.shared) + 64
    )  # a channel that inflates more than that is none
