"""AFL: one model for the worst mixture of the clients."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.coupling.learnt.simplex import onto_simplex
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging, Cohort
from coterie.models.objective import Objective


class AFLHubState(NamedTuple):
    """The model (with a server optimiser's state, where there is one), and the weight of every
    client, by its number.
    """

    model: Any
    weights: Any


class Message(NamedTuple):
    """A client's model, and the loss of the model that it was sent."""

    model: Vector
    loss: Any


@method("afl", title="AFL", paper="Mohri, Sivek, Suresh, Agnostic Federated Learning, ICML 2019")
class AFL(Averaging, LocalSGD):
    """One global model for the worst mixture of clients: those with a large loss gain weight in the
    mean.

    min_w max_{λ∈Δ} Σ_k λ_k f_k(w),   Δ the simplex of N clients

    Client: w_k = w after R SGD steps, ℓ_k = f̃_k(w). Hub, with the λ it had:

    w ← (1−β) w + β Σ_{k∈S} λ_k w_k / Σ_{k∈S} λ_k
    λ ← the projection onto Δ of λ + γ_λ ℓ, where ℓ is 0 for clients outside S

    ============  ================================================
    symbol        argument
    ============  ================================================
    γ_λ           weight_lr
    μ, R          lr (γ_w in the paper), local_steps or local_epochs (R = 1 in the paper)
    β             beta (1 in the paper)
    ============  ================================================

    λ starts uniform, belongs to clients by number and not by their index in the cohort, and is
    projected in the Euclidean sense, not just normalised. ℓ_k is taken on the batch of the first
    local step, whose gradient contains it, so no gradient is counted for it. When everybody in S
    has λ_k = 0 they count alike. Clients are sampled uniformly; w is the last one, where the paper
    proves its bound for the mean of all rounds. A robust `merging` works on the models; those that
    know no weights (all but mean, geometric median and clipping) do without λ.
    """

    views: ClassVar[tuple[str, ...]] = ("global",)

    weight_lr: Number = option(
        0.1, "step size of the weights", symbol="γ_λ", low=0, search=LogRange(0.003, 1)
    )
    weighting: str = option("uniform", "(fixed: clients count by λ)", choices=("uniform",))
    clients: Any = hidden()

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, clients=shape.clients)

    def hub_init(self, template: Vector) -> AFLHubState:
        weights = jnp.full(self.clients, 1 / self.clients, template.dtype)
        return AFLHubState(self.steered(template), weights)

    def broadcast(self, hub: AFLHubState, client: Any) -> Vector:
        model: Vector = self.current(hub.model)
        return model

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        w, kept = self.descend(received, state, objective)
        loss = objective.loss(received, objective.batch(0))
        return Step(Message(w, loss), kept, self.steps(objective))

    def reference(self, received: Vector, message: Message) -> Message:
        return Message(received, jnp.zeros_like(message.loss))

    def merge(self, hub: AFLHubState, messages: Message, cohort: Cohort, t: Any) -> AFLHubState:
        weights = hub.weights[cohort.ids]
        counted = cohort._replace(weights=jnp.where(jnp.sum(weights) > 0, weights, 1))
        mean = self.aggregate(self.current(hub.model), messages.model, counted, t)
        model = self.next(hub.model, mean, t)
        losses = jnp.zeros_like(hub.weights).at[cohort.ids].set(messages.loss)
        return AFLHubState(model, onto_simplex(hub.weights + at(self.weight_lr, t) * losses))

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"global": received}
