"""The inner problem of pFedMe and lp-proj: gradient descent on one mini-batch, plain or with
Nesterov's momentum, K steps or until the gradient is small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.vector import Vector, squared_norm
from coterie.methods.base import Method
from coterie.methods.conditions import rate
from coterie.models.objective import Batch, Objective

Momentum = Callable[[Any], Any]
"""Nesterov's momentum m_i of step i = 0, 1, 2, …"""


def nesterov(q: Any) -> Any:
    """(1 − √q)/(1 + √q): the momentum for steps of 1/L on what is L-smooth and qL-strongly
    convex.
    """
    root = jnp.sqrt(jnp.minimum(q, 1.0))
    return (1.0 - root) / (1.0 + root)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InnerProblem(Method):
    """Shared by methods whose clients solve a problem on every mini-batch: by which steps."""

    inner_solver: str = option(
        "gradient",
        "the inner steps: plain gradient descent, or Nesterov's accelerated gradient",
        choices=("gradient", "nesterov"),
    )
    inner_momentum: Number | None = option(
        None,
        'inner_solver "nesterov": the momentum; nothing: pFedMe (1−√q)/(1+√q) with'
        " q = personal_lr·(λ + decay), lp-proj i/(i + 3) in step i = 0, 1, …",
        low=0,
        high=1,
    )

    def unused(self) -> dict[str, str]:
        if self.inner_solver == "nesterov":
            return super().unused()
        reason = f'{self.name}.inner_solver is "gradient", which has none'
        return {**super().unused(), "inner_momentum": reason}

    def momentum_at(self, t: Any, least: Any = None) -> Momentum | None:
        """The momentum of the inner steps in round t, None where they are plain.

        `least` is personal_lr times what is known of the curvature from below; None: nothing.
        """
        if self.inner_solver != "nesterov":
            return None
        if self.inner_momentum is not None:
            given = at(self.inner_momentum, t)
            return lambda i: given
        if least is None:
            return lambda i: i / (i + 3.0)
        return lambda i: nesterov(least)

    def steepest(self, least: Any = None) -> Any:
        """The step size times curvature below which the inner steps are stable: 2, and with a
        momentum m (2 + 2m)/(1 + 2m).
        """
        if self.inner_solver != "nesterov":
            return 2.0
        m = 1.0 if least is None else np.asarray(nesterov(least))
        m = m if self.inner_momentum is None else rate(self.inner_momentum)
        return (2.0 + 2.0 * m) / (1.0 + 2.0 * m)


def descend(
    gradient: Callable[[Any], Any],
    x: Any,
    lr: Any,
    steps: int,
    tolerance: Any = None,
    *,
    momentum: Momentum | None = None,
) -> tuple[Any, Any]:
    """x ← x − lr·gradient(x), `steps` times, or, with a tolerance, until ‖gradient(x)‖² ≤ tolerance
    but at most `steps` times.

    With a momentum m it is Nesterov's accelerated gradient: from y = x,

        x⁺ = y − lr·gradient(y),  y ← x⁺ + m_i (x⁺ − x),  x ← x⁺

    which stops at the y whose gradient is small. Returns the last x (or that y) and the number of
    gradients taken.
    """
    if momentum is not None:
        return _accelerated(gradient, x, lr, steps, tolerance, momentum=momentum)
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


def _accelerated(
    gradient: Callable[[Any], Any],
    x: Any,
    lr: Any,
    steps: int,
    tolerance: Any,
    *,
    momentum: Momentum,
) -> tuple[Any, Any]:
    """Nesterov's steps of `descend`."""

    def move(x: Any, y: Any, g: Any, i: Any) -> tuple[Any, Any]:
        new = y - lr * g
        return new, new + momentum(i) * (new - x)

    if tolerance is None:
        one = lambda i, now: move(now[0], now[1], gradient(now[1]), i)
        return lax.fori_loop(0, steps, one, (x, x))[0], steps

    def unfinished(state: tuple[Any, Any, Any, Any]) -> Any:
        return ~state[2] & (state[3] < steps)

    def step(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        x, y, _, count = state
        g = gradient(y)
        small = squared_norm(g) <= tolerance
        new, ahead = move(x, y, g, count)
        pick = lambda a, b: jax.tree.map(lambda a, b: jnp.where(small, a, b), a, b)
        return pick(y, new), pick(y, ahead), small, count + 1

    begin = (x, x, jnp.asarray(False), jnp.int32(0))
    x, _, _, count = lax.while_loop(unfinished, step, begin)
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
    momentum: Momentum | None = None,
) -> tuple[Vector, Any]:
    """θ ← θ − lr(∇f(θ; batch) + λ(θ − w) + decay·θ), all on one batch; stops as `descend` does.

    Returns θ and the number of gradients.
    """
    plain = tolerance is None and momentum is None
    if plain and steps > 1 and objective.learner.input_layer is not None:
        return (
            _proximal_through_gram(
                objective, batch, theta, w, lam=lam, decay=decay, lr=lr, steps=steps
            ),
            steps,
        )

    def gradient(theta: Vector) -> Vector:
        return objective.gradient(theta, batch) + lam * (theta - w) + decay * theta

    return descend(gradient, theta, lr, steps, tolerance, momentum=momentum)


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
