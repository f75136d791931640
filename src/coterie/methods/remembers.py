"""What a client remembers of its own rows, beside a model: shared by kNN-Per and kNN-Local."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import Among, LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.held import held_out
from coterie.methods.sgd import LocalSGD
from coterie.models.base import Model
from coterie.models.memorised import Memorised, Stored, memorised
from coterie.models.objective import Objective

TILE = 32
"""Held-out rows that are looked at together: each look goes through all that is remembered."""
GRID = 11
"""Values of λ_k that are tried: 0, 0.1, …, 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Remembers(LocalSGD):
    """Shared by methods whose clients mix a model's answer with the labels of their own nearest
    rows. Rows that λ_k is chosen on are held out: the model never sees them.
    """

    views: ClassVar[tuple[str, ...]] = ("personal",)

    nearest: int = option(10, "rows that vote", symbol="k", low=1, search=Among((5, 10, 20)))
    scale: Number = option(
        1.0,
        "squared distances of about this size, per feature, count as near",
        symbol="σ",
        above=0,
        search=LogRange(0.1, 10),
    )
    votes: Number | None = option(
        None, "what the votes count; nothing: every client chooses", symbol="λ", low=0, high=1
    )
    validation: float = option(
        0.2, "share of the training rows that λ_k is chosen on", above=0, high=0.9
    )
    capacity: int | None = option(None, "the most rows that a client remembers", low=1)
    slots: Any = hidden()

    def unused(self) -> dict[str, str]:
        mine = {} if self.votes is None else {"validation": f"{self.name}.votes is given"}
        return {**super().unused(), **mine}

    def room(self, largest: int) -> int:
        """Rows that there is room for."""
        return largest if self.capacity is None else min(largest, self.capacity)

    def modelled(self, model: Model, shape: ProblemShape) -> Model:
        return memorised(model, shape, self.nearest, self.room(shape.largest))

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return self.for_newcomers(shape.largest)

    def for_newcomers(self, largest: int) -> Self:
        return dataclasses.replace(self, slots=jnp.zeros(self.room(largest), jnp.int8))

    def trained(self, w: Vector, kept: Any, objective: Objective) -> tuple[Any, Any, Any]:
        """The model after the steps of a round, what is kept of the optimiser, and the steps."""
        rest = objective if self.votes is not None else held_out(objective, self.validation)[0]
        steps = self.steps(objective)
        return (*self.descend(w, kept, rest, last=steps), steps)

    def held(self, objective: Objective) -> Any:
        """How many rows, the first ones, are held out to choose λ_k by."""
        if self.votes is not None:
            return 0
        return held_out(objective, self.validation)[1].size

    def look(self, objective: Objective) -> Memorised:
        apply = objective.learner.apply
        assert isinstance(apply, Memorised)
        return apply

    def remembered(self, w: Vector, objective: Objective) -> Stored:
        """w with the client's rows, those that were held out last; λ_k is not chosen yet."""
        slots, size = jnp.arange(len(self.slots)), jnp.asarray(objective.size)
        rows = objective.start + (self.held(objective) + slots) % size
        apply, dtype = self.look(objective), w.dtype
        number = lambda value: jnp.asarray(value, dtype)
        return Stored(
            w.tree,
            apply.features(w.tree, objective.x[rows]),
            apply.stored(objective.y[rows]).astype(dtype),
            number(jnp.minimum(size, len(slots))),
            number(0),
            number(at(self.scale, objective.t)),
        )

    def choice(self, stored: Stored, objective: Objective) -> Any:
        """λ_k."""
        apply, out = self.look(objective), self.held(objective)
        tried = jnp.linspace(0.0, 1.0, GRID).astype(stored.features.dtype)
        voters = jnp.arange(len(self.slots)) < objective.size - out
        least = jnp.finfo(stored.features.dtype).tiny

        def add(i: Any, total: Any) -> Any:
            places = i * TILE + jnp.arange(TILE)
            rows = objective.start + jnp.clip(places, 0, jnp.maximum(out - 1, 0))
            x, y = objective.x[rows], objective.y[rows]
            own = apply.own(stored.parameters, x)
            near = apply.near(stored, apply.features(stored.parameters, x), voters)
            mixed = own + tried[:, None, None] * (near - own)
            if apply.task == "regression":
                each = 0.5 * jnp.sum((mixed - y.reshape(TILE, -1)) ** 2, 2)
            else:
                picked = jnp.take_along_axis(mixed, y[None, :, None], 2)[..., 0]
                each = -jnp.log(jnp.maximum(picked, least))
            return total + jnp.sum(jnp.where(places < out, each, 0), 1)

        tiles = (out + TILE - 1) // TILE
        total = jax.lax.fori_loop(0, tiles, add, jnp.zeros_like(tried))
        return jnp.where(jnp.any(voters), tried[jnp.argmin(total)], 0)

    def mixed(self, w: Vector, objective: Objective) -> dict[str, Vector]:
        """What the client predicts by: w, its rows and λ_k."""
        stored = self.remembered(w, objective)
        share = (
            self.choice(stored, objective) if self.votes is None else at(self.votes, objective.t)
        )
        return {"personal": Vector(stored._replace(share=jnp.asarray(share, w.dtype)))}
