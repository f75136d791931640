"""The inner problem of pFedMe and lp-proj: gradient descent on one mini-batch, K steps or until the
gradient is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from coterie.core.vector import Vector, squared_norm
from coterie.models.objective import Batch, Objective


def descend(
    gradient: Callable[[Any], Any], x: Any, lr: Any, steps: int, tolerance: Any = None
) -> tuple[Any, Any]:
    """x ← x − lr·gradient(x), `steps` times, or, with a tolerance, until ‖gradient(x)‖² ≤ tolerance
    but at most `steps` times.

    Returns the last x and the number of gradients taken.
    """
    if tolerance is None:
        x = lax.fori_loop(0, steps, lambda _, x: x - lr * gradient(x), x)
        return x, steps

    def unfinished(state: tuple[Any, Any, Any]) -> Any:
        _, small, count = state
        return ~small & (count < steps)

    def step(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        x, _, count = state
        g = gradient(x)
        small = squared_norm(g) <= tolerance
        return jax.tree.map(lambda a, b: jnp.where(small, a, a - lr * b), x, g), small, count + 1

    x, _, count = lax.while_loop(unfinished, step, (x, jnp.asarray(False), jnp.int32(0)))
    return x, count


def rounds(step: Callable[[Any, Any], tuple[Any, Any]], state: Any, count: Any) -> tuple[Any, Any]:
    """Run `step(state, r)` for r = 0 … count−1 and add up the gradients it reports."""

    def body(carry: tuple[Any, Any], r: Any) -> tuple[tuple[Any, Any], None]:
        state, total = carry
        state, gradients = step(state, r)
        return (state, total + gradients), None

    begin = (state, jnp.int32(0))
    if not isinstance(count, int):
        found: tuple[Any, Any] = lax.fori_loop(0, count, lambda r, carry: body(carry, r)[0], begin)
        return found
    (state, total), _ = lax.scan(body, begin, jnp.arange(count))
    return state, total


def proximal(
    objective: Objective,
    batch: Batch,
    theta: Vector,
    w: Vector,
    *,
    lam: Any,
    decay: Any,
    lr: Any,
    steps: int,
    tolerance: Any = None,
) -> tuple[Vector, Any]:
    """θ ← θ − lr(∇f(θ; batch) + λ(θ − w) + decay·θ), all on one batch; stops as `descend` does.

    Returns θ and the number of gradients.
    """
    if tolerance is None and steps > 1 and objective.learner.input_layer is not None:
        return (
            _proximal_through_gram(
                objective, batch, theta, w, lam=lam, decay=decay, lr=lr, steps=steps
            ),
            steps,
        )

    def gradient(theta: Vector) -> Vector:
        return objective.gradient(theta, batch) + lam * (theta - w) + decay * theta

    return descend(gradient, theta, lr, steps, tolerance)


def _proximal_through_gram(
    objective: Objective,
    batch: Batch,
    theta: Vector,
    w: Vector,
    *,
    lam: Any,
    decay: Any,
    lr: Any,
    steps: int,
) -> Vector:
    """The same steps for a model that begins with a dense layer z = Wx + b, without touching x in
    each of them.

    The first layer moves only along the batch. With D_j = ∂f/∂z (outputs × batch) and
    c = 1 − lr(λ + decay + l2), after j steps

        W_j = α_j W_0 + γ_j W_w − lr A_j X,  A_{j+1} = cA_j + D_j
        z_{j+1} = c z_j + lr λ z_w − lr D_j G

    with the Gram matrix G = XXᵀ + 1, which is batch × batch. Per batch that takes four products
    with X instead of two per step.
    """
    layer = objective.learner.input_layer
    assert layer is not None
    x = batch.x.reshape(len(batch.x), -1)
    first, rest = layer.split(theta.tree)
    first_w, rest_w = layer.split(w.tree)
    bias = "b" in first
    outputs = lambda p: p["w"] @ x.T + (p["b"][:, None] if bias else 0)
    z, z_w = outputs(first), outputs(first_w)
    gram = x @ x.T + (1.0 if bias else 0.0)
    keep = 1.0 - lr * (lam + decay + objective.l2)

    def loss(z: Any, rest: Any) -> Any:
        return objective.mean_loss(layer.after(rest, z), batch)

    def step(_: Any, state: Any) -> Any:
        z, rest, along = state
        d, g = jax.grad(loss, (0, 1))(z, rest)
        rest = jax.tree.map(lambda a, ga, wa: keep * a + lr * lam * wa - lr * ga, rest, g, rest_w)
        return keep * z + lr * lam * z_w - lr * (d @ gram), rest, keep * along + d

    _, rest, along = lax.fori_loop(0, steps, step, (z, rest, jnp.zeros_like(z)), unroll=steps <= 8)
    alpha, gamma = jnp.ones_like(keep), jnp.zeros_like(keep)
    for _ in range(steps):
        alpha, gamma = keep * alpha, keep * gamma + lr * lam
    moved = {"w": along @ x} | ({"b": along.sum(1)} if bias else {})
    first = jax.tree.map(lambda a, b, m: alpha * a + gamma * b - lr * m, first, first_w, moved)
    return Vector(layer.join(first, rest))
