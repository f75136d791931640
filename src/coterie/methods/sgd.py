"""SGD, or another optimiser's steps, as the local work of a method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import STEP, Among
from coterie.core.vector import Vector
from coterie.methods.base import Descent, Method, Work
from coterie.methods.conditions import rate
from coterie.methods.optimizers import (
    OPTIMIZERS,
    GradientTransformation,
    Optimizer,
    read_optimizer,
)
from coterie.models.objective import Objective


class Trained(NamedTuple):
    """What a client keeps of a model that it trains: the model, and its optimiser's state (() where
    that is fresh every round).
    """

    x: Vector
    optimizer: Any = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSGD(Method):
    """Shared by methods whose local work is SGD: R steps, or R epochs over the client's data, with
    step μ.

    x ← x − μ·u(g), where u is what the optimiser makes of the gradient g: by default g itself.
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
    optimizer: Optimizer | GradientTransformation | str | dict[str, Any] | None = option(
        None,
        "what makes local steps of gradients; nothing: plain SGD",
        choices=tuple(OPTIMIZERS),
        read=read_optimizer,
    )
    optimizer_state: str = option(
        "fresh",
        "the optimiser's state (momentum, …): fresh in every round, or kept by each client from"
        " round to round",
        choices=("fresh", "kept"),
    )

    def unused(self) -> dict[str, str]:
        mine = {}
        if self.local_epochs is not None:
            mine["local_steps"] = f"{self.name}.local_epochs is {self.local_epochs}"
        if self.optimizer is None:
            mine["optimizer_state"] = f"{self.name}.optimizer is plain SGD, which has none"
        return {**super().unused(), **mine}

    @property
    def R(self) -> int:
        return self.local_epochs or self.local_steps

    def descents(self, template: Any) -> list[Descent]:
        return [Descent("lr", rate(self.lr))] if self.optimizer is None else []

    def work(self) -> Work:
        return Work(
            None if self.local_epochs else self.local_steps,
            self.local_epochs,
            self.lr,
            "sampled",
            self.optimizer,
            self.optimizer_state,
        )

    def steps(self, objective: Objective) -> Any:
        """The local steps of a client in this round; with epochs they differ from client to
        client.
        """
        return self.counted(self.R, objective)

    def counted(self, times: int, objective: Objective) -> Any:
        """So many steps, or epochs, a round as the steps of this one."""
        times = times * self.span(objective.t)
        return times * objective.steps_per_epoch if self.local_epochs else times

    # -- the optimiser -----------------------------------------------------------------------------

    @property
    def rule(self) -> Optimizer | None:
        """The optimiser; None: plain steps."""
        return cast(Optimizer | None, self.optimizer)

    def opened(self, x: Any) -> Any:
        """What a client keeps of its optimiser for the model x before the first round: its state,
        or () where that is fresh every round.
        """
        if self.rule is None:
            return ()
        self.rule.check(x)
        return self.rule.init(x) if self.optimizer_state == "kept" else ()

    def begun(self, kept: Any, x: Any) -> Any:
        """The optimiser's state at the beginning of a round."""
        if self.rule is None:
            return ()
        return kept if self.optimizer_state == "kept" else self.rule.init(x)

    def ended(self, state: Any) -> Any:
        """What is kept of it at the end."""
        return state if self.optimizer_state == "kept" else ()

    def step(self, x: Any, gradient: Any, state: Any, lr: Any) -> tuple[Any, Any]:
        """x − lr·u and the optimiser's state, for one gradient."""
        if self.rule is None:
            return x - lr * gradient, state
        u, state = self.rule.direction(gradient, state, x)
        return x - lr * u, state

    def descend(
        self,
        x: Any,
        kept: Any,
        objective: Objective,
        gradient: Callable[[Any, Any], Any] | None = None,
        *,
        lr: Any = None,
        first: Any = 0,
        last: Any = None,
    ) -> tuple[Any, Any]:
        """Steps `first` … `last` − 1 of a round from x: by default all R, along the objective.

        `gradient(x, i)` is the gradient of step i, `kept` what the client keeps of its optimiser.
        Returns the model and what it keeps then.
        """
        lr = at(self.lr, objective.t) if lr is None else lr
        last = self.steps(objective) if last is None else last
        along = gradient or (lambda x, i: objective.gradient(x, objective.batch(i)))
        one = lambda i, now: self.step(now[0], along(now[0], i), now[1], lr)
        x, state = jax.lax.fori_loop(first, last, one, (x, self.begun(kept, x)))
        return x, self.ended(state)

    def sgd(self, x: Any, objective: Objective) -> tuple[Any, Any]:
        """The R steps or epochs from x; returns the model and the number of gradients.

        For methods that keep nothing of the optimiser; `descend` is for those that do.
        """
        if self.optimizer_state == "kept":
            raise InvalidInput(
                f"{self.name}.optimizer_state is 'kept', but this method has no room for it; it"
                " must be 'fresh'."
            )
        return self.descend(x, (), objective)[0], self.steps(objective)
