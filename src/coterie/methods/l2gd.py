"""L2GD: a mixture of global and local models, by loopless local gradient descent."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Condition, Step, method
from coterie.methods.conditions import rate
from coterie.methods.sgd import LocalSGD, Trained
from coterie.methods.star import Averaging
from coterie.models.objective import Objective


@method(
    "l2gd",
    title="L2GD",
    paper="Hanzely, Richtárik, Federated Learning of a Mixture of Global and Local Models, 2020",
)
class L2GD(Averaging, LocalSGD):
    """A model x_k for every client, pulled towards the mean x̄ of all: λ = 0 is Local, λ → ∞ one
    model for all.

    min over x_1 … x_N of (1/N) Σ_k f_k(x_k) + (λ/2N) Σ_k ‖x_k − x̄‖²

    The paper flips a coin in every step: all clients step along f, or all along the penalty,

    with probability 1−p: x_k ← x_k − α/(N(1−p)) ∇f̃_k(x_k)
    with probability p: x_k ← x_k − αλ/(Np) (x_k − x̄)

    Here a round is one penalty step and the local steps after it. Between two penalty steps are
    (1−p)/p local ones on average, so R of them mean p = 1/(R+1); with μ = α/(N(1−p)) as the local
    step the weight of x̄ is αλ/(Np) = μRλ:

    x_k ← x_k − μRλ (x_k − x̄);  R times: x_k ← x_k − μ ∇f̃_k(x_k);  x̄ ← mean of the x_k

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    λ             lam
    α/(N(1−p))    lr (μ)
    (1−p)/p       local_steps (R), or local_epochs: as many steps as those are on the client
    the coin      coin = true draws each round's local steps, alike for all clients, mean R
    ============  ================================================================================

    What differs from the paper: R is fixed unless `coin`, which is the paper's method; two penalty
    steps in a row, which need no message there, are two rounds here. The paper has all clients take
    part; of a sampled cohort the hub takes the mean of the sampled (or, with `beta` < 1, a running
    mean), and a client is pulled when it hears from the hub next. "personal" is x_k after that
    pull. With R fixed and all clients, these are the rounds of FedU on the complete graph with
    weights 1/N and η = λ; like there, the limit is off the solution by O(μ). Stable while μRλ < 2.
    An `optimizer` takes the local steps; the pull stays μRλ.
    """

    strength: ClassVar[str] = "lam"
    begins_from_received: ClassVar[bool] = False  # it sends x_k, its own

    lam: Number = option(
        0.1, "how strongly x_k is pulled to the mean", symbol="λ", low=0, search=LogRange(0.01, 10)
    )
    coin: bool = option(
        False,
        "draw the number of local steps of each round as the paper does; local_steps is then its"
        " mean",
    )
    key: Any = hidden()

    def validate(self) -> None:
        if self.coin and self.local_epochs:
            raise InvalidInput(
                f"l2gd.local_epochs is {self.local_epochs}, but must be nothing when coin is true:"
                " the coin counts steps."
            )

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, key=key) if self.coin else self

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def pulled(self, x: Vector, mean: Vector, objective: Objective) -> Vector:
        """x − μRλ (x − x̄)."""
        return x - at(self.lr, objective.t) * at(self.lam, objective.t) * self.steps(objective) * (
            x - mean
        )

    def local(self, received: Vector, state: Trained, objective: Objective) -> Step:
        steps = self.steps(objective)
        if self.coin:
            # Tails before the first head: ⌊log U / log(1 − p)⌋, with 1 − p = R/(R + 1).
            u = jax.random.uniform(jax.random.fold_in(self.key, objective.t), minval=1e-9)
            steps = jnp.floor(jnp.log(u) / jnp.log(steps / (steps + 1.0))).astype(jnp.int32)
        begin = self.pulled(state.x, received, objective)
        trained = Trained(*self.descend(begin, state.optimizer, objective, last=steps))
        return Step(trained.x, trained, steps)

    def models(self, received: Vector, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": self.pulled(state.x, received, objective)}

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        value = rate(self.lr) * self.R * self.longest * rate(self.lam)
        return [Condition("lr·R·λ (stability of the pull to the mean)", value, 2.0)]
