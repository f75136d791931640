"""Rounds that take a sample of a graph's edges: their ends train and exchange, the others rest.

Which edges a round takes follows from (seed, round) alone, like a cohort, so nobody has to say it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.core import randomness
from coterie.core.errors import InvalidInput
from coterie.core.randomness import Role
from coterie.coupling.graph import Graph
from coterie.engine.setting import Coupled


@partial(jax.jit, static_argnums=(2, 3))
def _drawn(seed: Any, t: Any, edges: int, count: int) -> Any:
    return randomness.cohort(randomness.role_key(seed, Role.COHORT), t, edges, count)


class Drawn(NamedTuple):
    """Edges between `low` and `high`, low < high, in the order of both."""

    low: NDArray[np.int32]
    high: NDArray[np.int32]
    weight: NDArray[np.float64]


class Edges:
    """The edges of a graph, `count` of which are drawn for every round."""

    def __init__(self, graph: Graph, count: int, seed: int) -> None:
        if count > graph.edges:
            raise InvalidInput(
                f"dfedu.edges is {count}, but must be at most {graph.edges}, the edges of the"
                " graph."
            )
        a = graph.weights
        row = np.repeat(np.arange(graph.clients, dtype=np.int32), graph.degrees)
        once = a.indices > row
        self.low, self.high = row[once], np.asarray(a.indices[once], np.int32)
        self.weight = a.data[once]
        self.count, self.seed = count, seed
        self.clients, self.widest = graph.clients, min(count, graph.widest)
        self._last: tuple[int, Drawn] | None = None

    def of(self, t: int) -> Drawn:
        """The edges of round t."""
        if self._last is None or self._last[0] != t:
            chosen = np.asarray(_drawn(self.seed, t, len(self.low), self.count))
            drawn = Drawn(self.low[chosen], self.high[chosen], self.weight[chosen])
            self._last = t, drawn
        return self._last[1]

    @property
    def most(self) -> int:
        """The most clients that a round may take."""
        return min(2 * self.count, self.clients)

    def ends(self, t: int) -> NDArray[np.int64]:
        """The clients that round t takes, sorted, and the last one repeated: one shape for all
        rounds.
        """
        low, high, _ = self.of(t)
        ends = np.unique(np.concatenate([low, high])).astype(np.int64)
        return np.concatenate([ends, np.repeat(ends[-1:], self.most - len(ends))])

    def coupled(self, ids: NDArray[Any], t: int, room: int, dtype: Any) -> Coupled:
        """The edges of round t as a table of the neighbours of `ids`, in increasing order."""
        low, high, weight = self.of(t)
        rows = np.searchsorted(ids, np.concatenate([low, high]))
        near, weights = np.concatenate([high, low]), np.concatenate([weight, weight])
        order = np.lexsort((near, rows))
        rows, near, weights = rows[order], near[order], weights[order]
        slot = np.arange(len(rows)) - np.searchsorted(rows, rows)
        ids = np.concatenate([ids, np.repeat(ids[-1:], room - len(ids))]).astype(np.int32)
        table = np.repeat(ids[:, None], max(1, self.widest), 1)
        heavy = np.zeros(table.shape, dtype)
        table[rows, slot], heavy[rows, slot] = near, weights
        return Coupled(near=table, weight=heavy, ids=ids)

    def bill(self, ids: NDArray[Any], t: int, up: NDArray[Any]) -> tuple[Any, Any]:
        """Bytes up and down of the clients `ids`, where each one's message has `up` bytes and goes
        over each of its edges.
        """
        low, high, _ = self.of(t)
        a, b = np.searchsorted(ids, low), np.searchsorted(ids, high)
        times = np.bincount(np.concatenate([a, b]), minlength=len(ids))
        down = np.zeros(len(ids), np.int64)
        np.add.at(down, a, up[b])
        np.add.at(down, b, up[a])
        return up * times, down
