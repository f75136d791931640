"""Dada: neighbours on a graph are smoothed, and who has little data listens more."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Condition, Step, method
from coterie.methods.conditions import rate
from coterie.methods.fedu import Laplacian
from coterie.methods.sgd import Trained
from coterie.models.objective import Objective


@method(
    "dada",
    title="Dada",
    paper=(
        "Zantedeschi, Bellet, Tommasi, Fully Decentralized Joint Learning of Personalized Models"
        " and Collaboration Graphs, AISTATS 2020"
    ),
)
class Dada(Laplacian):
    """dFedU, but a client's loss counts by its confidence and its degree: where there is little
    data, neighbours count more, however many they are.

    min_W Σ_k d_k c_k f_k(w_k) + (η/2) Σ_{k<l} a_kl ‖w_k − w_l‖²,  d_k = Σ_l a_kl,  c_k = n_k/max n

    Per round, every client: R steps w_k ← w_k − μ c_k ∇f̃_k(w_k), w_k to each neighbour, then

    w_k ← w_k − μ̃ η (w_k − Σ_l a_kl w_l / d_k)

    ============  ================================================
    symbol        argument
    ============  ================================================
    η             eta (μ₁ in the paper)
    c_k           min(1, n_k/full); full: that of the largest client
    μ, R          lr, local_steps (or local_epochs)
    μ̃             mix_lr (default μR)
    a_kl          the graph of the experiment
    ============  ================================================

    The gradient of client k is divided by d_k, which is the paper's step for each block. The paper
    learns a_kl as well, in turns with the models: that is `graph.kind = "learn"` with the rule
    "dada" and `every`. The graph belongs to the experiment and is the same for all methods of a
    comparison, so nothing is learnt unless it is asked for; then all pairs are tied alike. The
    paper's clients wake up one by one and add base learners by Frank-Wolfe steps within an ℓ₁-ball;
    here all take gradient steps on any model, round by round. With an `optimizer` that divides by
    the size of gradients (Adam), c_k has no effect. The mixing step is stable while μ̃ η < 1, and a
    client without neighbours trains alone.
    """

    strength: ClassVar[str] = ""

    full: Number | None = option(
        None,
        "training samples with which a client trusts its own data fully; nothing: those of the"
        " largest client",
        above=0,
    )
    largest: Any = hidden()

    @property
    def hub_between(self) -> bool:
        return False

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, largest=float(shape.largest))

    def check_deployed(self) -> None:
        if self.full is None:
            raise InvalidInput(
                "dada.full is nothing, but in a real federation nobody knows the largest client; it"
                " must be a number of training samples."
            )

    def effective(self, weights: Any, t: Any) -> Any:
        total = weights.sum(-1, keepdims=True)
        return super().effective(weights / jnp.where(total > 0, total, 1), t)

    def confidence(self, objective: Objective) -> Any:
        """c_k."""
        full = self.largest if self.full is None else at(self.full, objective.t)
        return jnp.minimum(1.0, objective.size / full)

    def local(self, received: Any, state: Trained, objective: Objective) -> Step:
        c = self.confidence(objective)
        gradient = lambda x, i: c * objective.gradient(x, objective.batch(i))
        trained = Trained(*self.descend(*state, objective, gradient))
        return Step(self.message(trained), trained, self.steps(objective))

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.implicit or self.edge_penalty == "norm":
            return []
        step = rate(self.lr) * self.R if self.mix_lr is None else rate(self.mix_lr)
        text = "μ̃·η (stability of the mixing step, μ̃ = lr·R)"
        return [Condition(text, step * rate(self.eta), 1.0)]
