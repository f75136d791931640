"""SFL: the hub passes the clients' models through a graph convolution; every client is held to its
neighbourhood's model and to the mean of all.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import Among, LinearRange, LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Condition, Step, method
from coterie.methods.conditions import rate
from coterie.methods.memory import Memory, Remembering, mixed, squared_distances
from coterie.methods.sgd import LocalSGD
from coterie.models.objective import Objective


class Near(NamedTuple):
    """What the hub sends: the model of the client's neighbourhood, and that of all."""

    u: Vector
    w: Vector


def ties(apart: Any, count: int) -> Any:
    """For each row of squared distances: exp(−d/mean d) for the `count` least besides itself, and 0
    for all others; rows are made to add up to 1.

    >>> ties(jnp.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), 1).tolist()[0]
    [0.0, 1.0, 0.0]
    """
    n = len(apart)
    others = ~jnp.eye(n, dtype=bool)
    scale = jnp.sum(apart) / (n * (n - 1))
    alike = jnp.where(others, jnp.exp(-apart / jnp.where(scale > 0, scale, 1)), 0)
    last = -jnp.sort(-alike, axis=1)[:, min(count, n - 1) - 1][:, None]
    kept = jnp.where(alike >= last, alike, 0)
    return kept / jnp.sum(kept, 1, keepdims=True)


@method(
    "sfl",
    title="SFL",
    paper=("Chen, Long, Wu, Zhou, Jiang, Personalized Federated Learning With a Graph, IJCAI 2022"),
)
class SFL(Remembering, LocalSGD):
    """The hub mixes the models of neighbours on a client graph, as often as a graph convolution has
    layers; every client trains between what comes out for it and the mean of that.

    Hub, with the last model v_l of every client:

    Â = D⁻¹(A + I), rows add up to 1;  u_k = (1−α) v_k + α Σ_l (Â^L)_kl v_l;  w = Σ_k u_k / N

    Client k, by R SGD steps from w:  v_k ← argmin f_k(v) + (λ/2)(‖v − u_k‖² + ‖v − w‖²)

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    A             the graph of the experiment; nothing: all pairs
    L             layers (3 in the authors' code)
    α             alpha (1 in the authors' code)
    λ             lam
    ρ, structure  rho, nearest: Â ← (1−ρ)Â + ρB, where B is learnt: exp(−‖v_k − v_l‖²/mean) for
                  the nearest of each client, rows add up to 1 (SFL*)
    μ, R          lr, local_steps (or local_epochs)
    ============  ================================================================================

    The authors' code adds distances without the square, with the weight 0.3, to the loss of a batch
    of samples that is summed and not averaged; it mixes only some layers of its network; and its
    B comes from an encoder with random embeddings that is fitted to the models' distances, so that
    those far apart are tied. Here near models are. Like there, who was not sampled counts with its
    last model, and who was never sampled with the model that all begin with.

    2d numbers come down, d go up. A newcomer has no place in the graph: it hears w twice.
    "personal" is u_k, as in the authors' code; with A complete it is w for all.
    """

    couples: ClassVar[bool] = True
    begins_from_received: ClassVar[bool] = True

    lam: Number = option(
        0.1, "how strongly v_k is held to u_k and w", symbol="λ", low=0, search=LogRange(0.001, 10)
    )
    alpha: Number = option(
        1.0, "how much of a model comes from the graph", symbol="α", low=0, high=1
    )
    layers: int = option(1, "steps over the graph", symbol="L", low=1, search=Among((1, 2, 3)))
    rho: Number = option(
        0.0,
        "how much of the graph is learnt from the models",
        symbol="ρ",
        low=0,
        high=1,
        search=LinearRange(0.0, 1.0),
    )
    nearest: int = option(5, "how many others the learnt part ties each client to", low=1)
    relations: Any = hidden()

    def over(self, graph: Any) -> Self:
        with_self = graph + jnp.eye(len(graph), dtype=graph.dtype)
        return dataclasses.replace(self, relations=with_self / with_self.sum(1, keepdims=True))

    def tied(self, hub: Memory) -> Any:
        """Â."""
        n, rho = len(hub.counts), at(self.rho, hub.t)
        if n == 1:
            return self.relations
        apart = jax.vmap(lambda v: squared_distances(v, hub.models))(hub.models)
        return (1 - rho) * self.relations + rho * ties(apart, self.nearest)

    def mixture(self, hub: Memory, shares: Any) -> Vector:
        """Σ_k shares_k u_k."""
        along, alpha = shares, at(self.alpha, hub.t)
        tied = self.tied(hub)
        for _ in range(self.layers):
            along = along @ tied
        return mixed((1 - alpha) * shares + alpha * along, hub.models)

    def everybody(self, hub: Memory) -> Vector:
        """w."""
        n = len(hub.counts)
        return self.mixture(hub, jnp.full(n, 1 / n, hub.counts.dtype))

    def broadcast(self, hub: Memory, client: Any) -> Near:
        me = (jnp.arange(len(hub.counts)) == client).astype(hub.counts.dtype)
        return Near(self.mixture(hub, me), self.everybody(hub))

    def welcome(self, hub: Memory, received: Near, sent: Vector) -> Near:
        return Near(received.w, received.w)

    def reference(self, received: Near, message: Vector) -> Vector:
        return received.w

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Near, state: Any, objective: Objective) -> Step:
        lam = at(self.lam, objective.t)

        def gradient(v: Vector, i: Any) -> Vector:
            pull = (v - received.u) + (v - received.w)
            return objective.gradient(v, objective.batch(i)) + lam * pull  # type: ignore[no-any-return]

        v, kept = self.descend(received.w, state, objective, gradient)
        return Step(v, kept, self.steps(objective))

    def models(self, received: Near, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"personal": received.u}

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.optimizer is not None:  # the condition is one on plain steps
            return []
        text = "2·lr·lam (stability of the local steps)"
        return [Condition(text, 2 * rate(self.lr) * rate(self.lam), 2.0)]
