"""One client's side of a method: its own data, its local work, its models and how they do.

Knows nothing of wires.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.core.errors import InvalidInput
from coterie.core.randomness import Role, stream
from coterie.core.vector import Vector, all_finite
from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.engine.evaluate import hold, score_models
from coterie.engine.rounds import (
    Data,
    Hub,
    Row,
    Spec,
    ahead,
    follow_mixing,
    objective_of,
    open_hub,
    open_row,
)
from coterie.methods.base import Step
from coterie.models.objective import Learner


@partial(jax.jit, static_argnums=(0,))
def _local(
    spec: Spec, method: Any, data: Data, seed: Any, t: Any, number: Any, received: Any, memory: Any
) -> tuple[Step, Any]:
    step = method.local(received, memory, objective_of(spec, data, seed, t, 0, number))
    return step, all_finite((step.message, step.memory))


@jax.jit
def _local_on(method: Any, objective: Any, received: Any, memory: Any) -> tuple[Step, Any]:
    step = method.local(received, memory, objective)
    return step, all_finite((step.message, step.memory))


@partial(jax.jit, static_argnums=(0,))
def _models(
    spec: Spec, method: Any, data: Data, seed: Any, t: Any, number: Any, received: Any, memory: Any
) -> dict[str, Vector]:
    models: dict[str, Vector] = method.models(
        received, memory, objective_of(spec, data, seed, t, 0, number)
    )
    return models


# Methods are pytrees, so that one program serves all hyper-parameters; alone, each of their
# operations would be compiled by itself.
merged = jax.jit(lambda method, hub, messages, cohort, t: method.merge(hub, messages, cohort, t))
pulled = jax.jit(lambda method, own, messages, weights: method.pull(own, messages, weights))
absorbed = jax.jit(lambda method, memory, pull, t: method.absorb(memory, pull, t))
message_of = jax.jit(lambda method, memory: method.message(memory))
moved = jax.jit(follow_mixing)
shifted = jax.jit(ahead)


class Worker:
    """A client's own work under a plan. `data` is a federation of one: this client.

    With a PyTorch `loader` mini-batches come from that (it may augment), and `data` is what models
    are scored on.
    """

    def __init__(self, plan: Plan, number: int, data: Federation, loader: Any = None) -> None:
        if data.clients != 1:
            raise InvalidInput(
                f"the data is of {data.clients} clients, but must be of one: a client has its own"
                " and nobody else's."
            )
        expected = (plan.problem.task, tuple(plan.problem.inputs), plan.problem.outputs)
        found = (data.task, tuple(data.input_shape), data.outputs)
        for what, mine, planned in zip(
            ("a task", "inputs of the shape", "outputs"), found, expected, strict=True
        ):
            if mine != planned:
                raise InvalidInput(f"the data has {what} {mine}, but the plan says {planned}.")
        if not 0 <= number < plan.size:
            raise InvalidInput(
                f"the client's number is {number}, but must be from 0 to {plan.size - 1}."
            )
        self.plan, self.number, self.federation = plan, number, data
        self.seed, self.loader = plan.training.seed, loader
        with self.precision():
            self._prepare()

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        with jax.enable_x64(self.plan.training.precision == "float64"):
            yield

    def _prepare(self) -> None:
        plan, options = self.plan, self.plan.training
        dtype = jnp.dtype(options.precision)
        model = plan.built()
        self.template = model.vector(stream(self.seed, Role.INIT)).map(
            lambda leaf: leaf.astype(dtype)
        )
        self.samples = int(self.federation.train.sizes[0])
        self.method = plan.method.bind(
            self.template, stream(self.seed, Role.PROJECTION), plan.facts(self.samples)
        )
        batch = self.samples if options.sampling == "full" else options.batch_size
        learner = Learner(
            model.apply,
            model.class_major,
            plan.problem.task,
            batch,
            options.sampling,  # type: ignore[arg-type]
            model.input_layer,
            model.loss,
        )
        self.spec = Spec(learner, plan.size, plan.cohort, 1)
        held = hold(self.federation.train, dtype)
        self.data = Data(
            held.x,
            held.y,
            held.start,
            held.size,
            jnp.asarray(model.l2, dtype),
            options.batch_schedule,
        )
        splits = {"validation": self.federation.validation, "test": self.federation.test}
        self.held = {name: hold(split, dtype) for name, split in splits.items() if len(split)}
        self.hub: Hub = open_hub(self.method, plan.channel, self.template)
        """As it is before the first round, which everybody knows."""
        self.row: Row = open_row(
            self.spec, self.method, plan.channel, self.data, self.hub, self.template
        )
        """What a client keeps, as it is before the first round."""
        self.own_batches = None
        if self.loader is not None:
            from coterie.models.torch.loader import LoaderClient

            self.own_batches = LoaderClient(
                model, self.loader, seed=self.seed, client=self.number, precision=options.precision
            )
            self.samples = self.own_batches.samples

    def message_like(self) -> Any:
        """The shapes of what a client sends."""
        if self.method.exchange == "graph":
            return jax.eval_shape(self.method.message, self.row.memory)
        received = self.method.broadcast(self.hub.state, 0)
        objective = objective_of(self.spec, self.data, 0, 0, 0)
        return jax.eval_shape(
            lambda: self.method.local(received, self.row.memory, objective).message
        )

    def broadcast_like(self) -> Any:
        """The shapes of what a hub says."""
        return jax.eval_shape(lambda: self.method.broadcast(self.hub.state, 0))

    def work(self, received: Any, memory: Any, t: int) -> Step:
        """The local work of round t. Raises InvalidInput when it gives NaN or infinity."""
        if self.own_batches is not None:
            step, finite = _local_on(self.method, self.own_batches.objective(t), received, memory)
        else:
            step, finite = _local(
                self.spec, self.method, self.data, self.seed, t, self.number, received, memory
            )
        if not bool(finite):
            raise InvalidInput(
                f"the local work of round {t} gave NaN or infinity; nothing is sent and the state"
                " before it is kept: lower the step size."
            )
        return step

    def models(self, received: Any, memory: Any, t: int) -> dict[str, Vector]:
        """The client's models after t rounds, by view."""
        return _models(
            self.spec, self.method, self.data, self.seed, t, self.number, received, memory
        )

    def scores(self, models: dict[str, Vector]) -> dict[str, float]:
        """How the models do on this client's own data: `test/personal` → accuracy (or negated
        squared error), and the losses.
        """
        views = self.method.model_views
        out = {}
        for split, held in self.held.items():
            stacked = [models[view].map(lambda leaf: leaf[None]) for view in views]
            loss, score = score_models(self.spec, stacked, held)
            for i, view in enumerate(views):
                out[f"{split}/{view}"], out[f"{split}-loss/{view}"] = (
                    float(score[i, 0]),
                    float(loss[i, 0]),
                )
        return {key: value for key, value in out.items() if np.isfinite(value)}
