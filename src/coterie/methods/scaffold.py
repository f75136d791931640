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
from coterie.methods.star import Averaging, Cohort, beta_mix
from coterie.models.objective import Objective


class Pair(NamedTuple):
    """What is sent both ways: down x and c, up y_k and the change of c_k."""

    model: Vector
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
        return Pair(template, template.map(jnp.zeros_like))

    def client_init(self, template: Vector) -> Vector:
        return template.map(jnp.zeros_like)

    def local(self, received: Pair, state: Vector, objective: Objective) -> Step:
        (x, c), lr = received, at(self.lr, objective.t)
        correction = c - state
        steps = self.steps(objective)

        def step(i: Any, y: Vector) -> Vector:
            return y - lr * (objective.gradient(y, objective.batch(i)) + correction)

        if self.control == "gradient":
            control = objective.gradient(x, objective.batch(0))
            y = jax.lax.fori_loop(1, steps, step, x - lr * (control + correction))
        else:
            y = jax.lax.fori_loop(0, steps, step, x)
            control = (x - y) / (steps * lr) - correction
        return Step(Pair(y, control - state), control, steps)

    def reference(self, received: Pair, message: Pair) -> Pair:
        return Pair(received.model, message.control.map(jnp.zeros_like))

    def merge(self, hub: Pair, messages: Pair, cohort: Cohort, t: Any) -> Pair:
        model, change = self.aggregate(
            Pair(hub.model, hub.control.map(jnp.zeros_like)), messages, cohort, t
        )
        return Pair(
            beta_mix(hub.model, model, at(self.beta, t)),
            hub.control + len(cohort.ids) / self.clients * change,
        )

    def models(self, received: Pair, state: Vector, objective: Objective) -> dict[str, Vector]:
        return {"global": received.model}
