"""Ditto: a model of its own for every client beside FedAvg's, held near it."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Condition, Descent, Step, Work, method, who_trains
from coterie.methods.conditions import rate
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedprox import held
from coterie.models.objective import Objective


class DittoState(NamedTuple):
    """What a client keeps: x_k, and its optimiser's states (() where they are fresh every round) of
    the global and of the personal task.
    """

    x: Vector
    shared: Any = ()
    personal: Any = ()


@method(
    "ditto",
    title="Ditto",
    paper=(
        "Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through Personalization,"
        " ICML 2021"
    ),
)
class Ditto(FedAvg):
    """FedAvg's global model, and for every client a model x_k held near it by (λ/2)‖x_k − w‖².

    min_{x_k} f_k(x_k) + (λ/2)‖x_k − w*‖²,  w* = what FedAvg finds

    Per round, on the sampled clients (or on all: `trains`): R SGD steps on f_k from the received w,
    whose result goes to the hub and is averaged as in FedAvg; and P steps towards the received w,

    x_k ← x_k − η(∇f̃_k(x_k) + λ(x_k − w))

    x_k stays on the client.

    ============  ================================================
    symbol        argument
    ============  ================================================
    λ             lam
    μ, R          lr, local_steps (or local_epochs): the global task
    η, P          personal_lr, personal_steps: the personal task
    β, n_k/n_S    beta, weighting, as in FedAvg
    ============  ================================================

    The global task has no regulariser and never sees x_k, so w is FedAvg's to the bit; code that
    trains it with the λ-term is another method. x_k is pulled to the w that came in, not to the one
    that leaves. Step i of both tasks takes the batch i of the round. `work` is R + P, what a client
    computes; with λ = 0 x_k is Local with P steps only, because the R others go into w.
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")

    lam: Number = option(
        1.0, "how strongly x_k is held to w", symbol="λ", low=0, search=LogRange(0.01, 10)
    )
    lr: Number = option(0.05, "step size of the global task", symbol="μ", above=0, search=STEP)
    personal_lr: Number = option(0.05, "step size of x_k", symbol="η", above=0, search=STEP)
    personal_steps: int | None = option(
        None,
        "steps on x_k per round, or epochs where local_epochs is given; nothing: as many as the"
        " global task",
        symbol="P",
        low=1,
    )
    trains: str = who_trains(
        "sampled",
        "the sampled clients, or all, of whom the sampled send (the code published with lp-proj)",
    )

    @property
    def P(self) -> int:
        return self.personal_steps or self.R

    def client_init(self, template: Vector) -> DittoState:
        return DittoState(template, self.opened(template), self.opened(template))

    def local(self, received: Vector, state: DittoState, objective: Objective) -> Step:
        t = objective.t
        w, shared = self.descend(received, state.shared, objective)
        steps = self.counted(self.P, objective)
        gradient = held(received, at(self.lam, t), objective)
        x, personal = self.descend(
            state.x, state.personal, objective, gradient, lr=at(self.personal_lr, t), last=steps
        )
        return Step(w, DittoState(x, shared, personal), self.steps(objective) + steps)

    def models(
        self, received: Vector, state: DittoState, objective: Objective
    ) -> dict[str, Vector]:
        return {"personal": state.x, "global": received}

    def work(self) -> Work:
        total = self.R + self.P
        return (
            super()
            .work()
            ._replace(
                steps=None if self.local_epochs else total,
                epochs=total if self.local_epochs else None,
                lr=self.personal_lr,
                trains=self.trains,
            )
        )

    def descents(self, template: Vector) -> list[Descent]:
        shared = super().descents(template)
        own = Descent("personal_lr", rate(self.personal_lr), rate(self.lam))
        return [*shared, own] if shared else []

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.optimizer is not None:  # the condition is one on plain steps
            return []
        return [
            Condition(
                "personal_lr·λ (stability of the personal steps)",
                rate(self.personal_lr) * rate(self.lam),
                2.0,
            )
        ]
