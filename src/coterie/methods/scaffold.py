"""SCAFFOLD: FedAvg with control variates against the drift of the clients."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import at
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging, Cohort
from coterie.models.objective import Objective


class ScaffoldState(NamedTuple):
    """What a client keeps: c_k, and its optimiser's state (() where that is fresh every round)."""

    control: Vector
    optimizer: Any = ()


class Pair(NamedTuple):
    """What is sent both ways: down x and c, up y_k and the change of c_k. The hub keeps x and c (x
    with a server optimiser's state, where there is one).
    """

    model: Any
    control: Vector


@method(
    "scaffold",
    title="SCAFFOLD",
    paper=(
        "Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML"
        " 2020"
    ),
)
class Scaffold(Averaging, LocalSGD):
    """One global model; every client corrects its steps by what it knows of its own and of
    everybody's mean gradient.

    y_{k,0} = x;  y_{k,r+1} = y_{k,r} − μ(∇f̃_k(y_{k,r}) − c_k + c)

    c_k⁺ = c_k − c + (x − y_{k,R})/(Rμ)  (option II, `control = "difference"`), or
    c_k⁺ = ∇f̃_k(x)  (option I, `control = "gradient"`)

    Hub: x ← x + β(mean_{k∈S} y_{k,R} − x);  c ← c + (S/N) · mean_{k∈S}(c_k⁺ − c_k)

    ============  ================================================
    symbol        argument
    ============  ================================================
    μ             lr (η_l in the paper)
    R             local_steps, or local_epochs (K in the paper)
    β             beta (η_g in the paper)
    ============  ================================================

    There is a control variate for every leaf of the model, biases and all; published code that
    leaves some out drifts in those. All start at 0, a client keeps c_k from one of its rounds to
    the next, and messages hold 2d numbers each way. Option I takes its gradient at x on the batch
    of the first local step, where it is needed anyway, so both options cost R gradients; the paper
    makes another pass over the data for it. A robust `merging` is applied to y_k and the change of
    c_k together.

    With an `optimizer` the correction goes into the gradient, before the optimiser. How far the
    client went then says nothing of gradients any more, so option II takes what it stands for: the
    mean of the R gradients, which it equals for plain steps.
    """

    views: ClassVar[tuple[str, ...]] = ("global",)

    control: str = option(
        "difference",
        "c_k⁺: from how far the client went (option II), or the gradient at x (option I)",
        choices=("difference", "gradient"),
    )
    clients: Any = hidden()

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, clients=shape.clients)

    def hub_init(self, template: Vector) -> Pair:
        return Pair(self.steered(template), template.map(jnp.zeros_like))

    def broadcast(self, hub: Pair, client: Any) -> Pair:
        return Pair(self.current(hub.model), hub.control)

    def client_init(self, template: Vector) -> ScaffoldState:
        return ScaffoldState(template.map(jnp.zeros_like), self.opened(template))

    def local(self, received: Pair, state: ScaffoldState, objective: Objective) -> Step:
        (x, c), lr = received, at(self.lr, objective.t)
        correction = c - state.control
        steps, plain = self.steps(objective), self.rule is None
        first = self.begun(state.optimizer, x)

        def step(i: Any, now: Any) -> Any:
            y, total, kept = now
            g = objective.gradient(y, objective.batch(i))
            y, kept = self.step(y, g + correction, kept, lr)
            return y, total if plain else total + g, kept

        if self.control == "gradient":
            control = objective.gradient(x, objective.batch(0))
            y, kept = self.step(x, control + correction, first, lr)
            y, _, kept = jax.lax.fori_loop(1, steps, step, (y, control, kept))
        else:
            nothing = () if plain else x.map(jnp.zeros_like)
            y, total, kept = jax.lax.fori_loop(0, steps, step, (x, nothing, first))
            control = (x - y) / (steps * lr) - correction if plain else total / steps
        message = Pair(y, control - state.control)
        return Step(message, ScaffoldState(control, self.ended(kept)), steps)

    def reference(self, received: Pair, message: Pair) -> Pair:
        return Pair(received.model, message.control.map(jnp.zeros_like))

    def merge(self, hub: Pair, messages: Pair, cohort: Cohort, t: Any) -> Pair:
        old = Pair(self.current(hub.model), hub.control.map(jnp.zeros_like))
        mean, change = self.aggregate(old, messages, cohort, t)
        control = hub.control + len(cohort.ids) / self.clients * change
        return Pair(self.next(hub.model, mean, t), control)

    def models(
        self, received: Pair, state: ScaffoldState, objective: Objective
    ) -> dict[str, Vector]:
        return {"global": received.model}
