"""lp-proj: personalisation in a shared random subspace."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, LogRange
from coterie.core.vector import Vector
from coterie.coupling import penalty
from coterie.methods import inner
from coterie.methods.base import Condition, Descent, Step, Work, method, who_trains
from coterie.methods.conditions import hub_gain, rate
from coterie.methods.inner import InnerProblem
from coterie.methods.star import Averaging
from coterie.methods.subspace import Subspace
from coterie.models.objective import Objective

PAPER = (
    "Han, Lin, Li, Zhang, A Random Projection Approach to Personalized Federated Learning: "
    "Enhancing Communication Efficiency, Robustness, and Fairness, JMLR 25"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LpProjBase(InnerProblem, Subspace, Averaging):
    """Shared by lp-proj for any p and its two named cases."""

    strength: ClassVar[str] = "lam"

    p: float = option(2.0, "exponent of the penalty", symbol="p", low=1, static=True)
    lam: Number = option(
        1.0, "how strongly P x_k is held to w̃", symbol="λ", low=0, search=LogRange(0.01, 10)
    )
    lr: Number = option(0.1, "step size of w̃", symbol="η", above=0, search=STEP)
    personal_lr: Number = option(0.05, "step size of x", above=0, search=STEP)
    local_rounds: int = option(5, "mini-batches (and steps of w̃) per round", symbol="R", low=1)
    inner_steps: int = option(
        20,
        "gradient steps on x per mini-batch; the cap when `tolerance` is given",
        symbol="K",
        low=1,
    )
    tolerance: Number | None = option(None, "stop the inner steps at ‖∇h‖² ≤ ν", symbol="ν", low=0)
    trains: str = who_trains("all", "all clients (the paper) or only the sampled")

    def hub_init(self, template: Vector) -> Any:
        return self.steered(self.drawn(template))

    def client_init(self, template: Vector) -> Vector:
        return template

    def local(self, received: Any, state: Vector, objective: Objective) -> Step:
        t = objective.t
        lam, lr, personal_lr = at(self.lam, t), at(self.lr, t), at(self.personal_lr, t)
        tolerance = None if self.tolerance is None else at(self.tolerance, t)

        def local_round(state: tuple[Any, Vector], r: Any) -> tuple[tuple[Any, Vector], Any]:
            w, x = state
            batch = objective.batch(r)

            def gradient(x: Vector) -> Vector:
                inside = penalty.gradient(self.difference(x, w, self.p), self.p)
                return objective.gradient(x, batch) + self.drawn.back(lam * inside, x)

            x, gradients = inner.descend(
                gradient,
                x,
                personal_lr,
                self.inner_steps,
                tolerance,
                momentum=self.momentum_at(t),
            )
            w = w + lr * lam * penalty.gradient(self.difference(x, w, self.p), self.p)
            return (w, x), gradients

        count = self.local_rounds * self.span(objective.t)
        (w, x), gradients = inner.rounds(local_round, (received, state), count)
        return Step(w, x, gradients)

    def models(self, received: Any, state: Vector, objective: Objective) -> dict[str, Vector]:
        return {"personal": state}

    def work(self) -> Work:
        return Work(self.local_rounds * self.inner_steps, None, self.personal_lr, self.trains)

    def descents(self, template: Vector) -> list[Descent]:
        more = rate(self.lam) * self.squared_norm_of_p(template) if self.p == 2 else 0.0
        return [Descent("personal_lr", rate(self.personal_lr), more, self.steepest())]

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.p != 2:
            return []
        lam = rate(self.lam)
        stiff = rate(self.personal_lr) * lam * self.squared_norm_of_p(template)
        outer, R = rate(self.lr) * lam, self.local_rounds * self.longest
        return [
            Condition("personal_lr·λ·‖P‖² (stability of the inner steps)", stiff, self.steepest()),
            Condition("lr·λ (stability of the steps of w̃)", outer, 2.0),
            *([] if self.server_optimizer else [hub_gain(self.beta, outer, R)]),
        ]


@method("lp-proj", title="lp-proj", paper=PAPER)
class LpProj(LpProjBase):
    """A model x_k for every client, held near a shared w̃ only inside a random subspace: dsub
    numbers per message.

    min_w̃ (1/N) Σ_k min_x f_k(x) + (λ/p)‖w̃ − P x‖_p^p,   w̃ ∈ R^dsub, P ∈ R^{dsub×d}

    P is random, fixed, and shared by its seed. Per round (Alg. 1): w̃_{k,0} = w̃; R times: draw one
    mini-batch, take K gradient steps (or until ‖∇h‖² ≤ ν) on

    h(x) = f(x; batch) + (λ/p)‖w̃_{k,r} − P x‖_p^p

    w̃_{k,r+1} = w̃_{k,r} − ηλ ψ_p(w̃_{k,r} − P x),  ψ_p(v) = sign(v)|v|^{p−1}

    Hub: w̃ ← (1−β) w̃ + β · mean_{k∈S} w̃_{k,R}

    ==============  ================================================
    symbol          argument
    ==============  ================================================
    λ, p            lam, p
    η               lr
    step on x       personal_lr
    R, K, ν         local_rounds, inner_steps, tolerance
    P, dsub         projection, dsub, blocks, projection_seed
    β               beta
    ==============  ================================================

    x_k stays on the client for ever and is warm-started from round to round. The published code
    takes its 20 inner steps on fresh batches, not on one; here a batch serves all K steps, as in
    Alg. 1. With P = I and p = 2 it is pFedMe (with `inner_start = "last"`). The inner steps may be
    Nesterov's (`inner_solver = "nesterov"`); outside the subspace h is only as convex as f, so the
    momentum grows with the steps on a batch, i/(i + 3), unless it is given.
    """


@method("lp-proj-1", title="lp-proj-1", paper=PAPER)
class LpProj1(LpProjBase):
    """lp-proj with p = 1: the penalty is the L1 norm in the subspace, its gradient a sign, so one
    client moves w̃ only so far (robust).
    """

    p: float = option(
        1.0, "exponent of the penalty (fixed)", symbol="p", low=1, high=1, static=True
    )


@method("lp-proj-2", title="lp-proj-2", paper=PAPER)
class LpProj2(LpProjBase):
    """lp-proj with p = 2: the penalty is half the squared distance in the subspace."""

    p: float = option(
        2.0, "exponent of the penalty (fixed)", symbol="p", low=2, high=2, static=True
    )
