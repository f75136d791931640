"""Global: one model on everybody's data in one place.

A reference, not a federation: the data moves.
"""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.core.vector import Vector
from coterie.methods.base import PooledMethod, Step, method
from coterie.methods.sgd import LocalSGD
from coterie.models.objective import Objective


@method("global", title="Global", paper="(baseline)")
class Global(PooledMethod, LocalSGD):
    """One model trained by SGD on the data of all clients pooled in one place (centralised).

    w ← w − μ ∇f̃(w), R times a round, f over the pooled samples.

    A step's batch holds S times the batch size, so that a round looks at as many samples as a
    cohort of S clients does. The ledger bills every client's training data once, in the first
    round: that is what pooling costs.

    ============  ============
    symbol        argument
    ============  ============
    μ             lr
    R             local_steps, or local_epochs (over the pooled data)
    ============  ============
    """

    views: ClassVar[tuple[str, ...]] = ("global",)

    def hub_init(self, template: Vector) -> Vector:
        return template

    def local(self, received: Vector, memory: Any, objective: Objective) -> Step:
        w, gradients = self.sgd(received, objective)
        return Step(w, (), gradients)

    def models(self, received: Vector, memory: Any, objective: Objective) -> dict[str, Vector]:
        return {"global": received}
