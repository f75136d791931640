"""Who is near whom: each point's nearest others, exactly or, of many points, nearly so.

A k-d tree looks at most of the points when there are more than a few dimensions, and many clients
with few samples have the very same point. So of many points in several dimensions the neighbours
are looked for in small groups of points that are near each other: the points are halved by a random
direction, the halves by others, and so on; in a group all pairs are compared. Several such trees
make up for the neighbours that a single one cuts off.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

EXACT, FLAT = 20_000, 3
"""Of more points than this, in more dimensions than this, the neighbours are approximate."""
TREES, LEAF, SEED, TIE = 3, 32, 0x4EA2, 1e-5


def nearest_others(points: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """The `count` nearest others of each point, (N, count)."""
    n = len(points)
    if n > EXACT and points.shape[1] > FLAT and n >> 1 >= LEAF and count < LEAF:
        return approximately(points, count)
    from scipy.spatial import cKDTree

    _, index = cKDTree(points).query(points, k=count + 1)
    # Where points coincide, a client need not be the first in its own list, or in it at all: drop
    # it where it is, else the last.
    mine = index == np.arange(n)[:, None]
    mine[~mine.any(1), -1] = True
    return np.asarray(index[~mine], np.int64).reshape(n, count)


def approximately(points: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """The same by random trees; the same every time."""
    rng = np.random.default_rng(SEED)
    points = np.ascontiguousarray(points, np.float32)
    best: tuple[NDArray[np.float32], NDArray[np.int32]] | None = None
    for _ in range(TREES):
        found = _in_leaves(points, _leaves(points, rng), count, rng)
        best = found if best is None else _merged(best, found, count)
    assert best is not None
    return best[1].astype(np.int64)


def _leaves(points: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int32]:
    """Groups of LEAF to 2 LEAF points that are near each other, (groups, width)."""
    n, levels = len(points), 0
    while n >> (levels + 1) >= LEAF:
        levels += 1
    groups = 1 << levels
    width = -(-n // groups)
    # Filled up with points that are there already: who is twice in a group counts once.
    extra = rng.choice(n, groups * width - n, replace=False)
    order = np.concatenate([rng.permutation(n), extra]).astype(np.int32)
    for level in range(levels):
        direction = rng.standard_normal(points.shape[1], np.float32)
        along = (points @ direction)[order].reshape(1 << level, -1)
        # Equal points are parted at random: the order among them is that of the permutation.
        ranks = np.argsort(along, axis=1, kind="stable")
        order = np.take_along_axis(order.reshape(1 << level, -1), ranks, 1)
        order = order.reshape(-1)
    return order.reshape(groups, -1)


def _in_leaves(
    points: NDArray[np.float32], leaves: NDArray[np.int32], count: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Of every point the nearest of its group: distances and numbers, (N, count)."""
    n = len(points)
    far, who = np.full((n, count), np.inf, np.float32), np.zeros((n, count), np.int32)
    at_once = max(1, (1 << 22) // leaves.shape[1] ** 2)
    for begin in range(0, len(leaves), at_once):
        some = leaves[begin : begin + at_once]
        there = points[some]
        squares = (there * there).sum(2)
        gap = squares[:, :, None] + squares[:, None] - 2 * (there @ there.transpose(0, 2, 1))
        # Of points that coincide everybody takes others, and not all the same ones.
        chance = rng.random(gap.shape, np.float32)
        gap = np.maximum(gap, 0) + TIE * squares.mean() * chance
        # Oneself is no neighbour, and one that is there twice is one neighbour.
        gap[some[:, :, None] == some[:, None]] = np.inf
        again = np.triu(np.ones((some.shape[1],) * 2, bool), 1)
        twice = ((some[:, :, None] == some[:, None]) & again).any(1)
        gap = np.where(twice[:, None], np.inf, gap)
        near = np.argpartition(gap, count - 1, axis=2)[:, :, :count]
        flat = some.reshape(-1)
        far[flat] = np.take_along_axis(gap, near, 2).reshape(-1, count)
        who[flat] = np.take_along_axis(some[:, None], near, 2).reshape(-1, count)
    return far, who


def _merged(
    a: tuple[NDArray[np.float32], NDArray[np.int32]],
    b: tuple[NDArray[np.float32], NDArray[np.int32]],
    count: int,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The nearest of both, each once."""
    far, who = a
    for begin in range(0, len(far), 1 << 16):
        rows = slice(begin, begin + (1 << 16))
        names = np.concatenate([a[1][rows], b[1][rows]], 1)
        gaps = np.concatenate([a[0][rows], b[0][rows]], 1)
        order = np.argsort(names, axis=1, kind="stable")
        names, gaps = np.take_along_axis(names, order, 1), np.take_along_axis(gaps, order, 1)
        gaps[:, 1:][names[:, 1:] == names[:, :-1]] = np.inf
        best = np.argpartition(gaps, count - 1, axis=1)[:, :count]
        far[rows] = np.take_along_axis(gaps, best, 1)
        who[rows] = np.take_along_axis(names, best, 1)
    return far, who
