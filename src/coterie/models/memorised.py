"""A model that also looks up the rows that it remembers: the labels of the nearest in its
representation, mixed with its own answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.data.shape import ProblemShape, Task
from coterie.models.base import Model


class Stored(NamedTuple):
    """A model as it predicts, with what it remembers of rows: what comes out before the last layer,
    targets (classes by their numbers), and how many are real; and what the rows count.
    """

    parameters: Any
    features: Any
    targets: Any
    size: Any
    share: Any
    """λ: 0 is the model alone, 1 the rows alone."""
    scale: Any
    """σ: squared distances of about this size, per feature, count as near."""


@dataclasses.dataclass(frozen=True)
class Memorised:
    """How such a model gives outputs. Parameters alone give those of the model."""

    apply: Callable[[Any, Any], Any]
    head: tuple[str, ...]
    """Where the last layer is among the parameters: a dictionary with w (and b)."""
    task: Task
    outputs: int
    neighbours: int

    def features(self, parameters: Any, x: Any) -> Any:
        """(rows, H): the outputs with a last layer that changes nothing, or the inputs where there
        is no layer before it.
        """
        if not self.head:
            return x.reshape(len(x), -1)
        *_, name = self.head
        last = parameters[name]
        width = last["w"].shape[1]
        plain = {"w": jnp.eye(width, dtype=last["w"].dtype)}
        if "b" in last:
            plain["b"] = jnp.zeros(width, last["w"].dtype)
        return self.apply({**parameters, name: plain}, x).T

    def own(self, parameters: Any, x: Any) -> Any:
        """(rows, outputs): the model's probabilities, or its numbers."""
        out = self.apply(parameters, x).T
        return jax.nn.softmax(out, -1) if self.task == "classification" else out

    def stored(self, y: Any) -> Any:
        """Targets as they are remembered."""
        return y if self.task == "classification" else y.reshape(len(y), -1)

    def near(self, stored: Stored, features: Any, real: Any) -> Any:
        """(rows, outputs): the mean target of the nearest real rows, each by exp(−d²/(Hσ))."""
        kept = stored.features
        squares = jnp.sum(features**2, 1)[:, None] + jnp.sum(kept**2, 1)[None]
        apart = jnp.maximum(squares - 2 * features @ kept.T, 0) / (kept.shape[1] * stored.scale)
        count = min(self.neighbours, len(kept))
        found, index = jax.lax.top_k(jnp.where(real, -apart, -jnp.inf), count)
        weight = jax.nn.softmax(found, -1)
        weight = jnp.where(jnp.isfinite(found), weight, 0)
        targets = stored.targets[index]
        if self.task == "classification":
            targets = (targets[..., None] == jnp.arange(self.outputs)).astype(weight.dtype)
        return jnp.einsum("rk,rko->ro", weight, targets.reshape(*index.shape, self.outputs))

    def __call__(self, parameters: Any, x: Any) -> Any:
        if not isinstance(parameters, Stored):
            return self.apply(parameters, x)
        own, stored = self.own(parameters.parameters, x), parameters
        real = jnp.arange(len(stored.features)) < stored.size
        near = self.near(stored, self.features(stored.parameters, x), real)
        mixed = own + stored.share * (near - own)
        if self.task == "classification":
            mixed = jnp.log(jnp.maximum(mixed, jnp.finfo(mixed.dtype).tiny))
        return mixed.T


def memorised(model: Model, shape: ProblemShape, neighbours: int, rows: int) -> Model:
    """A model with room for so many rows."""
    if model.statistics is not None or model.loss is not None or not model.class_major:
        raise _strange(model)
    two = jax.ShapeDtypeStruct((2, *shape.inputs), jnp.float32)
    parameters = jax.eval_shape(model.init, jax.random.key(0))
    apply = Memorised(model.apply, _head(model, parameters), shape.task, shape.outputs, neighbours)
    try:
        width = jax.eval_shape(apply.features, parameters, two).shape[1]
    except Exception as error:
        raise _strange(model) from error
    value = lambda *size: jax.ShapeDtypeStruct(size, jnp.float32)
    targets = value(rows) if shape.task == "classification" else value(rows, shape.outputs)
    stored = Stored(parameters, value(rows, width), targets, value(), value(), value())
    return Model(
        model.init,
        apply,
        class_major=True,
        l2=model.l2,
        name=model.name,
        input_layer=model.input_layer,
        predicts=stored,
    )


def _strange(model: Model) -> InvalidInput:
    return InvalidInput(
        f"the model {model.name!r} has no dense last layer to look behind; knn-per and"
        " knn-local need one of mlr, linear, mlp without norm, or a convolutional one without norm."
    )


def _head(model: Model, parameters: Any) -> tuple[str, ...]:
    """The name of the last layer; nothing where it is the whole model."""
    if not isinstance(parameters, dict):
        raise _strange(model)
    if "w" in parameters:
        return ()
    if "out" in parameters:
        return ("out",)
    layers = [name for name in parameters if name.startswith("layer") and name[5:].isdigit()]
    if not layers:
        raise _strange(model)
    return (max(layers, key=lambda name: int(name[5:])),)
