"""Plain SGD as the local work of a method."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, Among
from coterie.methods.base import Method, Work
from coterie.models.objective import Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSGD(Method):
    """Shared by methods whose local work is plain SGD: R steps, or R epochs over the client's data,
    with step μ.
    """

    lr: Number = option(0.05, "step size of local SGD", symbol="μ", above=0, search=STEP)
    local_steps: int = option(
        20, "local steps per round", symbol="R", low=1, search=Among((5, 20, 50))
    )
    local_epochs: int | None = option(
        None,
        "count R in epochs over the client's data instead of steps (the published FedU code)",
        low=1,
    )

    def unused(self) -> dict[str, str]:
        reason = f"{self.name}.local_epochs is {self.local_epochs}"
        mine = {} if self.local_epochs is None else {"local_steps": reason}
        return {**super().unused(), **mine}

    @property
    def R(self) -> int:
        return self.local_epochs or self.local_steps

    def work(self) -> Work:
        return Work(
            None if self.local_epochs else self.local_steps, self.local_epochs, self.lr, "sampled"
        )

    def steps(self, objective: Objective) -> Any:
        """The local steps of a client in this round; with epochs they differ from client to
        client.
        """
        return (
            self.local_epochs * objective.steps_per_epoch if self.local_epochs else self.local_steps
        )

    def sgd(self, x: Any, objective: Objective) -> tuple[Any, Any]:
        """x ← x − μ∇f̃(x) for R steps or epochs; returns the model and the number of gradients."""
        lr = at(self.lr, objective.t)
        steps = self.steps(objective)
        step = lambda i, x: x - lr * objective.gradient(x, objective.batch(i))
        return jax.lax.fori_loop(0, steps, step, x), steps
