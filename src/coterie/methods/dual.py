"""Dual coordinate ascent on one client's samples (SDCA), for the losses of linear models.

A client's loss is f(w) = (1/n) Σ_i φ_i(w x_i), φ_i the half squared error or the cross-entropy of
the softmax. Its dual variables are a vector α_i per sample with −α_i in the domain of φ_i*; they
say what the client pulls at, v = (1/n) Σ_i α_i ⊗ x_i. Given the model w that belongs to the v's of
all clients, and a number q by which any change of v may move it at most, the client raises

    −(1/n) Σ_i φ_i*(−α_i − Δ_i) − ⟨w, Δv⟩ − (q/2)‖Δv‖²,   Δv = (1/n) Σ_i Δ_i ⊗ x_i

one sample at a time. With z = (w + qΔv) x_i and ρ = q‖x_i‖²/n the change of sample i raises

    −φ_i*(−α_i − Δ) − ⟨z, Δ⟩ − (ρ/2)‖Δ‖²
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp, xlogy

from coterie.core.randomness import permute
from coterie.models.objective import Objective

CURVATURE = 2.0
"""φ* of the cross-entropy is 2-strongly convex: the Hessian of the log of a sum of exponentials,
diag(p) − ppᵀ, is at most ½.
"""


def squared_step(alpha: Any, z: Any, y: Any, rho: Any) -> Any:
    """The exact maximiser for φ(z) = ½‖z − y‖², φ*(−α) = ½‖α‖² − ⟨α, y⟩."""
    return (y - z - alpha) / (1.0 + rho)


def softmax_step(alpha: Any, z: Any, y: Any, rho: Any) -> Any:
    """Part of the way to u = −∇φ(z) = y − softmax(z) (Prox-SDCA), for the cross-entropy with y
    one-hot, φ*(−α) = Σ π log π, π = y − α.

    The length s maximises a lower bound of the gain, s·gap + s(1−s)‖u − α‖² − (ρ/2)s²‖u − α‖², so
    no step goes down, and y − α stays in the simplex.
    """
    towards = y - jax.nn.softmax(z) - alpha
    size = jnp.sum(jnp.square(towards))
    own = jnp.maximum(y - alpha, 0.0)
    gap = logsumexp(z) - jnp.vdot(z, y - alpha) + jnp.sum(xlogy(own, own))
    s = (jnp.maximum(gap, 0.0) + 0.5 * CURVATURE * size) / (
        (CURVATURE + rho) * jnp.where(size > 0, size, 1.0)
    )
    return jnp.minimum(s, 1.0) * towards


def ascend(
    objective: Objective,
    alpha: Any,
    w: Any,
    q: Any,
    *,
    passes: int,
    steps: Any,
    key: Any,
    bias: bool,
) -> tuple[Any, Any]:
    """The first `steps` coordinate steps of `passes` passes over the client's samples; returns α
    and Δv.

    Every pass has a fresh random order; with the sampling "full", where nothing is random, the
    order of the data. `w` is (outputs, inputs), with a last column for the constant feature if
    there is a `bias`. Rows of α past the client's size stay 0.
    """
    most, outputs = alpha.shape
    n = objective.size
    classify = objective.learner.task == "classification"
    samples = jnp.arange(most)
    if objective.learner.sampling == "full":
        orders = jnp.broadcast_to(samples, (passes, most))
    else:
        orders = jax.vmap(lambda i: permute(jax.random.fold_in(key, i), samples, n))(
            jnp.arange(passes)
        )

    def step(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        alpha, moved = state
        sample = jnp.clip(orders[i // n, i % n], 0, n - 1)
        row = objective.start + sample
        x = objective.x[row].reshape(-1)
        x = jnp.append(x, jnp.ones(1, x.dtype)) if bias else x
        y = objective.y[row]
        y = jax.nn.one_hot(y, outputs, dtype=x.dtype) if classify else jnp.reshape(y, outputs)
        norm = jnp.vdot(x, x)
        change = (softmax_step if classify else squared_step)(
            alpha[sample], (w + q * moved) @ x, y, q * norm / n
        )
        # A sample whose square overflows would get no step at all: that must not pass in silence.
        change = jnp.where(jnp.isfinite(norm), change, jnp.nan)
        change = jnp.where(i < steps, change, 0.0)
        return alpha.at[sample].add(change), moved + jnp.outer(change, x) / n

    # The same number of steps for all clients, those past their own do nothing: a bound that
    # differs would copy α in every step.
    return jax.lax.fori_loop(0, passes * most, step, (alpha, jnp.zeros_like(w)))
