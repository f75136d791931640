"""How the chosen coordinates of a sparse message are written: always in increasing order, each with
its number or with its gap to the one before.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel.bits import BitReader, BitWriter, rice_length, rice_parameter, width_of
from coterie.core.errors import InvalidInput

KINDS = ("raw", "packed", "gaps")
HELP = (
    "how coordinates are written: in 4 bytes each, in ⌈log₂ d⌉ bits each, or as gaps in the Rice"
    " code that suits d and k"
)


def bits(kind: str, indices: Any, d: int, count: Any, parameter: Any) -> Any:
    """The bits of the first `count` of sorted `indices`; `count` and the Rice parameter may be
    traced.
    """
    if kind == "raw":
        return 32 * count
    if kind == "packed":
        return width_of(d) * count
    return _gap_bits(indices, count, parameter)


@jax.jit
def _gap_bits(indices: Any, count: Any, parameter: Any) -> Any:
    gaps = jnp.diff(jnp.asarray(indices, jnp.int32), prepend=-1) - 1
    return jnp.sum(
        jnp.where(jnp.arange(gaps.shape[0]) < count, rice_length(gaps, parameter), 0),
        dtype=jnp.int32,
    )


def write(writer: BitWriter, kind: str, indices: Any, d: int) -> None:
    """Sorted indices as a part of a message; how many they are, both ends know."""
    indices = np.asarray(indices).astype(np.int64)
    if kind == "gaps":
        writer.rice(np.diff(indices, prepend=-1) - 1, rice_parameter(d, len(indices)))
    else:
        writer.fixed(indices, 32 if kind == "raw" else width_of(d))


def read(reader: BitReader, kind: str, d: int, count: int) -> Any:
    """The inverse of `write`."""
    if kind == "gaps":
        indices = np.cumsum(reader.rice(count, rice_parameter(d, count)) + 1) - 1
    else:
        indices = reader.fixed(count, 32 if kind == "raw" else width_of(d))
    if np.any(np.diff(indices) <= 0):
        raise InvalidInput("a message has coordinates that do not increase.")
    if count and indices[-1] >= d:
        raise InvalidInput(
            f"a message has the coordinate {indices[-1]}, but must have coordinates below {d}."
        )
    return indices.astype(np.int32)
