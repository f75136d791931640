"""FedAMP: every client is pulled to a mixture of the others' models in which those near it count
most.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.coupling.learnt import attention as rules
from coterie.methods.base import Condition, Step, method
from coterie.methods.conditions import rate
from coterie.methods.memory import Memory, Remembering, cosines, mixed, squared_distances
from coterie.methods.sgd import LocalSGD, Trained
from coterie.models.objective import Objective


@method(
    "fedamp",
    title="FedAMP",
    paper=("Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021"),
)
class FedAMP(Remembering, LocalSGD):
    """A model w_k for every client, drawn to the models of those that are near it already: kin find
    each other, and who is far away hardly pulls.

    min over w_1 … w_N of Σ_k f_k(w_k) + λ Σ_{k<l} A(‖w_k − w_l‖²),  A(d) = 1 − exp(−d/σ)

    Hub, with the last model of every client, a gradient step on A:

    u_k = ξ_kk w_k + Σ_{l≠k} ξ_kl w_l,  ξ_kl = α A'(‖w_k − w_l‖²),  ξ_kk = 1 − Σ_{l≠k} ξ_kl

    Client: w_k ← argmin f_k(w) + (λ/2α)‖w − u_k‖², by R steps from w_k, each one of SGD on f_k and
    then the exact step of the other term, with c = λ/α:

    w ← w − μ ∇f̃_k(w);  w ← (w + μc u_k)/(1 + μc)

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    λ, σ          lam, sigma
    α             alpha; nothing: σ/N, the largest with which no weight can be negative
    A'            attention = "distance"
    HeurFedAMP    attention = "cosine": ξ_kk = self_weight, and for the others the softmax of
                  σ cos(w_k, w_l) times 1 − ξ_kk; α then only sets c, nothing: α = 1
    μ, R          lr, local_steps (or local_epochs)
    ============  ================================================================================

    The steps start from w_k and not from u_k: that is what the last solution was, λ = 0 is then
    Local, and where the rounds stand still, w_k is a stationary point of the problem above for any
    α. The step of the quadratic term is exact because c grows with N: SGD on it would need μc < 2.
    An `optimizer` takes the steps on f_k. Code that is widely used (PFLlib) takes α = 1 and σ = 1
    for any N, with which ξ_kk falls to 2 − N where models are alike, and a term without the square.

    The paper has all clients take part. Here u_k is made of the last model that each client sent;
    who has sent nothing pulls nobody. A newcomer, whose model the hub does not know, is drawn to
    the mean of those it has heard of. "personal" is w_k.
    """

    strength: ClassVar[str] = "lam"

    lam: Number = option(
        0.1, "how strongly w_k is drawn to u_k", symbol="λ", low=0, search=LogRange(0.001, 10)
    )
    sigma: Number = option(
        1.0,
        'squared distances of about this size count as near; attention "cosine": how much more near'
        " models count",
        symbol="σ",
        above=0,
        search=LogRange(0.1, 100),
    )
    alpha: Number | None = option(
        None, "step size of the hub; nothing: σ/N, or 1 with cosines", symbol="α", above=0
    )
    attention: str = option(
        "distance",
        "what the weights go by: distances (FedAMP) or cosines (HeurFedAMP)",
        choices=("distance", "cosine"),
    )
    self_weight: Number = option(
        0.5, 'attention "cosine": the weight of w_k in u_k', symbol="ξ_kk", low=0, high=1
    )

    def unused(self) -> dict[str, str]:
        mine = {}
        if self.attention == "distance":
            mine["self_weight"] = f"{self.name}.attention is 'distance'"
        return {**super().unused(), **mine}

    def step_size(self, t: Any) -> Any:
        """α of round t; on a bound method."""
        if self.alpha is not None:
            return at(self.alpha, t)
        return at(self.sigma, t) / self.clients if self.attention == "distance" else 1.0

    def weights(self, hub: Memory, client: Any) -> Any:
        """ξ_kl of one client."""
        w, sigma = hub.row(client), at(self.sigma, hub.t)
        if self.attention == "cosine":
            return rules.heuristic(
                cosines(w, hub.models),
                hub.known,
                client,
                self_weight=at(self.self_weight, hub.t),
                sigma=sigma,
            )
        return rules.weights(
            squared_distances(w, hub.models),
            hub.known,
            client,
            alpha=self.step_size(hub.t),
            sigma=sigma,
        )

    def broadcast(self, hub: Memory, client: Any) -> Vector:
        return mixed(self.weights(hub, client), hub.models)

    def client_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def local(self, received: Vector, state: Trained, objective: Objective) -> Step:
        t, steps = objective.t, self.steps(objective)
        lr = at(self.lr, t)
        c = lr * at(self.lam, t) / self.step_size(t)
        share = c / (1.0 + c)

        def one(i: Any, now: tuple[Vector, Any]) -> tuple[Vector, Any]:
            w, kept = now
            w, kept = self.step(w, objective.gradient(w, objective.batch(i)), kept, lr)
            return w + share * (received - w), kept

        begin = (state.x, self.begun(state.optimizer, state.x))
        w, kept = jax.lax.fori_loop(0, steps, one, begin)
        return Step(w, Trained(w, self.ended(kept)), steps)

    def welcome(self, hub: Memory, received: Vector, sent: Vector) -> Vector:
        return hub.mean()

    def models(self, received: Vector, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": state.x}

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.attention != "distance" or self.alpha is None or self.clients is None:
            return []
        value = rate(self.alpha) * self.clients / rate(self.sigma)
        return [Condition("α·N/σ (stability of the hub's step)", value, 2.0)]
