"""pFedMe: personalisation by Moreau envelopes."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, LinearRange, LogRange
from coterie.core.vector import Vector
from coterie.methods import inner
from coterie.methods.base import Condition, Descent, Step, Work, method, who_trains
from coterie.methods.conditions import hub_gain, rate
from coterie.methods.inner import InnerProblem
from coterie.methods.star import Averaging
from coterie.models.objective import Objective


class PFedMeState(NamedTuple):
    """What a client keeps: θ_k, and w_{k,R} if it is to be evaluated."""

    theta: Vector
    w: Vector | None


@method(
    "pfedme",
    title="pFedMe",
    paper=(
        "T. Dinh, Tran, Nguyen, Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020"
    ),
)
class PFedMe(InnerProblem, Averaging):
    """A model θ_k for every client, held near a shared w by a Moreau envelope of strength λ.

    min_w (1/N) Σ_k F_k(w),   F_k(w) = min_θ f_k(θ) + (λ/2)‖θ − w‖²

    Per round (Alg. 1): w_{k,0} = w; R times: draw one mini-batch, find θ̃ by K gradient steps (or
    until ‖∇h‖ ≤ ν) on

    h(θ) = f(θ; batch) + (λ/2)‖θ − w_{k,r}‖²

    w_{k,r+1} = w_{k,r} − ηλ(w_{k,r} − θ̃)

    Hub: w ← (1−β) w + β · mean_{k∈S} w_{k,R}

    ==============  ================================================
    symbol          argument
    ==============  ================================================
    λ               lam
    η               lr
    step on θ       personal_lr
    R, K, ν         local_rounds (or local_epochs), inner_steps, tolerance
    β               beta
    ==============  ================================================

    The inner steps are plain, or Nesterov's (`inner_solver = "nesterov"`), which the paper names
    for its K = O(√κ log(1/ν)) gradients: y = θ + m(θ − θ_before), θ ← y − personal_lr·∇h(y), anew
    for every mini-batch.

    The paper and its published code differ; each difference is an option. Who trains: all N clients
    (`trains = "all"`, the paper). The mean: uniform in the paper, by samples in the code
    (`weighting`). θ is started from w every round (`inner_start = "received"`) and warm inside it.
    The code adds 0.001·θ to the gradient (`decay`). By an aliasing slip the code reports w_{k,R} as
    the personalised model: `keep_local` evaluates that too, as "local". "personal" is θ̃_k (PM in
    the paper's tables), "global" is w (GM).
    """

    strength: ClassVar[str] = "lam"
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"inner_start": {"memory": "last"}}

    lam: Number = option(
        15.0, "how strongly θ_k is held to w", symbol="λ", low=0, search=LogRange(0.1, 30)
    )
    lr: Number = option(0.01, "step size of w", symbol="η", above=0, search=STEP)
    personal_lr: Number = option(0.05, "step size of θ", above=0, search=STEP)
    beta: Number = option(
        1.0,
        "weight of the new mean at the hub: w ← (1−β)w + β·mean",
        symbol="β",
        above=0,
        search=LinearRange(0.5, 2.0),
    )
    local_rounds: int = option(20, "mini-batches (and steps of w) per round", symbol="R", low=1)
    local_epochs: int | None = option(
        None,
        "count R in epochs over the client's data, not in mini-batches (the published FedU code)",
        low=1,
    )
    inner_steps: int = option(
        5,
        "gradient steps on θ per mini-batch; the cap when `tolerance` is given",
        symbol="K",
        low=1,
    )
    tolerance: Number | None = option(None, "stop the inner steps at ‖∇h‖ ≤ ν", symbol="ν", low=0)
    inner_start: str = option(
        "received",
        "where θ starts in a round: the received w, or the θ of the last round",
        choices=("received", "last"),
    )
    decay: Number = option(
        0.0, "added to the inner gradient as decay·θ (0.001 in the published code)", low=0
    )
    trains: str = who_trains("all", "all clients (the paper) or only the sampled")
    keep_local: bool = option(
        False, "also evaluate w_{k,R} (what the published code calls personalised)"
    )

    @property
    def R(self) -> int:
        return self.local_epochs or self.local_rounds

    def unused(self) -> dict[str, str]:
        if self.local_epochs is None:
            return super().unused()
        reason = f"{self.name}.local_epochs is {self.local_epochs}"
        return {**super().unused(), "local_rounds": reason}

    @property
    def model_views(self) -> tuple[str, ...]:
        return ("personal", "global", "local") if self.keep_local else ("personal", "global")

    @property
    def forgets(self) -> bool:
        fresh = self.inner_start == "received" and self.tolerance is None
        return self.trains_all and fresh

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> PFedMeState:
        return PFedMeState(template, template if self.keep_local else None)

    def local(self, received: Vector, state: PFedMeState, objective: Objective) -> Step:
        t = objective.t
        lam, lr, personal_lr, decay = (
            at(self.lam, t),
            at(self.lr, t),
            at(self.personal_lr, t),
            at(self.decay, t),
        )
        tolerance = None if self.tolerance is None else at(self.tolerance, t) ** 2
        momentum = self.momentum_at(t, personal_lr * (lam + decay))

        def local_round(state: tuple[Vector, Vector], r: Any) -> tuple[tuple[Vector, Vector], Any]:
            w, theta = state
            theta, gradients = inner.proximal(
                objective,
                objective.batch(r),
                theta,
                w,
                lam=lam,
                decay=decay,
                lr=personal_lr,
                steps=self.inner_steps,
                tolerance=tolerance,
                momentum=momentum,
            )
            w = w - lr * lam * (w - theta)
            return (w, theta), gradients

        start = received if self.inner_start == "received" else state.theta
        count = self.R * self.span(objective.t)
        if self.local_epochs:
            count = count * objective.steps_per_epoch
        (w, theta), gradients = inner.rounds(local_round, (received, start), count)
        return Step(w, PFedMeState(theta, w if self.keep_local else None), gradients)

    def models(
        self, received: Vector, state: PFedMeState, objective: Objective
    ) -> dict[str, Vector]:
        views = {"personal": state.theta, "global": received}
        if state.w is not None:
            views["local"] = state.w
        return views

    def work(self) -> Work:
        each, epochs = self.R * self.inner_steps, self.local_epochs is not None
        return Work(
            None if epochs else each, each if epochs else None, self.personal_lr, self.trains
        )

    def descents(self, template: Vector) -> list[Descent]:
        lr, more = rate(self.personal_lr), rate(self.lam) + rate(self.decay)
        return [Descent("personal_lr", lr, more, self.steepest(lr * more))]

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        lam = rate(self.lam)
        inner, outer = rate(self.personal_lr) * lam, rate(self.lr) * lam
        below = self.steepest(rate(self.personal_lr) * (lam + rate(self.decay)))
        R, epochs = self.R * self.longest, self.local_epochs is not None
        return [
            Condition("personal_lr·λ (stability of the inner steps)", inner, below),
            Condition("lr·λ (stability of the steps of w)", outer, 2.0),
            *([] if self.server_optimizer else [hub_gain(self.beta, outer, R, or_more=epochs)]),
        ]
