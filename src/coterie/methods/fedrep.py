"""FedPer and FedRep: a shared representation below, a head for every client above."""

from __future__ import annotations

from typing import Any, NamedTuple

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.vector import Vector
from coterie.methods.base import Step, Work, method
from coterie.methods.split import SplitModel, join, like
from coterie.models.objective import Objective


@method(
    "fedper",
    title="FedPer",
    paper="Arivazhagan et al., Federated Learning with Personalization Layers, 2019",
)
class FedPer(SplitModel):
    """All clients share the first layers, each has its own last ones; both are trained together and
    only the first are sent.

    min over φ and h_1 … h_N of Σ_k f_k(φ, h_k)

    (φ_k, h_k) start from φ and from what client k kept;  R SGD steps on both together

    Hub: φ ← (1−β) φ + β Σ_{k∈S} (n_k/n_S) φ_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    φ (W_B)       the layers named by `shared` (default: all but the last), e.g. shared = "layer0"
    h_k (W_P)     all other layers
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ==============================================================================

    The paper counts personal layers from the top (K_P = 1, 2, …) and lets all clients take part. A
    model that is a single dense layer is cut inside: its weights are shared, its intercept is
    personal; a model with a single array is shared as a whole, which is FedAvg.
    """


class FedRepState(NamedTuple):
    """What a client keeps: its head, and its optimiser's states (() where they are fresh every
    round) of the head and of the representation.
    """

    x: Vector
    head: Any = ()
    body: Any = ()


@method(
    "fedrep",
    title="FedRep",
    paper=(
        "Collins et al., Exploiting Shared Representations for Personalized Federated Learning,"
        " ICML 2021"
    ),
)
class FedRep(SplitModel):
    """FedPer's split, but each client first fits its head to the shared representation and only
    then moves the representation.

    min over φ and h_1 … h_N of Σ_k f_k(φ, h_k)

    H times: h_k ← h_k − μ_h ∇_h f̃_k(φ, h_k)
    then, from φ, R times: φ_k ← φ_k − μ ∇_φ f̃_k(φ_k, h_k)

    Hub: φ ← (1−β) φ + β Σ_{k∈S} (n_k/n_S) φ_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    φ             the layers named by `shared` (default: all but the last)
    h_k           all other layers
    H, μ_h        head_steps, head_lr (default: lr)
    R, μ          local_steps, lr
    β             beta (1 in the paper)
    n_k/n_S       weighting = "uniform" (the paper's 1/(rn)); "samples" weighs by data
    ============  ==============================================================================

    The paper takes one step on φ in its theory and epochs in its experiments; with `local_epochs`
    both loops count epochs, so `head_steps` is then a number of epochs too. Batches run on: the
    steps on φ continue where those on the head stopped.
    """

    head_steps: int = option(
        10,
        "steps on the head with the representation fixed (epochs when `local_epochs` is given)",
        symbol="H",
        low=1,
    )
    head_lr: Number | None = option(
        None, "step size of the head; nothing: that of the representation", symbol="μ_h", above=0
    )
    weighting: str = option(
        "uniform",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def client_init(self, template: Vector) -> FedRepState:  # type: ignore[override]
        body, head = self.parts(template)
        return FedRepState(head, self.opened(head), self.opened(body))

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        head_lr = at(self.lr if self.head_lr is None else self.head_lr, objective.t)
        first = self.counted(self.head_steps, objective)
        total = self.counted(self.head_steps + self.R, objective)

        def along_head(head: Vector, i: Any) -> Vector:
            return like(head, objective.gradient(join(received, head), objective.batch(i)))

        head, kept_head = self.descend(
            state.x, state.head, objective, along_head, lr=head_lr, last=first
        )

        def along_body(body: Vector, i: Any) -> Vector:
            return like(body, objective.gradient(join(body, head), objective.batch(i)))

        body, kept_body = self.descend(
            received, state.body, objective, along_body, first=first, last=total
        )
        return Step(body, FedRepState(head, kept_head, kept_body), total)

    def work(self) -> Work:
        count, epochs = self.head_steps + self.R, self.local_epochs is not None
        return (
            super()
            .work()
            ._replace(steps=None if epochs else count, epochs=count if epochs else None)
        )
