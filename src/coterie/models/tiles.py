"""Convolutions on a CPU, where every client has weights of its own: tiles of side × side outputs.

A tile needs (size+side−1)² inputs, and tiles stand `side` apart. So fewer inputs have to be laid
out in memory for each output than the size² of a patch: 9 against 25 for a 5×5 convolution in tiles
of side 2. What is done with a tile is a matrix product in either case:

* few channels: with the weights laid out for each of 2×2 outputs, zeros between them;
* many: by Winograd's algorithm F(side×side, size×size), with (size+side−1)² products where
  side²·size² would be (64 against 400 for side 4 and size 5). Its linear maps go along rows, then
  along columns, and are small constant matrices.

2×2 max pooling takes the largest of 4 blocks of outputs.
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

SIDES = (4, 2)
"""Of Winograd's tiles. More than 4 would need points whose powers cost digits."""

_POINTS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)


def tiled(size: int, stride: int) -> bool:
    """Whether a convolution is done in tiles."""
    return stride == 1 and size in (3, 5)


def side_of(channels: int, size: int, rows: int, columns: int) -> int:
    """The side of the tiles that cover rows × columns outputs with the fewest products.

    >>> side_of(32, 5, 14, 14), side_of(64, 3, 7, 7), side_of(32, 5, 2, 2), side_of(1, 5, 28, 28)
    (4, 4, 2, 2)
    """
    if channels < MANY:
        return 2
    return min(SIDES, key=lambda s: (size + s - 1) ** 2 * -(-rows // s) * -(-columns // s))


def outputs(w: Any, x: Any, size: int, rows: int, columns: int) -> Any:
    """The size×size convolution of (channels, height, width, batch), already padded, in tiles that
    cover rows × columns outputs: (2, 2, side/2, side/2, outputs, tall, wide, batch), where the
    first four say which of a tile's outputs it is: row%2, column%2, row//2, column//2. What is
    missing at the end counts as zeros.
    """
    channels, _, _, batch = x.shape
    side = side_of(channels, size, rows, columns)
    tall, wide, half = -(-rows // side), -(-columns // side), side // 2
    parts = _parts(x, size, side, tall, wide)
    if channels < MANY:
        tiles = jnp.stack([block for row in parts for block in row])
        out = product(_laid_out(w, size), tiles.reshape(-1, tall * wide * batch))
        return out.reshape(2, 2, 1, 1, -1, tall, wide, batch)
    tiles = jnp.concatenate([jnp.concatenate(row, 1) for row in parts])
    out = _winograd(w, tiles.reshape((size + side - 1) ** 2, channels, -1), size, side)
    return out.reshape(2, half, 2, half, -1, tall, wide, batch).swapaxes(1, 2)


def assembled(out: Any) -> Any:
    """Tiles as of `outputs` as an image (outputs, height, width, batch)."""
    _, _, half, _, channels, tall, wide, batch = out.shape
    out = out.transpose(4, 5, 2, 0, 6, 3, 1, 7)
    return out.reshape(channels, 2 * half * tall, 2 * half * wide, batch)


def pooled(out: Any) -> Any:
    """The 2×2 maximum of the image, (outputs, height/2, width/2, batch)."""
    _, _, half, _, channels, tall, wide, batch = out.shape
    out = largest(out.reshape(4, *out.shape[2:])).transpose(2, 3, 0, 4, 1, 5)
    return out.reshape(channels, half * tall, half * wide, batch)


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


def pooled_by_three(x: Any) -> Any:
    """3×3 maximum of (channels, height, width, batch), stride 2, padding 1: along rows, then along
    columns.
    """
    channels, height, width, batch = x.shape
    tall, wide = -(-height // 2), -(-width // 2)
    x = _filled(_kept(x).reshape(channels, height, -1), height % 2)
    x = _kept(largest_of_three(x.reshape(channels, tall, 2, -1)))
    x = _filled(x.reshape(-1, width, batch), width % 2)
    return largest_of_three(x.reshape(-1, wide, 2, batch)).reshape(channels, tall, wide, batch)


def _filled(x: Any, more: int) -> Any:
    return jnp.pad(x, ((0, 0), (0, more), (0, 0)), constant_values=-jnp.inf)


def _kept(x: Any) -> Any:
    """x, written to memory: XLA would compute it again in every place where it is used. Only
    products are never repeated, so this is one, with the identity. x must be finite.
    """
    if x.size % 2:
        return x
    return product(jnp.eye(2, dtype=x.dtype), x.reshape(2, -1)).reshape(x.shape)


@jax.custom_jvp
def largest_of_three(x: Any) -> Any:
    """The maximum of each pair and the second of the pair before it, of (some, pairs, 2, more)."""
    return jnp.maximum(jnp.maximum(x[:, :, 0], x[:, :, 1]), _before(x[:, :, 1], -jnp.inf))


@largest_of_three.defjvp
def _largest_of_three_moves(primals: Any, tangents: Any) -> Any:
    """As for `largest`."""
    (x,), (moved,) = primals, tangents
    top = largest_of_three(x)
    pair = (x == top[:, :, None]).astype(x.dtype)
    before = (_before(x[:, :, 1], -jnp.inf) == top).astype(x.dtype)
    second = jnp.sum(jnp.asarray([0, 1], x.dtype)[:, None] * moved, 2)
    total = jnp.sum(pair * moved, 2) + before * _before(second, 0)
    return top, total / (pair[:, :, 0] + pair[:, :, 1] + before)


def _before(x: Any, first: float) -> Any:
    """x, each place of its second axis with what was at the place before."""
    return jnp.pad(x[:, :-1], ((0, 0), (1, 0), (0, 0)), constant_values=first)


def _parts(x: Any, size: int, side: int, tall: int, wide: int) -> list[list[Any]]:
    """The inputs of all tiles, by blocks of at most side × side: each is (rows, columns, channel,
    tall, wide·batch).
    """
    channels, height, width, batch = x.shape
    places = [(i, min(side, size + side - 1 - side * i)) for i in range(-(-(size - 1) // side) + 1)]
    rows, columns = (side * (count + len(places) - 1) for count in (tall, wide))
    short = max(0, rows - height), max(0, columns - width)
    x = jnp.pad(x, ((0, 0), (0, short[0]), (0, short[1]), (0, 0)))[:, :rows, :columns]
    x = x.reshape(channels, rows // side, side, columns // side, side, batch)
    x = x.transpose(2, 4, 0, 1, 3, 5).reshape(side, side, channels, rows // side, -1)
    return [
        [x[:a, :b, :, i : i + tall, j * batch : (j + wide) * batch] for j, b in places]
        for i, a in places
    ]


def _laid_out(w: Any, size: int) -> Any:
    """The weights as (4·outputs, inputs of a tile in the order of `_parts` with side 2)."""
    count, blocks = len(w), (size + 1) // 2
    w = w.reshape(count, size, size, -1)
    w = jnp.stack(
        [jnp.pad(w, ((0, 0), (i, 1 - i), (j, 1 - j), (0, 0))) for i in range(2) for j in range(2)]
    )
    w = w.reshape(4 * count, blocks, 2, blocks, 2, -1).transpose(0, 1, 3, 2, 4, 5)
    return w.reshape(4 * count, -1)


def _winograd(w: Any, tiles: Any, size: int, side: int) -> Any:
    """(side, side, outputs · tiles) from the inputs of tiles, ((size+side−1)², channels, tiles).

    Its rows, and its columns, are those of even numbers first.
    """
    of_inputs, of_weights, of_outputs = (m.astype(w.dtype) for m in maps(size, side))
    places, channels, _ = tiles.shape
    w = w.reshape(len(w), size * size, channels).transpose(1, 0, 2)
    weights = product(np.kron(of_weights, of_weights), w.reshape(size * size, -1))
    inputs = _both_ways(of_inputs, tiles).reshape(tiles.shape)
    return _both_ways(of_outputs, product(weights.reshape(places, -1, channels), inputs))


def _both_ways(m: Any, x: Any) -> Any:
    """m (to × n) along the rows and the columns of x (n·n, …): (to, to, …)."""
    to, n = m.shape
    x = product(m, x.reshape(n, -1)).reshape(to, n, -1)
    return product(jnp.broadcast_to(m, (to, to, n)), x)


@cache
def maps(size: int, side: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Winograd's maps of a tile's inputs, of weights and of outputs, in one dimension.

    Two polynomials of degrees side − 1 and size − 1 are multiplied by their values at
    size + side − 1 points, one of them infinity; a convolution is the transpose of that.
    """
    places = size + side - 1

    def values(length: int) -> NDArray[np.float64]:
        finite = [[point**k for k in range(length)] for point in _POINTS[: places - 1]]
        return np.array([*finite, [0.0] * (length - 1) + [1.0]])

    order = [*range(0, side, 2), *range(1, side, 2)]
    return np.linalg.inv(values(places)).T, values(size), values(side).T[order]
