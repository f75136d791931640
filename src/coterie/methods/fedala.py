"""FedALA: every client learns, weight by weight, how much of the global model it takes in."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Step, Work, method
from coterie.methods.fedavg import FedAvg
from coterie.methods.split import join, layers, like, part
from coterie.models.objective import Objective


class FedALAState(NamedTuple):
    """What a client keeps: θ_k, its W_k (of the upper layers), whether θ_k was ever trained, and
    its optimiser's state (() where that is fresh every round).
    """

    x: Vector
    weights: Vector
    trained: Any
    optimizer: Any = ()


@method(
    "fedala",
    title="FedALA",
    paper=(
        "Zhang et al., FedALA: Adaptive Local Aggregation for Personalized Federated Learning,"
        " AAAI 2023"
    ),
)
class FedALA(FedAvg):
    """FedAvg whose clients do not begin a round with the global model w alone: in the upper layers
    each takes w and its own last model θ_k together, in parts that it learns.

    θ̂_k = θ_k + (w − θ_k) ⊙ W_k in the p upper layers,  θ̂_k = w in those below

    V times: W_k ← W_k − η ∂f̃_k(θ̂_k)/∂W_k, cut to [0, 1];  ∂f̃_k/∂W_k = ∇f̃_k(θ̂_k) ⊙ (w − θ_k)

    then R SGD steps from θ̂_k give the new θ_k, which is sent

    Hub: w ← (1−β) w + β Σ_{k∈S} (n_k/n_S) θ_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    p             upper: layers, counted from the last one
    η             weight_lr (1 in the paper)
    V             weight_steps
    s             share: of the data that W_k is learnt on (0.8 in the paper)
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ==============================================================================

    W_k starts at 1, where θ̂_k is w; it is kept from round to round and never sent. A client
    without a trained model takes w as it is. The paper learns W_k until the loss settles the first
    time, then by one pass over the share in every round. Here V is the same in every round, since
    clients run side by side in one program: W_k settles over several rounds, or at once with a
    large V. Each step takes one mini-batch, of the first ⌈s·(batches of an epoch)⌉ of the round's
    random order, which the R steps go through as well; with full batches that is everything.
    With `local_epochs` V counts passes over the share. Gradients for W_k are counted like others.

    "personal" is θ̂_k as the client would form it now, with the newest w and V steps on its
    training data; these belong to no round and are not billed. "global" is w. With η = 0 both are
    FedAvg's. An `optimizer` takes the R steps; those of W_k are gradient steps in any case.
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")

    upper: int = option(
        1, "how many layers, from the last one, are mixed by learnt weights", symbol="p", low=1
    )
    weight_lr: Number = option(
        1.0, "step size of the weights W_k", symbol="η", low=0, search=LogRange(0.03, 30)
    )
    weight_steps: int = option(
        5,
        "steps on W_k per round (passes over the share when `local_epochs` is given)",
        symbol="V",
        low=1,
    )
    share: float = option(
        0.8, "share of the data, in whole mini-batches, for W_k", symbol="s", above=0, high=1
    )

    def client_init(self, template: Vector) -> FedALAState:
        mixed = part(template, set(layers(template)[-self.upper :]))
        return FedALAState(
            template, mixed.map(jnp.ones_like), jnp.asarray(False), self.opened(template)
        )

    def learning(self, objective: Objective) -> tuple[Any, Any]:
        """The steps on W_k in a round, and how many mini-batches they go through."""
        whole = objective.steps_per_epoch
        batches = jnp.clip(jnp.ceil(self.share * whole - 1e-4).astype(jnp.int32), 1, whole)
        steps = self.weight_steps * self.span(objective.t)
        return steps * (batches if self.local_epochs else 1), batches

    def begin(
        self, received: Vector, state: FedALAState, objective: Objective
    ) -> tuple[Vector, Vector]:
        """θ̂_k and W_k of this round."""
        lr, (steps, batches) = at(self.weight_lr, objective.t), self.learning(objective)
        shared, own = like(state.weights, received), like(state.weights, state.x)
        gap = own.map(lambda a, b: jnp.where(state.trained, a - b, 0), shared)

        def mixed(weights: Vector) -> Vector:  # exact for W = 1
            upper = shared.map(lambda a, w, g: a + (1 - w) * g, weights, gap)
            return join(upper, received)

        def step(i: Any, weights: Vector) -> Vector:
            g = objective.gradient(mixed(weights), objective.batch(i % batches))
            return (weights + lr * like(weights, g) * gap).map(lambda w: jnp.clip(w, 0, 1))

        weights = jax.lax.fori_loop(0, steps, step, state.weights)
        return mixed(weights), weights

    def local(self, received: Vector, state: FedALAState, objective: Objective) -> Step:
        start, weights = self.begin(received, state, objective)
        x, kept = self.descend(start, state.optimizer, objective)
        gradients = self.steps(objective) + self.learning(objective)[0]
        return Step(x, FedALAState(x, weights, jnp.asarray(True), kept), gradients)

    def models(
        self, received: Vector, state: FedALAState, objective: Objective
    ) -> dict[str, Vector]:
        return {"personal": self.begin(received, state, objective)[0], "global": received}

    def work(self) -> Work:
        """With epochs a pass over the share counts as one over everything: Local gets no less."""
        total, epochs = self.R + self.weight_steps, self.local_epochs is not None
        return (
            super()
            .work()
            ._replace(steps=None if epochs else total, epochs=total if epochs else None)
        )
