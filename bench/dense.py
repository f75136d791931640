"""Where a dense round's time goes besides its products: drawing batches and fetching their rows.
And what P x and Pᵀv cost for two kinds of projection.

    python -m bench.dense          # a few minutes; writes bench/dense.result.md

Seconds are those of cores, not of the clock (medians of 5), so other work on the machine hardly
counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.contenders.ours import simulator_of
from bench.problems import ROWS, Problem
from bench.timing import machine
from coterie.core.randomness import permute
from coterie.core.vector import Vector
from coterie.coupling import projection

PROBLEMS = (
    Problem("fedavg", "mlr", 100, 784),
    Problem("fedavg", "mlr", 100, 60),
    *(ROWS[i] for i in (0, 1, 3, 6)),
)
SIZES = (7_850, 79_510, 678_794, 11_173_962)
"""Multinomial regression and a perceptron on MNIST, a small convolutional network, ResNet-18."""


def core_seconds(run: Callable[[], Any], least: float = 0.1) -> float:
    """Median of 5, each of at least so many seconds."""
    jax.block_until_ready(run())
    begun = time.process_time()
    jax.block_until_ready(run())
    count = max(1, round(least / max(1e-6, time.process_time() - begun)))
    found = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(count):
            out = run()
        jax.block_until_ready(out)
        found.append((time.process_time() - begun) / count)
    return float(np.median(found))


def of_a_round(problem: Problem) -> float:
    simulator = simulator_of(problem, devices=1)

    def rounds() -> Any:
        simulator.advance(1)
        return simulator.store.rows

    return core_seconds(rounds)


def drawn(problem: Problem, fetch: bool) -> float:
    """All mini-batches of a round: their indices only, or their rows as well."""
    clients, batch, each = problem.trainers, problem.batch, problem.samples
    x = jnp.zeros((clients * each, problem.features)) + 1.0

    def one(k: Any, x: Any) -> Any:
        def step(i: Any, total: Any) -> Any:
            first = (i % (each // batch)) * batch
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), k), i // (each // batch))
            rows = k * each + permute(key, first + jnp.arange(batch), each)
            return total + (x[rows] if fetch else rows.astype(x.dtype))

        nothing = jnp.zeros((batch, problem.features) if fetch else batch)
        return lax.fori_loop(0, problem.steps, step, nothing)

    run = jax.jit(lambda x: jax.vmap(one, (0, None))(jnp.arange(clients), x))
    return core_seconds(lambda: run(x))


def projected(kind: str, d: int, dsub: int, clients: int) -> tuple[float, float] | None:
    """Seconds of P x and of Pᵀv for so many clients; None: P would take more than 2 GB."""
    if kind != "srht" and 8 * dsub * d > 2 << 30:
        return None
    like = Vector({"w": jnp.zeros(d)})
    p = projection.draw(kind, like, dsub, jax.random.key(0))
    x, v = jnp.ones((clients, d)), jnp.ones((clients, dsub))
    forth = jax.jit(jax.vmap(lambda p, x: p(Vector({"w": x})), (None, 0)))
    back = jax.jit(jax.vmap(lambda p, v: p.back(v, like).tree["w"], (None, 0)))
    return core_seconds(lambda: forth(p, x)) / clients, core_seconds(lambda: back(p, v)) / clients


def keep(lines: list[str]) -> None:
    print(lines[-1], flush=True)
    (Path(__file__).parent / "dense.result.md").write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    lines = [
        "# Draws, fetched rows and projections",
        "",
        "`python -m bench.dense`, seconds of cores (one device), medians of 5:",
        "",
        *(f"- {line}" for line in machine()),
        "",
        "## Drawing the batches of a round",
        "",
        "Each in a program of its own. Rows includes the indices.",
        "",
        "| problem | ms a round | indices | rows | indices, share | rows, share |",
        "|---|---|---|---|---|---|",
    ]
    for problem in PROBLEMS:
        whole = of_a_round(problem)
        parts = drawn(problem, fetch=False), drawn(problem, fetch=True)
        cells = [f"{1e3 * t:.2f}" for t in (whole, *parts)] + [f"{t / whole:.0%}" for t in parts]
        lines.append(f"| {problem.name}, {problem.features} features | {' | '.join(cells)} |")
        keep(lines)
    lines += [
        "",
        "## P x and Pᵀv",
        "",
        "ms per client, 10 clients together (of the largest model 2). –: P would take over 2 GB.",
        "",
        "| d | dsub | dense: P x, Pᵀv | srht: P x, Pᵀv |",
        "|---|---|---|---|",
    ]
    for d in SIZES:
        for dsub in (50, 600):
            cells = []
            for kind in ("dense", "srht"):
                found = projected(kind, d, dsub, 10 if d < 10**7 else 2)
                cells.append("–" if found is None else ", ".join(f"{1e3 * t:.3g}" for t in found))
            lines.append(f"| {d:,} | {dsub} | {' | '.join(cells)} |")
            keep(lines)


if __name__ == "__main__":
    main()
