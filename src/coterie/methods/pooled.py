"""Global: one model on everybody's data in one place.

A reference, not a federation: the data moves.
"""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.methods.base import PooledMethod, Step, method
from coterie.methods.sgd import LocalSGD, Trained
from coterie.models.objective import Objective


@method("global", title="Global", paper="(baseline)")
class Global(PooledMethod, LocalSGD):
    """One model trained by SGD on the data of all clients pooled in one place (centralised).

    w ← w − μ ∇f̃(w), R times a round, f over the pooled samples.

    By default a step's batch holds S times the batch size B, so that a round looks at as many
    samples as a cohort of S clients does. With `batch = "single"` it holds B: that is the papers'
    Global (B = 20 in FedU's tables, R counted in epochs over the pooled data). The ledger bills
    every client's training data once, in the first round: that is what pooling costs.

    ============  ============
    symbol        argument
    ============  ============
    μ             lr
    R             local_steps, or local_epochs (over the pooled data)
    ============  ============
    """

    batch: str = option(
        "cohort",
        "what a step looks at: a mini-batch for every member of a cohort together, or a single one",
        choices=("cohort", "single"),
    )

    views: ClassVar[tuple[str, ...]] = ("global",)

    def batches(self, cohort: int) -> int:
        return 1 if self.batch == "single" else cohort

    def hub_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def local(self, received: Trained, state: Any, objective: Objective) -> Step:
        trained = Trained(*self.descend(*received, objective))
        return Step(trained, (), self.steps(objective))

    def models(self, received: Trained, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"global": received.x}
