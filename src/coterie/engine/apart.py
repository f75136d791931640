"""Training data of which every device has the rows of its own clients, and no others.

The cores of a CPU read one copy of the data. Accelerators have a memory each: where everybody
trains in every round, it is known from the beginning who trains on which device, so each is given
those clients' rows once. Whoever looks at clients in another order (evaluations, rounds that some
dropped out of) is given their rows from the host (`engine/supply.py`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from coterie.engine.mesh import SPREAD, Apart, memories
from coterie.engine.rounds import dealt
from coterie.engine.setting import Setting, Spec
from coterie.engine.supply import Column, FromHost, Shelf
from coterie.methods.base import Method


def keeps_apart(method: Method, trainers: int, clients: int, mesh: Any, *, tries: bool) -> bool:
    """Whether every device has its own clients' rows only: where copies would cost memory, and all
    train. Those that look at validation rows (`guard`, rules that try models) have all of them.
    """
    whole = trainers == clients and getattr(method, "edges", None) is None
    return memories(mesh) > 1 and whole and not method.validates and not tries


def shares_of(size: NDArray[Any], spec: Spec) -> list[NDArray[Any]]:
    """The clients that train on each device where all do: as `rounds.clients` deals them out.

    >>> spec = Spec(None, 5, 5, 5, True, jax.sharding.AbstractMesh((2,), ("clients",)))
    >>> [share.tolist() for share in shares_of(np.array([9, 1, 7, 3, 5]), spec)]
    [[1, 4, 0], [3, 2]]
    """
    order = np.arange(len(size))
    if spec.sort_by_work:
        order = np.asarray(dealt(np.argsort(size, kind="stable"), spec.devices))
    each = -(-len(size) // spec.devices)
    return [order[d * each : (d + 1) * each] for d in range(spec.devices)]


class Shares:
    """The rows of a split, as they are spread over the devices of a mesh."""

    def __init__(self, train: Shelf, spec: Spec) -> None:
        self.train, self.mesh = train, spec.mesh
        self.clients = shares_of(train.size, spec)
        counts = [train.size[ids] for ids in self.clients]
        self.room = max(1, *(int(count.sum()) for count in counts))
        self.start = np.zeros(len(train.size), np.int32)
        for ids, count in zip(self.clients, counts, strict=True):
            self.start[ids] = np.cumsum(count) - count
        self.x, self.y = self.spread(train.x), self.spread(train.targets)

    def spread(self, column: Column) -> Apart:
        """Each device gets its rows; none holds the others', not even for a moment."""
        assert self.mesh is not None
        shape = (len(self.clients), self.room, *column.array.shape[1:])

        def part(index: Any) -> NDArray[Any]:
            ids = self.clients[index[0].start or 0]
            return column.take(self.train.start[ids], self.train.size[ids], self.room)[None]

        return Apart(jax.make_array_from_callback(shape, NamedSharding(self.mesh, SPREAD), part))


class OwnRows(FromHost):
    """Every device has the training rows of its own clients."""

    def __init__(self, train: Shelf, lying: NDArray[Any] | None, shares: Shares) -> None:
        super().__init__(train, None, lying, None, None)
        self.shares = shares

    def begin(self, setting: Setting) -> Setting:
        shares = self.shares
        lies = None if self.lying is None else shares.spread(self.lying)
        size = jnp.asarray(self.train.size, jnp.int32)
        data = setting.data._replace(x=shares.x, y=shares.y, lying_y=lies)
        return setting._replace(data=data._replace(start=jnp.asarray(shares.start), size=size))

    def setting(self, setting: Setting, ids: NDArray[Any], t: int | None = None) -> Setting:
        if t is not None and len(ids) == len(self.train.size):
            return setting
        return super().setting(setting, ids, t)

    def prefetch(self, ids: NDArray[Any]) -> None:
        if len(ids) < len(self.train.size):
            super().prefetch(ids)
