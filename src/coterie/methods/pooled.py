"""Global: one model on everybody's data in one place.

A reference, not a federation: the data moves.
"""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.methods.base import Cohort, LocalSGD, Method, Step, method
from coterie.models.objective import Objective


@method("global", title="Global", paper="(baseline)")
class Global(LocalSGD):
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

    exchange: ClassVar[str] = "pooled"
    views: ClassVar[tuple[str, ...]] = ("global",)

    def batches(self, cohort: int) -> int:
        """How many mini-batches of the run one step takes together."""
        return 1 if self.batch == "single" else cohort

    def hub_init(self, template: Vector) -> Vector:
        return template

    def local(self, received: Vector, memory: Any, objective: Objective) -> Step:
        w, gradients = self.sgd(received, objective)
        return Step(w, (), gradients)

    def merge(self, hub: Vector, messages: Vector, cohort: Cohort, t: Any) -> Vector:
        return messages.map(lambda leaf: leaf[0])

    def models(self, received: Vector, memory: Any, objective: Objective) -> dict[str, Vector]:
        return {"global": received}


def batches_per_step(method: Method, cohort: int) -> int:
    """How many mini-batches one step looks at: one, but those of a cohort where data is pooled,
    unless the method says otherwise.
    """
    if isinstance(method, Global):
        return method.batches(cohort)
    return cohort if method.exchange == "pooled" else 1
