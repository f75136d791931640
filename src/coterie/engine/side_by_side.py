"""How many clients are trained side by side on a CPU: as many as its caches hold.

All clients in one `vmap` walk through all their models at every gradient step, so models that are
too many for the caches come from memory each time. A group of clients that fits takes all its steps
before the next group's turn.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

CACHE = 2 << 20
"""Bytes of models in a group; `bench/groups.py` measures what it brings."""


def between(model: Any, input_shape: tuple[int, ...], batch: int) -> int:
    """Bytes of all that a model computes on the way from a batch to its outputs, in float32.

    >>> from coterie import get_model
    >>> perceptron = get_model("mlp", {"hidden": "100"}).build((784,), 10)
    >>> net = get_model("lenet").build((32, 32, 3), 10)
    >>> between(perceptron, (784,), 20) < CACHE < between(net, (32, 32, 3), 20)
    True
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((batch, *input_shape), jnp.float32)
    if model.statistics is None:
        return 4 * _numbers(jax.make_jaxpr(model.apply)(shapes, x).jaxpr)
    weight = jax.ShapeDtypeStruct((batch,), jnp.float32)
    return 4 * _numbers(jax.make_jaxpr(model.statistics.train)(shapes, x, weight).jaxpr)


def _numbers(jaxpr: Any) -> int:
    """How many numbers a program computes, those in the middle included."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [v for v in equation.params.values() if hasattr(v, "jaxpr")]
        total += sum(_numbers(part.jaxpr) for part in inner)
        total += 0 if inner else sum(math.prod(v.aval.shape) for v in equation.outvars)
    return total


def side_by_side(
    trainers: int, model_bytes: int, shared_bytes: int = 0, between_bytes: int = 0
) -> int:
    """Clients per group.

    A client whose batch alone fills the caches on its way through the model (`between_bytes`), as
    in convolutional networks, is trained by itself.

    `shared_bytes` is what all of them read at every step, such as lp-proj's matrix: a group must be
    large enough to be worth reading it again. A number that divides `trainers` is preferred: the
    rest would be a second, smaller program to compile.

    >>> side_by_side(1000, 31_400), side_by_side(100, 318_040)
    (50, 5)
    >>> side_by_side(100, 318_040, shared_bytes=100 * 318_040)
    100
    >>> side_by_side(100, 2_440), side_by_side(7, 10**9), side_by_side(1, 10**9)
    (100, 2, 1)
    """
    if jax.default_backend() != "cpu":
        return trainers
    if between_bytes > CACHE:
        return 1
    target = max(2, CACHE // max(1, model_bytes), 2 * shared_bytes // max(1, model_bytes))
    if target >= trainers:
        return trainers
    dividing = [g for g in range(-(-target // 2), target + 1) if trainers % g == 0 and g > 1]
    return max(dividing) if dividing else target
