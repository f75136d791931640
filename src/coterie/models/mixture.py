"""A mixture of models of one kind: its parameters are theirs, stacked, and a weight each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.data.shape import Task
from coterie.models.base import Model

COMPONENTS, WEIGHTS = "components", "weights"


@dataclasses.dataclass(frozen=True)
class Mixed:
    """How a mixture gives outputs: the logarithm of the mixed probabilities, or the mixed mean."""

    apply: Callable[[Any, Any], Any]
    class_major: bool
    task: Task

    def each(self, components: Any, x: Any) -> Any:
        """The outputs of every component, stacked along axis 0."""
        return jax.vmap(lambda parameters: self.apply(parameters, x))(components)

    def __call__(self, parameters: Any, x: Any) -> Any:
        outputs, weights = self.each(parameters[COMPONENTS], x), parameters[WEIGHTS]
        if self.task == "regression":
            return jnp.tensordot(weights, outputs, 1)
        logs = jax.nn.log_softmax(outputs, 1 if self.class_major else -1)
        shares = jnp.log(jnp.maximum(weights, jnp.finfo(weights.dtype).tiny))
        return jax.nn.logsumexp(logs + shares[:, None, None], axis=0)


def mixture(model: Model, components: int, task: Task) -> Model:
    """So many copies of a model, all of the same weight."""
    if model.statistics is not None or model.loss is not None:
        what = "normalises by batches" if model.statistics is not None else "has a loss of its own"
        raise InvalidInput(
            f"the model {model.name!r} {what}, but the parts of a mixture must have the usual loss"
            " and look at each sample alone."
        )

    def init(key: Any) -> Any:
        one = model.init(key)
        copies = jax.tree.map(lambda a: jnp.broadcast_to(a, (components, *jnp.shape(a))), one)
        return {COMPONENTS: copies, WEIGHTS: jnp.full(components, 1 / components)}

    return Model(
        init,
        Mixed(model.apply, model.class_major, task),
        class_major=model.class_major,
        l2=model.l2,
        name=f"mixture of {model.name}",
    )
