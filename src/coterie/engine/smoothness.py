"""How steep clients' losses are: the smoothness β, the largest curvature of the f_k, found by power
iteration on their own training rows.

Of linear regression it is exact (to the iteration's end). Of other models it holds at the points
that were looked at, and is a lower bound elsewhere.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.vector import Vector
from coterie.engine.in_turn import in_turn
from coterie.engine.setting import Round, Setting, Spec
from coterie.engine.simulator import Simulator

CLIENTS = 32
"""Clients that are looked at, at most: a fixed sample."""
ITERATIONS, STEPS = 60, 20


class Smoothness(NamedTuple):
    """The largest curvature of every client that was looked at, at the first model and after some
    gradient steps from there.
    """

    clients: NDArray[np.int64]
    first: NDArray[np.float64]
    later: NDArray[np.float64]

    @property
    def beta(self) -> float:
        return float(max(self.first.max(), self.later.max()))


def _curvature(now: Round, x: Vector, client: Any) -> Any:
    """The largest eigenvalue of ∇²f_k(x), in absolute value."""
    objective = now.objective(client)
    batch = objective.batch(0)
    gradient = lambda x: objective.gradient(x, batch)
    times = lambda v: jax.jvp(gradient, (x,), (v,))[1]
    unit = lambda v: v * jax.lax.rsqrt(jnp.maximum(v.squared_norm(), 1e-30))
    keys = jax.random.split(jax.random.key(0), len(x.leaves))
    leaves = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, x.leaves, strict=True)]
    start = jax.tree.unflatten(jax.tree.structure(x), leaves)
    v = jax.lax.fori_loop(0, ITERATIONS, lambda _, v: unit(times(v)), unit(start))
    return jnp.sqrt(times(v).squared_norm())


def _both(now: Round, x: Vector, client: Any) -> tuple[Any, Any]:
    objective = now.objective(client)
    batch = objective.batch(0)
    first = _curvature(now, x, client)
    step = lambda _, x: x - objective.gradient(x, batch) * (1 / jnp.maximum(first, 1e-12))
    later = jax.lax.fori_loop(0, STEPS, step, x)
    return first, _curvature(now, later, client)


def _all(spec: Spec, setting: Setting, x: Vector, clients: Any) -> tuple[Any, Any]:
    now = Round(spec, setting, 0)
    return jax.lax.map(lambda client: _both(now, x, client), clients)


_compiled = in_turn(_all, static_argnames="spec")


def smoothness(sim: Simulator) -> Smoothness:
    """Of a simulator that has not run yet. A client without a loss is not looked at."""
    with_loss = np.arange(sim.spec.clients)
    with_loss = with_loss[with_loss != getattr(sim.method, "empty", None)]
    n = len(with_loss)
    some = with_loss
    if n > CLIENTS:
        some = with_loss[np.linspace(0, n - 1, CLIENTS).astype(np.int64)]
    learner = dataclasses.replace(
        sim.spec.learner, sampling="full", batch_size=sim.federation.shape.largest
    )
    spec = dataclasses.replace(sim.spec, learner=learner, mesh=None)
    with sim.precision():
        now = sim.now(some)
        first, later = _compiled(spec, now.setting, sim.template, jnp.asarray(some))
    return Smoothness(some, np.asarray(first, np.float64), np.asarray(later, np.float64))
