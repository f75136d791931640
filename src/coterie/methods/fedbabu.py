"""FedBABU: the body is learnt together under a head that nobody trains; fine-tuning comes last."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import Among, LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.split import SplitModel, join, like
from coterie.models.objective import Objective


@method(
    "fedbabu",
    title="FedBABU",
    paper=(
        "Oh, Kim, Yun, FedBABU: Toward Enhanced Representation for Federated Image Classification,"
        " ICLR 2022"
    ),
)
class FedBABU(SplitModel):
    """Federated training moves the body only, under a random head h⁰ that all share and nobody
    trains; a client's model is the body and h⁰, fine-tuned on its own data.

    min over φ of Σ_k (n_k/n) f_k(φ, h⁰)

    φ_{k,0} = φ;  R times: φ_{k,r+1} = φ_{k,r} − μ ∇_φ f̃_k(φ_{k,r}, h⁰)

    Hub: φ ← (1−β) φ + β Σ_{k∈S} (n_k/n_S) φ_{k,R}

    A client's model: x_k = (φ, h⁰), then F times x_k ← x_k − α ∇f̃_k(x_k)

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    φ             the layers named by `shared` (default: all but the last)
    h⁰            all other layers, as the run's seed draws them
    μ, R          lr, local_steps (or local_epochs)
    α, F          adapt_lr, adapt_steps
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ==============================================================================

    "personal" is the fine-tuned model, "global" is (φ, h⁰), which the paper evaluates too. h⁰
    follows from the seed, so it is never sent. Fine-tuning takes the client's training data and
    moves the whole model, or only one part of it (`adapts`). It is done whenever a model is asked
    for, belongs to no round and is not billed, nor is it in `work`; with F = 0 there is none. An
    `optimizer` takes the steps of size μ; those of size α are gradient steps in any case.
    With `local_epochs` F counts epochs too, as the paper does. With `shared = "*"`, and for a model
    with a single array, the whole model is shared: FedAvg with fine-tuning. Where h⁰ is 0, as an
    intercept often is, the body learns all the same; but a head of zero weights would stop all
    gradients of the body, so name other layers (`shared`) if your model begins with one.
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")

    adapt_lr: Number = option(
        0.05, "step size of fine-tuning", symbol="α", low=0, search=LogRange(0.003, 1)
    )
    adapt_steps: int = option(
        20,
        "steps of fine-tuning when a client's model is asked for (epochs when `local_epochs` is"
        " given)",
        symbol="F",
        low=0,
        search=Among((5, 20, 50)),
    )
    adapts: str = option(
        "all", "what fine-tuning moves: all layers, or one part", choices=("all", "head", "body")
    )
    head: Any = hidden()

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, head=self.parts(template)[1])

    def client_init(self, template: Vector) -> Any:
        return self.opened(self.parts(template)[0])

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        def along_body(body: Vector, i: Any) -> Vector:
            return like(body, objective.gradient(join(body, self.head), objective.batch(i)))

        body, kept = self.descend(received, state, objective, along_body)
        return Step(body, kept, self.steps(objective))

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        start, moved = join(received, self.head), self.moved(received)
        alpha = at(self.adapt_lr, objective.t)
        unit = objective.steps_per_epoch if self.local_epochs else 1

        def step(i: Any, x: Vector) -> Vector:
            own = x if moved is None else like(moved, x)
            g = objective.gradient(x, objective.batch(i))
            return join(own - alpha * like(own, g), x)

        return {
            "personal": jax.lax.fori_loop(0, self.adapt_steps * unit, step, start)
            if self.adapt_steps
            else start,
            "global": start,
        }

    def moved(self, body: Vector) -> Vector | None:
        """A part with what fine-tuning moves; None: all."""
        return {"all": None, "head": self.head, "body": body}[self.adapts]
