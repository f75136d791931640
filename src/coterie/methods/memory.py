"""A hub that remembers the last message of every client, and tells each something of its own."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.star import Cohort, StarMethod


class Memory(NamedTuple):
    """What a hub remembers of its clients, a row each: the last model, and what the client counts
    (0: it has sent nothing yet); and the next round.
    """

    models: Vector
    counts: Any
    t: Any

    @property
    def known(self) -> Any:
        return self.counts > 0

    def row(self, client: Any) -> Vector:
        return self.models.map(lambda rows: rows[client])

    def mean(self) -> Vector:
        """Of those that have sent something, counted alike; of all while nobody has."""
        known = jnp.where(jnp.any(self.known), self.known, True)
        return mixed(known / jnp.sum(known), self.models)

    def heard(self, models: Vector, cohort: Cohort, t: Any) -> Memory:
        """After round t, in which the clients of `cohort` sent these."""
        rows = self.models.map(lambda old, new: old.at[cohort.ids].set(new), models)
        counts = self.counts.at[cohort.ids].set(cohort.weights)
        return Memory(rows, counts, jnp.asarray(t + 1, jnp.int32))


def mixed(weights: Any, rows: Vector) -> Vector:
    """Σ_l weights_l rows_l."""
    return rows.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, 1))


def squared_distances(x: Vector, rows: Vector) -> Any:
    """‖x − rows_l‖² for every row."""
    return jax.vmap(lambda row: (x - row).squared_norm())(rows)


def inner(a: Vector, b: Vector) -> Any:
    return sum(jnp.vdot(x, y) for x, y in zip(a.leaves, b.leaves, strict=True))


def cosines(x: Vector, rows: Vector) -> Any:
    """cos of the angle between x and every row; 0 where one of them is 0."""

    def one(row: Vector) -> Any:
        size = jnp.sqrt(x.squared_norm()) * jnp.sqrt(row.squared_norm())
        return inner(x, row) / jnp.where(size > 0, size, 1.0)

    return jax.vmap(one)(rows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remembering(StarMethod):
    """Shared by methods whose hub keeps the last model of every client: N × d numbers.

    What it works out for one client costs N × d, so a round costs S × N × d at the hub, however few
    of its clients were ever sampled.
    """

    addressed: ClassVar[bool] = True
    clients: Any = hidden()

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, clients=shape.clients)

    def hub_init(self, template: Vector) -> Any:
        n = int(self.clients)
        rows = template.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)))
        return Memory(rows, jnp.zeros(n, template.dtype), jnp.int32(0))

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        return hub.heard(messages, cohort, t)
