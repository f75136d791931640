"""Rows of which every device has an equal share, whosever they are.

Accelerators have a memory each. Where a sample of the clients trains, nobody knows beforehand who
will train on which device. So every device keeps an equal share of everybody's rows, and a round
first gathers those of its own clients: each device gives the rows that it has, and all get the sum.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh

from coterie.core.pytree import tree
from coterie.core.typing import Array
from coterie.engine.mesh import AXIS, EVERYWHERE, SPREAD
from coterie.engine.setting import Data
from coterie.models.objective import Held


@tree
@dataclasses.dataclass(frozen=True)
class Scattered:
    """An array of rows; part d has those of device d, one after the other, zeros at the end."""

    parts: Any
    room: int = dataclasses.field(metadata={"static": True})
    """The most rows that the clients of a round may have."""

    @property
    def dtype(self) -> Any:
        return self.parts.dtype

    def take(self, mesh: Mesh, rows: Array) -> Array:
        """Rows by number, on every device; zeros where the number is −1."""
        each = self.parts.shape[1]

        def give(part: Array, rows: Array) -> Array:
            here = rows - each * lax.axis_index(AXIS)
            mine = (rows >= 0) & (here >= 0) & (here < each)
            found = part[0][jnp.clip(here, 0, each - 1)]
            mine = mine.reshape(-1, *(1 for _ in found.shape[1:]))
            return lax.psum(jnp.where(mine, found, 0), AXIS)

        given = (SPREAD, EVERYWHERE)
        taken = jax.shard_map(
            give, mesh=mesh, in_specs=given, out_specs=EVERYWHERE, check_vma=False
        )
        found: Array = taken(self.parts, rows)
        return found


def gathered(mesh: Mesh | None, data: Data, ids: Array) -> Data:
    """The data as a round of the clients `ids`, in increasing order, is given them: their rows
    only, where rows are scattered.
    """
    x, y, lying, held = data.x, data.y, data.lying_y, data.held
    if mesh is None or not isinstance(x, Scattered):
        return data
    rows, start, size = _rows(data, ids, x.room)
    if held is not None:
        own, *where = _rows(held, ids, held.x.room)
        held = Held(held.x.take(mesh, own), held.y.take(mesh, own), *where)
    return data._replace(
        x=x.take(mesh, rows),
        y=y.take(mesh, rows),
        start=start,
        size=size,
        lying_y=None if lying is None else lying.take(mesh, rows),
        held=held,
        ids=ids,
    )


def _rows(data: Data | Held, ids: Array, room: int) -> tuple[Array, Array, Array]:
    """The numbers of some clients' rows, one client after the other and −1 at the end; where each
    client's begin there, and how many it has.
    """
    size = data.size[ids]
    end = jnp.cumsum(size, dtype=jnp.int32)
    start, slot = end - size, jnp.arange(room, dtype=jnp.int32)
    whose = jnp.minimum(jnp.searchsorted(end, slot, side="right"), len(ids) - 1)
    rows = data.start[ids][whose] + slot - start[whose]
    return jnp.where(slot < end[-1], rows, -1), start, size
