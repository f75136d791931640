"""A model for a problem: by name, by options, or as it is."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from coterie.core.errors import InvalidInput
from coterie.data.shape import ProblemShape
from coterie.models.base import Model, ModelSpec, get_model
from coterie.models.objective import Learner


@lru_cache(maxsize=64)
def _built(spec: ModelSpec, input_shape: tuple[int, ...], outputs: int) -> Model:
    """Models are built once per shape, so that runs share compiled programs."""
    return spec.build(input_shape, outputs)


def build_model(model: Model | ModelSpec | str, shape: ProblemShape) -> Model:
    """A model for a problem: by name, by options, or as it is."""
    if isinstance(model, str):
        model = get_model(model)
    if isinstance(model, Model):
        model.check(shape.inputs, shape.outputs, shape.task)
        return model
    if not isinstance(model, ModelSpec):
        raise InvalidInput(
            f"the model is {type(model).__name__}, but must be a name, a Model(init, apply) or one"
            " of the shipped models."
        )
    l2 = float(getattr(model, "l2", 0.0))
    plain = model.replace(l2=0.0) if "l2" in model.public() else model
    built = dataclasses.replace(_built(plain, shape.inputs, shape.outputs), l2=l2)
    built.check(shape.inputs, shape.outputs, shape.task)
    return built


def learner_of(model: Model, shape: ProblemShape, batch: int, sampling: str) -> Learner:
    """What turns a model and a batch into losses and gradients."""
    return Learner(
        model.apply,
        model.class_major,
        shape.task,
        batch,
        sampling,  # type: ignore[arg-type]
        model.input_layer,
        model.loss,
        statistics=model.statistics,
    )
