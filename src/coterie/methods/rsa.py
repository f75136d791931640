"""RSA: personal models tied to the hub's by an L1 norm, so that no client can pull far."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Step, method
from coterie.methods.sgd import LocalSGD, Trained
from coterie.methods.star import Cohort, StarMethod
from coterie.models.objective import Objective


def sign(x: Vector, w: Vector) -> Vector:
    """sign(x − w) per coordinate; what is within rounding counts as 0, so that equal models are not
    torn apart by it.
    """

    def leaf(a: Any, b: Any) -> Any:
        rounding = 16 * jnp.finfo(a.dtype).eps * jnp.maximum(jnp.abs(a), jnp.abs(b))
        return jnp.where(jnp.abs(a - b) <= rounding, 0, jnp.sign(a - b))

    return x.map(leaf, w)


@method(
    "rsa",
    title="RSA",
    paper=(
        "Li, Xu, Chen, Giannakis, Ling, RSA: Byzantine-Robust Stochastic Aggregation Methods for"
        " Distributed Learning, AAAI 2019"
    ),
)
class RSA(StarMethod, LocalSGD):
    """A model x_k for every client, held near the hub's w by an L1 norm: whatever a client sends,
    it counts ±λ per coordinate.

    min Σ_k (f_k(x_k) + λ‖x_k − w‖₁) + f_0(w),   f_0(w) = (δ/2)‖w‖²

    Client, R times: x_k ← x_k − μ(∇f̃_k(x_k) + λ sign(x_k − w))

    Hub: w ← w − μ_0(δ w + λ Σ_{k∈S} sign(w − x_k))

    x_k is sent, and stays on the client for ever.

    ============  ================================================
    symbol        argument
    ============  ================================================
    λ             lam
    μ, R          lr, local_steps or local_epochs (R = 1 in the paper)
    μ_0           hub_lr (equal to lr in the paper)
    δ             hub_decay
    ============  ================================================

    The norm is L1: its subgradient, a sign, is what makes it robust. The hub takes the sum over the
    cohort, as in the paper, not the mean: a larger cohort moves w further, by up to μ_0 λ S in a
    coordinate. In the paper a client sends the x_k that it had when the round began, here the one
    after its steps, so that the hub is never a round behind. With R = 1 and δ = 0 this is lp-proj-1
    with P = I, local_rounds = inner_steps = 1 and lr = μ_0 S. For R > 1 the hub sees a sign only
    after every R-th step of a client; with exact gradients these settle into a cycle and do not
    give the mean of all signs, so that w stops short of the solution (seen for R = 7 and 20; R = 1
    reaches it).
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")
    strength: ClassVar[str] = "lam"

    lam: Number = option(
        0.05,
        "how strongly x_k and w are pulled together",
        symbol="λ",
        low=0,
        search=LogRange(0.001, 1),
    )
    hub_lr: Number = option(0.01, "step size of w", symbol="μ₀", above=0, search=STEP)
    hub_decay: Number = option(
        0.0, "strength of the hub's own regulariser (δ/2)‖w‖²", symbol="δ", low=0
    )

    def hub_init(self, template: Vector) -> Vector:
        return template

    def client_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def local(self, received: Vector, state: Trained, objective: Objective) -> Step:
        lam = at(self.lam, objective.t)

        def gradient(x: Vector, i: Any) -> Vector:
            return objective.gradient(x, objective.batch(i)) + lam * sign(x, received)

        trained = Trained(*self.descend(*state, objective, gradient))
        return Step(trained.x, trained, self.steps(objective))

    def merge(self, hub: Vector, messages: Vector, cohort: Cohort, t: Any) -> Vector:
        pull = jax.vmap(lambda x: sign(hub, x))(messages).map(lambda leaf: leaf.sum(0))
        return hub - at(self.hub_lr, t) * (at(self.hub_decay, t) * hub + at(self.lam, t) * pull)

    def models(self, received: Vector, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": state.x, "global": received}
