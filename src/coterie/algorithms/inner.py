"""The inner problem of pFedMe and lp-proj: gradient descent on one mini-batch, K steps or until the gradient is small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from coterie.vector import squared_norm


def descend(gradient: Callable[[Any], Any], x: Any, lr: Any, steps: int, tolerance: Any = None) -> tuple[Any, Any]:
    """x ← x − lr·gradient(x), `steps` times, or, with a tolerance, until ‖gradient(x)‖² ≤ tolerance but at most `steps` times.

    Returns the last x and the number of gradients taken.
    """
    if tolerance is None:
        x = lax.fori_loop(0, steps, lambda _, x: x - lr * gradient(x), x)
        return x, steps

    def unfinished(state: tuple[Any, Any, Any]) -> Any:
        _, g, count = state
        return (squared_norm(g) > tolerance) & (count < steps + 1)

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, g, count = state
        x = x - lr * g
        return x, gradient(x), count + 1

    x, _, count = lax.while_loop(unfinished, step, (x, gradient(x), jnp.int32(1)))
    return x, count


def rounds(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, count: int) -> tuple[Any, Any]:
    """Run `step(state, r)` for r = 0 … count−1 and add up the gradients it reports."""

    def body(carry: tuple[Any, Any], r: Any) -> tuple[tuple[Any, Any], None]:
        state, total = carry
        state, gradients = step(state, r)
        return (state, total + gradients), None

    (state, total), _ = lax.scan(body, (state, jnp.int32(0)), jnp.arange(count))
    return state, total


def copy(x: Any) -> Any:
    return jax.tree.map(jnp.asarray, x)
