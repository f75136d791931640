"""How a message becomes bytes.

Everything a client sends or receives goes through a codec; the ledger counts what it encodes.

A codec works on pytrees of arrays whose shapes and types both ends know beforehand, so nothing but
values is sent.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import jax
import numpy as np

from coterie.core.errors import InvalidInput


class Codec(Protocol):
    """What the engine and a deployment need."""

    name: str

    def transmit(self, message: Any) -> tuple[Any, int]:
        """Inside a compiled round: the message as it arrives, and the bytes it took."""

    def encode(self, message: Any) -> bytes:
        """On the wire."""

    def decode(self, data: bytes, like: Any) -> Any:
        """Back from the wire, in the shapes of `like`."""


class PlainCodec:
    """All values as they are, little-endian, leaf after leaf.

    >>> import numpy as np
    >>> message = {"w": np.arange(3, dtype=np.float32)}
    >>> len(PlainCodec().encode(message)), PlainCodec().transmit(message)[1]
    (12, 12)
    """

    name = "identity"

    def transmit(self, message: Any) -> tuple[Any, int]:
        return message, size_of(message)

    def encode(self, message: Any) -> bytes:
        return b"".join(
            np.asarray(leaf).astype(np.asarray(leaf).dtype.newbyteorder("<")).tobytes()
            for leaf in jax.tree.leaves(message)
        )

    def decode(self, data: bytes, like: Any) -> Any:
        leaves, structure = jax.tree.flatten(like)
        if len(data) != size_of(like):
            raise InvalidInput(
                f"a message has {len(data)} bytes, but {size_of(like)} are expected."
            )
        out, start = [], 0
        for leaf in leaves:
            count = math.prod(leaf.shape)
            flat = np.frombuffer(data, np.dtype(leaf.dtype).newbyteorder("<"), count, start)
            out.append(flat.astype(leaf.dtype).reshape(leaf.shape))
            start += flat.nbytes
        return jax.tree.unflatten(structure, out)


def size_of(message: Any) -> int:
    """Bytes of all values of a message (arrays or their shapes)."""
    return sum(
        math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(message)
    )
