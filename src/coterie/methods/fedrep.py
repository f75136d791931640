"""FedPer and FedRep: a shared representation below, a head for every client above."""

from __future__ import annotations

import jax

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

    def local(self, received: Vector, state: Vector, objective: Objective) -> Step:
        x, gradients = self.sgd(join(received, state), objective)
        return Step(like(received, x), like(state, x), gradients)


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

    def local(self, received: Vector, state: Vector, objective: Objective) -> Step:
        lr = at(self.lr, objective.t)
        head_lr = lr if self.head_lr is None else at(self.head_lr, objective.t)
        unit = objective.steps_per_epoch if self.local_epochs else 1
        first, total = self.head_steps * unit, (self.head_steps + self.R) * unit

        def head_step(i: int, head: Vector) -> Vector:
            return head - head_lr * like(
                head, objective.gradient(join(received, head), objective.batch(i))
            )

        head = jax.lax.fori_loop(0, first, head_step, state)

        def body_step(i: int, body: Vector) -> Vector:
            return body - lr * like(body, objective.gradient(join(body, head), objective.batch(i)))

        return Step(jax.lax.fori_loop(first, total, body_step, received), head, total)

    def work(self) -> Work:
        count = self.head_steps + self.R
        return Work(
            None if self.local_epochs else count,
            count if self.local_epochs else None,
            self.lr,
            "sampled",
        )
