"""Per-FedAvg: one model that is good after a gradient step on a client's own data (MAML)."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import jax

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Step, Work, method
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.objective import Batch, Objective


@method(
    "per-fedavg",
    title="Per-FedAvg",
    paper=(
        "Fallah, Mokhtari, Ozdaglar, Personalized Federated Learning with Theoretical Guarantees: A"
        " MAML Approach, NeurIPS 2020"
    ),
)
class PerFedAvg(Averaging, LocalSGD):
    """One global model, trained to be good after a gradient step on a client's data: that step is
    the personalisation.

    min_w (1/N) Σ_k f_k(w − α∇f_k(w))

    w_{k,0} = w; R times: w̃ = w_{k,r} − α∇f̃_k(w_{k,r}; D), then w_{k,r+1} = w_{k,r} − μ g with

    g = ∇f̃_k(w̃; D')  (`order = "first-order"`), or
    g = (I − α∇²f̃_k(w_{k,r}; D'')) ∇f̃_k(w̃; D')  (`order = "hessian-vector"`)

    `order = "in-a-row"` does not go back to w_{k,r} before the second step: w_{k,r+1} = w̃ −
    μ∇f̃_k(w̃; D'). That is FedAvg with steps of size α and μ in turn, no longer Per-FedAvg; the code
    published with pFedMe did it until March 2021, so its paper's numbers have it.

    Hub: w ← (1−β) w + β · mean_{k∈S} w_{k,R}

    ============  ================================================
    symbol        argument
    ============  ================================================
    α             adapt_lr
    μ, R          lr (β in the paper), local_steps or local_epochs (τ)
    β             beta (1 in the paper)
    ============  ================================================

    Step r takes D = batch 2r, D' = batch 2r + 1 and D'' = batch 2R + r of the round. The
    Hessian-vector product is exact, a directional derivative of the gradient. It is counted as one
    gradient, though it costs about two: 2 gradients a step for the first order, 3 with it. An epoch
    is a number of steps, so it goes through the data twice or three times.

    "personal" is w after `adapt_steps` steps of size α on the client's TRAINING data (published
    code adapted on the test data that it then scored), and with `extra_step` one of size μ;
    "global" is w. The steps of an evaluation
    belong to no round and are not billed. An `optimizer` takes the steps of size μ; those of size α
    are gradient steps in any case.
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")

    adapt_lr: Number = option(
        0.05, "step size of the adaptation", symbol="α", low=0, search=LogRange(0.003, 1)
    )
    adapt_steps: int = option(
        1, "steps of the adaptation when a client's model is asked for (1 in the paper)", low=1
    )
    extra_step: bool = option(
        False,
        "adapt by one more step, of size μ, as the code published with pFedMe and lp-proj does",
    )
    order: str = option(
        "first-order",
        "the gradient through the adaptation: without second derivatives, or exact; in-a-row: both"
        " steps are kept, as in the code that was published with pFedMe",
        choices=("first-order", "hessian-vector", "in-a-row"),
    )

    def validate(self) -> None:
        super().validate()
        if self.order == "in-a-row" and self.optimizer is not None:
            raise InvalidInput(
                f"per-fedavg.order is 'in-a-row', but per-fedavg.optimizer is"
                f" {self.optimizer!r}; in a row both steps are plain: leave the optimizer out."
            )

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def meta_gradient(
        self, w: Vector, alpha: Any, objective: Objective, batches: tuple[Batch, Batch, Batch]
    ) -> Vector:
        """The gradient of f(w − α∇f(w)), with the batches D, D' and D'' for its three parts."""
        adapted = w - alpha * objective.gradient(w, batches[0])
        g = objective.gradient(adapted, batches[1])
        if self.order == "first-order":
            return g
        return g - alpha * jax.jvp(lambda v: objective.gradient(v, batches[2]), (w,), (g,))[1]

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        alpha, batch = at(self.adapt_lr, objective.t), objective.batch
        steps = self.steps(objective)

        def gradient(w: Vector, r: Any) -> Vector:
            return self.meta_gradient(
                w, alpha, objective, (batch(2 * r), batch(2 * r + 1), batch(2 * steps + r))
            )

        if self.order == "in-a-row":
            w, kept = self._in_a_row(received, alpha, objective, steps), state
        else:
            w, kept = self.descend(received, state, objective, gradient)
        return Step(w, kept, steps * self.gradients_per_step)

    def _in_a_row(self, w: Vector, alpha: Any, objective: Objective, steps: Any) -> Vector:
        sizes = (alpha, at(self.lr, objective.t))

        def both(r: Any, w: Vector) -> Vector:
            for i, size in enumerate(sizes):
                w = w - size * objective.gradient(w, objective.batch(2 * r + i))
            return w

        return cast(Vector, jax.lax.fori_loop(0, steps, both, w))

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        alpha = at(self.adapt_lr, objective.t)
        adapt = lambda i, x: x - alpha * objective.gradient(x, objective.batch(i))
        personal = jax.lax.fori_loop(0, self.adapt_steps, adapt, received)
        if self.extra_step:
            last = objective.gradient(personal, objective.batch(self.adapt_steps))
            personal = personal - at(self.lr, objective.t) * last
        return {"personal": personal, "global": received}

    @property
    def gradients_per_step(self) -> int:
        return 3 if self.order == "hessian-vector" else 2

    def work(self) -> Work:
        work, each = super().work(), self.gradients_per_step
        return work._replace(
            steps=work.steps and each * work.steps, epochs=work.epochs and each * work.epochs
        )
