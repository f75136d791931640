"""Local: every client trains alone. The yardstick of every comparison, at equal gradient steps."""

from __future__ import annotations

from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.methods.base import Method, Step, Work, method, who_trains
from coterie.methods.sgd import LocalSGD, Trained
from coterie.models.objective import Objective


@method("local", title="Local", paper="(baseline)")
class Local(LocalSGD):
    """Each client trains its own model on its own data; nothing is sent.

    x_k ← x_k − μ ∇f̃_k(x_k), R times a round.

    ============  ============
    symbol        argument
    ============  ============
    μ             lr
    R             local_steps, or local_epochs
    ============  ============

    In a comparison Local gets exactly the gradient steps, the step size, the optimiser and the
    participation (`trains`) of the method it stands beside; the published lp-proj code gives its
    own method R·K steps a round and Local one.
    """

    trains: str = who_trains("sampled", "the sampled clients or all")

    def client_init(self, template: Vector) -> Trained:
        return Trained(template, self.opened(template))

    def local(self, received: Any, state: Trained, objective: Objective) -> Step:
        trained = Trained(*self.descend(*state, objective))
        return Step((), trained, self.steps(objective))

    def models(self, received: Any, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": state.x}

    def work(self) -> Work:
        return super().work()._replace(trains=self.trains)


def equal_compute(other: Method) -> Local:
    """Local with the gradient steps, step size, optimiser, penalty and participation of another
    method.
    """
    if (edges := getattr(other, "edges", None)) is not None:
        raise InvalidInput(
            f"{other.name}.edges is {edges}, but Local cannot train just the ends of edges, so that"
            " there is nothing to compare with; leave edges out."
        )
    work = other.work()
    return Local().replace(
        lr=Local().lr if work.lr is None else work.lr,
        local_steps=work.steps or 1,
        local_epochs=work.epochs,
        trains=work.trains,
        optimizer=work.optimizer,
        optimizer_state=work.optimizer_state,
        l2=other.l2,
    )
