"""Data of which every device has a part, and no device all.

The cores of a CPU read one copy of the data. Accelerators have a memory each: where everybody
trains in every round, it is known from the beginning who trains on which device, so each is given
those clients' rows once (`OwnRows`). Where a sample of the clients trains, each is given an equal
share of all rows, and a round gathers those of its cohort (`ScatteredRows`). Whoever looks at
clients in another order (evaluations, rounds that some dropped out of) is given their rows from the
host (`engine/supply.py`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from numpy.typing import NDArray

from coterie.engine.mesh import SPREAD, Apart
from coterie.engine.rounds import dealt
from coterie.engine.scattered import Scattered
from coterie.engine.setting import Setting, Spec
from coterie.engine.supply import Column, FromHost, Shelf
from coterie.models.objective import Held


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
    """The rows of a split, as they are spread over the devices of a mesh with their clients."""

    def __init__(self, rows: Shelf, clients: list[NDArray[Any]], mesh: Mesh) -> None:
        self.rows, self.clients, self.mesh = rows, clients, mesh
        counts = [rows.size[ids] for ids in clients]
        self.room = max(1, *(int(count.sum()) for count in counts))
        self.start = np.zeros(len(rows.size), np.int32)
        for ids, count in zip(clients, counts, strict=True):
            self.start[ids] = np.cumsum(count) - count
        self.x, self.y = self.spread(rows.x), self.spread(rows.targets)

    def spread(self, column: Column) -> Apart:
        """Each device gets its rows; none holds the others', not even for a moment."""
        shape = (len(self.clients), self.room, *column.array.shape[1:])

        def part(index: Any) -> NDArray[Any]:
            ids = self.clients[index[0].start or 0]
            return column.take(self.rows.start[ids], self.rows.size[ids], self.room)[None]

        return Apart(_placed(shape, self.mesh, part))


class EqualShares:
    """The rows of a split, as many on every device; a round of so many clients gathers its own."""

    def __init__(self, rows: Shelf, cohort: int, mesh: Mesh) -> None:
        self.mesh, self.room, self.start = mesh, rows.room(cohort), rows.start
        self.x, self.y = self.spread(rows.x), self.spread(rows.targets)

    def spread(self, column: Column) -> Scattered:
        """As of `Shares`."""
        total = len(column.array)
        each = max(1, -(-total // self.mesh.size))
        shape = (self.mesh.size, each, *column.array.shape[1:])

        def part(index: Any) -> NDArray[Any]:
            first = min(total, (index[0].start or 0) * each)
            count = min(each, total - first)
            return column.take(np.array([first]), np.array([count]), each)[None]

        return Scattered(_placed(shape, self.mesh, part), self.room)


def _placed(shape: tuple[int, ...], mesh: Mesh, part: Any) -> Any:
    return jax.make_array_from_callback(shape, NamedSharding(mesh, SPREAD), part)


class Sharing(FromHost):
    """The rows that rounds train on are shared out between devices; the graph is on all of them.
    `own` are the shares of validation rows, where methods look at them.
    """

    def __init__(
        self,
        train: Shelf,
        held: Shelf | None,
        lying: NDArray[Any] | None,
        shares: Shares | EqualShares,
        own: Shares | EqualShares | None,
    ) -> None:
        super().__init__(train, held, lying, None, None)
        self.shares, self.own = shares, own

    def begin(self, setting: Setting) -> Setting:
        shares, own, whole = self.shares, self.own, self.held
        lies = None if self.lying is None else shares.spread(self.lying)
        place = lambda where, size: (jnp.asarray(a, jnp.int32) for a in (where, size))
        start, size = place(shares.start, self.train.size)
        data = setting.data._replace(x=shares.x, y=shares.y, start=start, size=size, lying_y=lies)
        if own is not None and whole is not None:
            data = data._replace(held=Held(own.x, own.y, *place(own.start, whole.size)))
        return setting._replace(data=data)


class OwnRows(Sharing):
    """Every device has the rows of its own clients."""

    def setting(self, setting: Setting, ids: NDArray[Any], t: int | None = None) -> Setting:
        if t is not None and len(ids) == len(self.train.size):
            return setting
        return super().setting(setting, ids, t)

    def prefetch(self, ids: NDArray[Any]) -> None:
        if len(ids) < len(self.train.size):
            super().prefetch(ids)


class ScatteredRows(Sharing):
    """Every device has an equal share of all rows. Blocks of rounds gather what they need; a round
    that is done by itself is given it.
    """
