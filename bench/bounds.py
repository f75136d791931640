"""How far a round is from what the machine can do: arithmetic, memory, and the mere number of
operations, each measured on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from bench.hlo import Program, block_of
from bench.problems import Problem

SIDE = 1536
"""Of the matrices whose product is the peak."""


def _best(run: Callable[[], Any], repeats: int = 7) -> float:
    """Seconds of the fastest run: a peak, not a typical time."""
    jax.block_until_ready(run())
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        best = min(best, time.perf_counter() - begun)
    return best


@cache
def matrix_peak() -> float:
    """FLOP/s of large float32 matrix products on all cores."""
    a = jnp.ones((SIDE, SIDE))
    product = jax.jit(lambda a, b: a @ b)
    return 2 * SIDE**3 / _best(lambda: product(a, a), 30)


@cache
def bandwidth(held: int) -> float:
    """Bytes/s of a ← ca + b over and over on two arrays that take `held` bytes together: two are
    read and one is written.
    """
    n = max(1024, held // 8)
    a, b = jnp.ones(n), jnp.ones(n)
    passes = max(4, int(2e8 / (12 * n)))
    run = jax.jit(lambda a, b: lax.fori_loop(0, passes, lambda _, a: 0.5 * a + b, a))
    return 12 * n * passes / _best(lambda: run(a, b), 3)


@cache
def operation_seconds() -> float:
    """Of one operation on hardly any numbers, inside a compiled loop."""
    trips = 2000

    def body(_: Any, x: Any) -> Any:
        for _ in range(8):
            x = lax.optimization_barrier(x + 1.0)  # not fused with the next
        return x

    run = jax.jit(lambda x: lax.fori_loop(0, trips, body, x))
    x = jnp.ones(512)  # tiny loops are compiled into one operation
    work = Program(run.lower(x).compile().as_text()).total()
    return _best(lambda: run(x)) / work.operations


def touched(simulator: Any, problem: Problem) -> tuple[float, int]:
    """Bytes that a round must move at least, given how it is computed, and the bytes that are in
    use meanwhile.

    Every pass over a batch reads and writes each model that moves, and reads the batch; the
    projection is read twice a gradient step by every group. With the Gram matrix the K steps on a
    batch are one pass.
    """
    d, n = 4 * problem.parameters, problem.trainers
    group = simulator.spec.at_once
    gram = problem.method == "pfedme" and simulator.spec.learner.input_layer is not None
    passes = problem.steps * (1 if gram else problem.inner)
    models = 2 if problem.method in ("pfedme", "ditto") else 1
    batch = 4 * problem.batch * problem.features
    per_client = passes * (2 * models * d + batch)
    shared = d * problem.dsub
    reads = problem.steps * (2 * problem.inner + 1) * -(-n // group) * shared
    return float(n * per_client + reads), group * (models * d + batch) + shared


def executed(simulator: Any, problem: Problem) -> dict[str, Any]:
    """What a round does, and the least time for each kind of it, in seconds."""
    work = Program(block_of(simulator).compile().as_text()).total()
    moved, held = touched(simulator, problem)
    return {
        "flops": work.flops,
        "operations": work.operations,
        "bytes": moved,
        "held": held,
        "least": {
            "compute": work.flops / matrix_peak(),
            "bandwidth": moved / bandwidth(held),
            "overhead": work.operations * operation_seconds(),
        },
    }


def machine_peaks() -> dict[str, float]:
    return {
        "peak": matrix_peak(),
        "stream": bandwidth(512 << 20),
        "in_cache": bandwidth(1 << 20),
        "operation": operation_seconds(),
    }
