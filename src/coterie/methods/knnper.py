"""kNN-Per: one model for all; every client mixes its answer with the labels of its own nearest
rows.
"""

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
from coterie.methods.base import Step, method
from coterie.methods.held import held_out
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.base import Model
from coterie.models.memorised import Memorised, Stored, memorised
from coterie.models.objective import Objective

GRID = 11
"""Values of λ_k that are tried: 0, 0.1, …, 1."""


@method(
    "knn-per",
    title="kNN-Per",
    paper=(
        "Marfoq, Neglia, Kameni, Vidal, Personalized Federated Learning through Local Memorization,"
        " ICML 2022"
    ),
)
class KNNPer(Averaging, LocalSGD):
    """FedAvg's model, and at every client a memory of its own training rows: the k nearest of them
    vote, and the client finds out how much that is worth.

    w is trained as by FedAvg. With φ what w computes before its last layer, client k predicts

    p(y|x) = (1−λ_k) p(y|x, w) + λ_k Σ_{i∈N(x)} 1[y_i = y] e_i / Σ_{i∈N(x)} e_i,
    e_i = exp(−‖φ(x) − φ(x_i)‖²/(Hσ)),  N(x) the k nearest of its training rows, φ ∈ R^H

    λ_k is that of 0, 0.1, …, 1 with the least log-loss on rows that it held out: w never saw them,
    and they vote only when λ_k is chosen.

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    k             nearest
    σ             scale
    λ_k           votes; nothing: chosen by each client
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k           weighting = "samples", as in the paper
    ============  ==============================================================================

    The paper chooses λ_k on validation data of the client, and the authors' code reports every λ on
    test data; here each client holds out `validation` of its training rows, the first ones, and the
    federation's validation rows are for choosing between methods. With `votes` given nothing is
    held out. For numbers the mean of the nearest rows' targets takes the place of votes, and λ_k
    has the least squared error; the paper has classes only. The memory is made of the client's rows
    and w when a model is asked for, so nothing is kept and nothing goes stale; at most `capacity`
    rows, those that were held out last.

    "personal" holds what w makes of the client's rows; with `mlr` and `linear` those are the rows
    themselves. It is for the client alone: exports are refused. The model must end in a dense layer
    (mlr, linear, mlp, the convolutional ones) and have no batch normalisation. d numbers go up and
    down.
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
    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )
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

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        rest = objective if self.votes is not None else held_out(objective, self.validation)[0]
        steps = self.steps(objective)
        w, kept = self.descend(received, state, rest, last=steps)
        return Step(w, kept, steps)

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
            row = objective.start + i
            x, y = objective.x[row][None], objective.y[row]
            own = apply.own(stored.parameters, x)[0]
            near = apply.near(stored, apply.features(stored.parameters, x), voters)[0]
            mixed = own + tried[:, None] * (near - own)
            if apply.task == "regression":
                return total + 0.5 * jnp.sum((mixed - y) ** 2, 1)
            return total - jnp.log(jnp.maximum(mixed[:, y], least))

        total = jax.lax.fori_loop(0, out, add, jnp.zeros_like(tried))
        return jnp.where(jnp.any(voters), tried[jnp.argmin(total)], 0)

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        stored = self.remembered(received, objective)
        share = (
            self.choice(stored, objective) if self.votes is None else at(self.votes, objective.t)
        )
        return {"personal": Vector(stored._replace(share=jnp.asarray(share, received.dtype)))}
