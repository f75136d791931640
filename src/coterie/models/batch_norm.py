"""Batch normalisation for class-major models: statistics of the batch in training mode, of the
client when it predicts (`models/base.py`, `Statistics`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from coterie.models.base import Model, Statistics

Norm = Callable[[str, dict[str, Any], Any], Any]
"""Normalises activations (channels, …, batch): a layer's name, its parameters, the activations."""


def batch_norm(p: dict[str, Any], x: Any, mean: Any, var: Any) -> Any:
    """Batch normalisation by given statistics, per channel."""
    per_channel = lambda v: v.reshape(-1, *(1,) * (x.ndim - 1))
    x = (x - per_channel(mean)) * lax.rsqrt(per_channel(var) + 1e-5)
    return x * per_channel(p["scale"]) + per_channel(p["shift"])


def norm_by_batch(weight: Any) -> tuple[Norm, dict[str, Any]]:
    """Batch normalisation in training mode, over the samples of weight 1; and where it notes the
    statistics of every layer.
    """
    found: dict[str, Any] = {}

    def norm(name: str, p: dict[str, Any], x: Any) -> Any:
        axes = tuple(range(1, x.ndim))
        count = jnp.sum(weight) * math.prod(x.shape[1:-1])
        mean = jnp.sum(x * weight, axes) / count
        away = x - mean.reshape(-1, *(1,) * (x.ndim - 1))
        var = jnp.sum(jnp.square(away) * weight, axes) / count
        found[name] = {"mean": mean, "var": var}
        return batch_norm(p, x, mean, var)

    return norm, found


def norm_by(statistics: dict[str, Any]) -> Norm:
    """Batch normalisation as a model predicts, by what `norm_by_batch` noted."""
    return lambda name, p, x: batch_norm(p, x, **statistics[name])


KINDS = ("batch", "batch-shared")
"""Normalisation by batch; the second with statistics that are parameters."""


def normalised(init: Any, forward: Any, spec: Any) -> Model:
    """A class-major model with batch normalisation; `forward(parameters, x, norm)`."""

    def train(p: Any, x: Any, weight: Any) -> tuple[Any, Any]:
        norm, found = norm_by_batch(weight)
        return forward(p, x, norm), found

    return Model(
        init,
        lambda m, x: forward(m.parameters, x, norm_by(m.statistics)),
        class_major=True,
        l2=spec.l2,
        name=spec.name,
        statistics=Statistics(train, shared=spec.norm == "batch-shared"),
    )
