"""Convolutions on a CPU, where every client has weights of its own: tiles of side×side outputs.

A tile needs (size+side−1)² inputs, and tiles stand `side` apart. So there are fewer inputs for each
output to be laid out in memory than the size² of single outputs: 9 against 25 for a 5×5 convolution
in tiles of side 2. What is done with a tile is a matrix product in either case:

* few channels: with the weights laid out for each of the 4 outputs of side 2, zeros between them;
* many: by Winograd's algorithm F(side×side, size×size), with (size+side−1)² products where
  side²·size² would be (64 against 400 for side 4). Its three linear maps are small constant
  matrices.

2×2 max pooling takes the largest of 4 blocks of outputs, which lie one after the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.models.products import product

MANY = 16
"""Input channels from which on Winograd's algorithm takes less time."""

_POINTS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)


def tiled(size: int, stride: int) -> bool:
    """Whether a convolution is done in tiles."""
    return stride == 1 and size in (3, 5)


def _side(channels: int, size: int, rows: int, columns: int) -> int:
    if channels < MANY:
        return 2
    return min((4, 2), key=lambda side: (size + side - 1) ** 2 * -(-rows // side) * -(-columns // side))


def outputs(w: Any, x: Any, size: int, rows: int, columns: int) -> Any:
    """The size×size convolution of (channels, height, width, batch), already padded, in tiles that
    cover rows × columns outputs: (4, side²/4, outputs, tall, wide, batch). What is missing at the end counts as zeros.
    """
    channels, _, _, batch = x.shape
    side = _side(channels, size, rows, columns)
    tall, wide = -(-rows // side), -(-columns // side)
    tiles = _tiles(x, size, side, tall, wide)
    if channels < MANY:
        out = product(_laid_out(w, size), tiles.reshape(-1, tall * wide * batch))
    else:
        out = _winograd(w, tiles.reshape((size + side - 1) ** 2, channels, -1), size, side)
    return out.reshape(4, side * side // 4, -1, tall, wide, batch)


def assembled(out: Any) -> Any:
    """Tiles (4, side²/4, outputs, tall, wide, batch) as an image (outputs, height, width, batch)."""
    _, places, channels, tall, wide, batch = out.shape
    half = 1 if places == 1 else 2
    out = out.reshape(2, 2, half, half, channels, tall, wide, batch).transpose(4, 5, 2, 0, 6, 3, 1, 7)
    return out.reshape(channels, 2 * half * tall, 2 * half * wide, batch)


def pooled(out: Any) -> Any:
    out = largest(out)
    places, channels, tall, wide, batch = out.shape
    if places == 1:
        return out[0]
    out = out.reshape(2, 2, channels, tall, wide, batch).transpose(2, 3, 0, 4, 1, 5)
    return out.reshape(channels, 2 * tall, 2 * wide, batch)


@jax.custom_jvp
def largest(out: Any) -> Any:
    """The maximum over the first axis, of length 4."""
    return jnp.maximum(jnp.maximum(out[0], out[1]), jnp.maximum(out[2], out[3]))


@largest.defjvp
def _largest_moves(primals: Any, tangents: Any) -> Any:
    """Equal ones share alike, as in `jnp.max`; without slices, whose gradient is slow."""
    (out,), (moved,) = primals, tangents
    top = largest(out)
    chosen = (out == top).astype(out.dtype)
    count = chosen[0] + chosen[1] + chosen[2] + chosen[3]
    return top, jnp.sum(chosen * moved, 0) / count


def _tiles(x: Any, size: int, side: int, tall: int, wide: int) -> Any:
    """Inputs of all tiles, (row//2, column//2, row%2, column%2, channel, tall, wide·batch)."""
    channels, height, width, batch = x.shape
    blocks = -(-(size + side - 1) // side)
    rows, columns = side * (tall + blocks - 1), side * (wide + blocks - 1)
    short = max(0, rows - height), max(0, columns - width)
    x = jnp.pad(x, ((0, 0), (0, short[0]), (0, short[1]), (0, 0)))[:, :rows, :columns]
    x = x.reshape(channels, rows // side, side, columns // side, side, batch).transpose(2, 4, 0, 1, 3, 5)
    x = x.reshape(side, side, channels, rows // side, columns // side * batch)
    return jnp.concatenate(
        [
            x[:a, :b, :, i : i + tall, j * batch : (j + wide) * batch].reshape(a * b, channels, tall, -1)
            for i, a in _blocks(size, side)
            for j, b in _blocks(size, side)
        ]
    )


def _blocks(size, side):
    return [(i // side, min(side, size + side - 1 - i)) for i in range(0, size + side - 1, side)]


def _laid_out(w: Any, size: int) -> Any:
    """The weights as (4·outputs, inputs of a tile in the order of `_tiles`)."""
    count, blocks = len(w), (size + 1) // 2
    w = w.reshape(count, size, size, -1)
    w = jnp.stack(
        [jnp.pad(w, ((0, 0), (i, 1 - i), (j, 1 - j), (0, 0))) for i in range(2) for j in range(2)]
    )
    w = w.reshape(4 * count, blocks, 2, blocks, 2, -1).transpose(0, 1, 3, 2, 4, 5)
    return w.reshape(4 * count, -1)


def _winograd(w: Any, tiles: Any, size: int, side: int) -> Any:
    """(side², outputs · tiles) from the inputs of tiles, ((size+1)², channels, tiles)."""
    of_inputs, of_weights, of_outputs = (m.astype(w.dtype) for m in _maps(size, side))
    places, channels, _ = tiles.shape
    w = w.reshape(len(w), size * size, channels).transpose(1, 0, 2)
    weights = product(of_weights, w.reshape(size * size, -1)).reshape(places, -1, channels)
    inputs = product(of_inputs, tiles.reshape(places, -1)).reshape(tiles.shape)
    return product(of_outputs, product(weights, inputs).reshape(places, -1))


@cache
def _maps(size: int, side: int) -> tuple[Any, Any, Any]:
    """Winograd's maps of a tile's inputs, in the order of `_tiles`, of weights and of outputs.
    """
    places = size + side - 1

    def values(length: int) -> NDArray[np.float64]:
        finite = [[point**k for k in range(length)] for point in _POINTS[: places - 1]]
        return np.array([*finite, [0.0] * (length - 1) + [1.0]])

    back = np.linalg.inv(values(places)).T
    order = [
        (i * side + p, j * side + q)
        for i, a in _blocks(size, side)
        for j, b in _blocks(size, side)
        for p in range(a)
        for q in range(b)
    ]
    of_inputs = np.stack([np.kron(back[:, p], back[:, q]) for p, q in order], 1)
    of_weights = np.kron(values(size), values(size))
    v = values(side).T
    half = range(side // 2)
    of_outputs = np.stack([np.kron(v[2 * i + p], v[2 * j + q]) for p in range(2) for q in range(2) for i in half for j in half])
    return of_inputs, of_weights, of_outputs
