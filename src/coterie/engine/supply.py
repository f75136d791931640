"""What a round or an evaluation is given of data and graph.

As a rule everything is on the device. Where the clients' states are not (`training.store`) and a
round takes few of the clients, their rows of data and graph stay in host memory, or in the files
that the arrays are mapped from, and a round is given those of its own clients: padded to the most
that so many clients may have, so that all rounds share a program. What is computed is the same to
the last bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core import pages
from coterie.coupling.graph import Graph
from coterie.data.federation import Split
from coterie.engine.edges import Edges
from coterie.engine.setting import Coupled, Setting, index_among
from coterie.models.objective import Held

FEW = 4
"""A round takes few of the clients when they are at most one in so many."""


class Part(NamedTuple):
    """The rows of some clients; `ids` are their numbers, sorted, the last one perhaps repeated."""

    x: Any
    y: Any
    start: Any
    size: Any
    ids: Any

    def index_of(self, client: Any) -> Any:
        """A client's index in these arrays."""
        return index_among(self.ids, client)

    def of(self, ids: Any) -> Part:
        return self


class Column:
    """An array of everybody's rows, on the host or in a file."""

    def __init__(self, array: NDArray[Any], dtype: Any) -> None:
        self.array, self.dtype, self.file = array, np.dtype(dtype), pages.in_file(array)

    def take(self, first: NDArray[Any], count: NDArray[Any], room: int) -> NDArray[Any]:
        """`count` rows from each `first` on, one after the other; zeros fill the room."""
        out = np.zeros((room, *self.array.shape[1:]), self.array.dtype)
        total = int(count.sum())
        if self.file is not None:
            self.file.read(first, count, out[:total])
        else:
            begun = np.cumsum(count) - count
            out[:total] = self.array[np.repeat(first - begun, count) + np.arange(total)]
        return out.astype(self.dtype, copy=False)

    def shape(self) -> Any:
        """A row, of which only the shape is known."""
        return jax.ShapeDtypeStruct((1, *self.array.shape[1:]), self.dtype)


class Shelf:
    """A split of which rows are given to those that need them."""

    def __init__(self, split: Split, dtype: Any) -> None:
        kind = dtype if np.issubdtype(split.y.dtype, np.floating) else np.int32
        self.x, self.targets = Column(split.x, dtype), Column(split.y, kind)
        self.y, self.start, self.size = split.y, split.offsets[:-1], split.sizes
        self._room: dict[int, int] = {}

    def room(self, count: int) -> int:
        """The most rows that so many clients may have, and at least 1."""
        if count not in self._room:
            largest = np.partition(self.size, len(self.size) - count)[-count:]
            self._room[count] = max(1, int(largest.sum()))
        return self._room[count]

    def of(self, ids: Any) -> Part:
        """The rows of some clients, in any order and perhaps repeated."""
        known = np.unique(ids)
        first, count = self.start[known], self.size[known]
        room = self.room(len(ids))
        padded = lambda a: np.concatenate([a, np.repeat(a[-1:], len(ids) - len(known))])
        start, size, numbers = np.cumsum(count) - count, count, known
        return Part(
            self.x.take(first, count, room),
            self.targets.take(first, count, room),
            *(padded(a).astype(np.int32) for a in (start, size, numbers)),
        )

    def lies(self, y: Column, ids: Any) -> NDArray[Any]:
        """Other targets for the same rows."""
        known = np.unique(ids)
        return y.take(self.start[known], self.size[known], self.room(len(ids)))

    def shapes(self) -> Any:
        """For programs that are looked at and not run."""
        one = jax.ShapeDtypeStruct((1,), jnp.int32)
        return self.x.shape(), self.targets.shape(), one, one


class Supply:
    """Everything is on the device: all are given all of it.

    `edges` are drawn for every round, where not all of the graph's are used.
    """

    def __init__(self, edges: Edges | None = None) -> None:
        self.edges = edges

    def begin(self, setting: Setting) -> Setting:
        """The setting of a run, once its hub and clients are opened."""
        return setting

    def setting(self, setting: Setting, ids: NDArray[Any], t: int | None = None) -> Setting:
        """The setting as it is given to some clients; t: for their round t, which has its own
        edges where these are drawn.
        """
        if self.edges is None or t is None:
            return setting
        dtype = setting.data.l2.dtype
        return setting._replace(graph=self.edges.coupled(np.unique(ids), t, len(ids), dtype))

    def prefetch(self, ids: NDArray[Any]) -> None:
        """These clients come next."""


class FromHost(Supply):
    """Data and graph are on the host."""

    def __init__(
        self,
        train: Shelf,
        held: Shelf | None,
        lying: NDArray[Any] | None,
        graph: Graph | None,
        edges: Edges | None,
    ) -> None:
        super().__init__(edges)
        self.train, self.held, self.graph = train, held, graph
        self.lying = None if lying is None else Column(lying, np.int32)
        self.ahead: tuple[NDArray[Any], dict[str, Any]] | None = None

    def setting(self, setting: Setting, ids: NDArray[Any], t: int | None = None) -> Setting:
        ids = np.asarray(ids)
        if self.ahead is not None and np.array_equal(self.ahead[0], ids):
            rows = self.ahead[1]
        else:
            rows = self._rows(ids)
        if t is not None:
            self.ahead = None
        setting = setting._replace(data=setting.data._replace(**rows))
        if self.edges is not None or self.graph is None or t is None:
            return super().setting(setting, ids, t)
        graph = table_of(self.graph, ids, setting.data.l2.dtype)
        return setting._replace(graph=graph._replace(talks=setting.graph.talks))

    def prefetch(self, ids: NDArray[Any]) -> None:
        self.ahead = ids, self._rows(ids)

    def _rows(self, ids: NDArray[Any]) -> dict[str, Any]:
        part = self.train.of(ids)
        rows: dict[str, Any] = part._asdict()
        if self.lying is not None:
            rows["lying_y"] = self.train.lies(self.lying, ids)
        if self.held is not None:
            rows["held"] = Held(*self.held.of(ids)[:4])
        return rows


def table_of(graph: Graph, ids: NDArray[Any], dtype: Any) -> Coupled:
    """The neighbours of some clients, in increasing order, as a table as wide as the graph's
    largest degree.
    """
    a, width = graph.weights, max(1, int(graph.widest))
    begun = a.indptr[ids]
    degree, slot = a.indptr[ids + 1] - begun, np.arange(width)
    there = slot < degree[:, None]
    where = np.where(there, begun[:, None] + slot, 0)
    near = np.where(there, a.indices[where] if a.nnz else 0, ids[:, None]).astype(np.int32)
    weight = np.where(there, a.data[where] if a.nnz else 0.0, 0.0).astype(dtype)
    return Coupled(near=near, weight=weight, ids=ids.astype(np.int32))
