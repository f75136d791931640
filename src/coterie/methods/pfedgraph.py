"""pFedGraph: every client starts from its own mixture of all models, by a collaboration graph that
the hub infers.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.coupling.learnt import simplex
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.memory import Memory, Remembering, cosines, inner, mixed
from coterie.methods.sgd import LocalSGD, Trained
from coterie.models.objective import Objective


def towards(x: Vector, u: Vector) -> Vector:
    """The gradient of cos(x, u) in x; 0 where one of them is 0."""
    square = x.squared_norm()
    size = jnp.sqrt(square) * jnp.sqrt(u.squared_norm())
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    along = inner(x, u) * scale / jnp.where(square > 0, square, 1.0)
    return scale * u - along * x


@method(
    "pfedgraph",
    title="pFedGraph",
    paper=(
        "Ye et al., Personalized Federated Learning with Inferred Collaboration Graphs, ICML 2023"
    ),
)
class PFedGraph(Remembering, LocalSGD):
    """The hub infers for every client how much each model counts: by its samples, and by how alike
    the ways are that the models went; from that mixture the client starts.

    Hub, for client k, with D_l = x_l − x⁰ the way of client l from the common start:

    w_k = argmin over the simplex of Σ_l (w_l − p_l)² + α Σ_l w_l d_kl,  d_kl = −cos(D_k, D_l)
        = the projection of p − (α/2) d_k onto the simplex,  p_l = n_l/n
    u_k = Σ_l w_kl x_l

    Client: x_k = u_k after R SGD steps on f_k(x) − λ cos(x, u_k)

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    α             alpha: 0 counts by samples alone (FedAvg), ∞ takes the client's own model only
    λ             lam
    μ, R          lr, local_steps (or local_epochs)
    p_l           weighting = "samples"; "uniform" counts every client alike
    ============  ================================================================================

    The authors' code weighs the other term of the quadratic program, so its `alpha` (0.8) is 1/α
    here; it rounds cosines above 0.9 up to 1, which is left out; and it adds λ cos to the loss,
    which drives x_k away from u_k, where the objective is to hold it near, as here. There, u_k in
    the cosine is the mixture of the models divided by their lengths; here it is the mixture itself
    (their variant "approx"), so that d numbers come down and not 2d. Cosines are over all
    parameters. Their code infers a graph among the clients of a round; here among all that have
    sent something so far, by the last model of each, and who has sent nothing counts nothing. Who
    has not been heard of starts from the mean by samples.

    The message is D_k. So the sum of what a newcomer would have sent has a direction too, and the
    hub mixes for it as for a member, without itself among those that count. "personal" is x_k,
    after the local steps.
    """

    begins_from_received: ClassVar[bool] = True

    alpha: Number = option(
        1.0,
        "how much the likeness of models counts against the clients' samples",
        symbol="α",
        low=0,
        search=LogRange(0.01, 10),
    )
    lam: Number = option(
        0.01,
        "how strongly the direction of x_k is held to that of u_k",
        symbol="λ",
        low=0,
        search=LogRange(0.001, 1),
    )
    weighting: str = option(
        "samples",
        "what a client counts before likeness: alike, or by its training samples",
        choices=("uniform", "samples"),
    )
    start: Any = hidden()

    @property
    def by_samples(self) -> bool:
        return self.weighting == "samples"

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(super().bind(template, key, shape), start=template)

    def hub_init(self, template: Vector) -> Memory:
        return super().hub_init(template.map(jnp.zeros_like))  # type: ignore[no-any-return]

    def weights(self, hub: Memory, way: Vector) -> Any:
        """w_k of a client that went this way."""
        alike = cosines(way, hub.models)
        alpha = at(self.alpha, hub.t)
        return simplex.weights(-alike, hub.known, sizes=hub.counts, alpha=alpha)

    def mixture(self, hub: Memory, way: Vector) -> Vector:
        return self.start + mixed(self.weights(hub, way), hub.models)  # type: ignore[no-any-return]

    def broadcast(self, hub: Memory, client: Any) -> Vector:
        return self.mixture(hub, hub.row(client))

    def welcome(self, hub: Memory, received: Vector, sent: Vector) -> Vector:
        return self.mixture(hub, sent)

    def reference(self, received: Vector, message: Vector) -> Vector:
        return received - self.start

    def client_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def local(self, received: Vector, state: Trained, objective: Objective) -> Step:
        lam = at(self.lam, objective.t)

        def gradient(x: Vector, i: Any) -> Vector:
            return objective.gradient(x, objective.batch(i)) - lam * towards(x, received)

        x, kept = self.descend(received, state.optimizer, objective, gradient)
        return Step(x - self.start, Trained(x, kept), self.steps(objective))

    def models(self, received: Vector, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": state.x}
