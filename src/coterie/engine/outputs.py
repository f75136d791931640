"""What every client's models give for its own rows, brought to the host: for metrics that are not
means over rows, and to keep.

A client's rows are cut into tiles. Tiles are looked at side by side, so that one compiled program
serves clients of all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.metrics import Metric

TILE = 64
"""Samples a client looks at at once."""
ROWS = 2**16
"""Rows whose outputs are on the host at once, or those of one client if they are more."""


class Tiles(NamedTuple):
    """Some rows of one client each: `client`, and the first of up to TILE rows."""

    client: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, size: NDArray[np.int64]) -> Tiles:
        """All rows of clients of these sizes."""
        tiles = -(-size // TILE)
        client = np.repeat(np.arange(len(size)), tiles)
        begun = np.cumsum(tiles) - tiles
        return cls(client, TILE * (np.arange(len(client)) - begun[client]))


Look = Callable[[Tiles], tuple[Any, ...]]
"""Of some tiles, arrays (tiles, views, TILE, …)."""


def by_rows(look: Look, size: NDArray[np.int64], width: int) -> list[NDArray[Any]]:
    """What `look` gives, as arrays (views, rows, …) in the order of clients and their rows; `width`
    tiles are looked at at once.
    """
    tiles = Tiles.of(size)
    count, parts = len(tiles.client), []
    for begin in range(0, count, width):
        here = np.resize(np.arange(begin, min(begin + width, count)), width)
        found = look(Tiles(tiles.client[here], tiles.first[here]))
        parts.append([np.asarray(a)[: count - begin] for a in found])
    real = tiles.first[:, None] + np.arange(TILE) < size[tiles.client][:, None]
    whole = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return [np.stack([a[:, i][real] for i in range(a.shape[1])]) for a in whole]


def _chunks(size: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Clients that have rows, in turn, some at a time."""
    there = np.flatnonzero(size)
    number = (np.cumsum(size[there]) - 1) // ROWS
    for chunk in np.split(there, np.flatnonzero(np.diff(number)) + 1):
        if len(chunk):
            yield chunk


def host_scores(
    metric: Metric, look: Look, y: Any, size: NDArray[np.int64], views: int, *, at_once: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Per view and client, the mean loss and the score by a metric that is not a mean over rows.

    `look` gives outputs and losses of rows; y are the targets of all rows, in their order.
    """
    loss, score = (np.full((views, len(size)), np.nan) for _ in range(2))
    start = np.cumsum(size) - size
    y = np.asarray(y)
    width = max(1, min(at_once, int((-(-size // TILE)).sum())))
    for chunk in _chunks(size):
        mine = np.zeros_like(size)
        mine[chunk] = size[chunk]
        outputs, losses = by_rows(look, mine, width)
        offsets = np.concatenate([[0], np.cumsum(size[chunk])])
        rows = np.arange(offsets[-1]) + np.repeat(start[chunk] - offsets[:-1], size[chunk])
        for i in range(views):
            loss[i, chunk] = np.add.reduceat(losses[i].astype(np.float64), offsets[:-1])
            loss[i, chunk] /= size[chunk]
            score[i, chunk] = metric.scores(outputs[i], y[rows], offsets)
    return loss, score
