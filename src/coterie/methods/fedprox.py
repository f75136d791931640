"""FedProx: FedAvg whose clients are held near the model they were sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Condition, Descent, Step, method
from coterie.methods.conditions import rate
from coterie.methods.fedavg import FedAvg
from coterie.models.objective import Objective


def held(w: Vector, strength: Any, objective: Objective) -> Callable[[Vector, Any], Vector]:
    """The gradient of f + (strength/2)‖x − w‖² on the batch of step i."""
    return lambda x, i: objective.gradient(x, objective.batch(i)) + strength * (x - w)


@method(
    "fedprox",
    title="FedProx",
    paper="Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020",
)
class FedProx(FedAvg):
    """FedAvg with a proximal term: the local steps go down f_k plus half the squared distance to
    the received model.

    w_{k,0} = w;  w_{k,r+1} = w_{k,r} − η(∇f̃_k(w_{k,r}) + μ(w_{k,r} − w))

    Hub: w ← (1−β) w + β Σ_{k∈S} (n_k/n_S) w_{k,R}

    ============  ============
    symbol        argument
    ============  ============
    μ             prox
    η             lr
    R             local_steps, or local_epochs
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ============

    The term is (μ/2)‖w_{k,r} − w‖², with the norm squared; published code that adds ‖w_{k,r} − w‖
    without the square pulls with the same force at any distance. The paper draws clients with
    probability n_k/n and averages them alike; here cohorts are drawn uniformly for every method, so
    the samples count in the mean, as in FedAvg. With μ = 0 it is FedAvg.
    """

    lr: Number = option(0.05, "step size of local SGD", symbol="η", above=0, search=STEP)
    prox: Number = option(
        0.1,
        "how strongly the local model is held to the received one",
        symbol="μ",
        low=0,
        search=LogRange(0.001, 10),
    )

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        gradient = held(received, at(self.prox, objective.t), objective)
        w, kept = self.descend(received, state, objective, gradient)
        return Step(w, kept, self.steps(objective))

    def descents(self, template: Vector) -> list[Descent]:
        return [d._replace(more=rate(self.prox)) for d in super().descents(template)]

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.optimizer is not None:  # the condition is one on plain steps
            return []
        return [
            Condition(
                "lr·prox (stability of the local steps)",
                rate(self.lr) * rate(self.prox),
                2.0,
            )
        ]
