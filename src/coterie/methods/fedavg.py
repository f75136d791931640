"""FedAvg: one model for all, by averaging local SGD."""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.methods.base import Step, method
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.objective import Objective


@method(
    "fedavg",
    title="FedAvg",
    paper=(
        "McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data,"
        " AISTATS 2017"
    ),
)
class FedAvg(Averaging, LocalSGD):
    """One global model: the sampled clients start from it, take R local SGD steps, and the hub
    averages the results.

    w_{k,0} = w;  w_{k,r+1} = w_{k,r} − μ ∇f̃_k(w_{k,r});  w ← (1−β) w + β Σ_{k∈S} (n_k/n_S) w_{k,R}

    ============  ============
    symbol        argument
    ============  ============
    μ             lr
    R             local_steps, or local_epochs
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ============
    """

    views: ClassVar[tuple[str, ...]] = ("global",)

    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        w, kept = self.descend(received, state, objective)
        return Step(w, kept, self.steps(objective))

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"global": received}
