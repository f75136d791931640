"""How long a gradient takes on this machine."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import numpy as np

from coterie.engine import rounds as engine_rounds
from coterie.engine.rounds import Row
from coterie.engine.simulate import Simulator


@partial(jax.jit, static_argnums=(0,))
def _local(
    spec: Any, method: Any, data: Any, seed: Any, t: Any, client: Any, received: Any, memory: Any
) -> Any:
    step = method.local(received, memory, engine_rounds.objective_of(spec, data, seed, t, client))
    return step.memory, step.message, step.gradients


def measure_gradient_seconds(simulator: Simulator, *, client: int = 0, repeats: int = 20) -> float:
    """Seconds per mini-batch gradient of one client alone on this machine: the median of several
    rounds of local work, compiled beforehand.
    """
    method, place = simulator.method, simulator.place(client)
    with simulator.precision():
        row: Row = jax.tree.map(lambda leaf: leaf[0], simulator.store.gather(np.array([place])))
        received = method.broadcast(simulator.hub, place) if method.exchange == "star" else ()
        spent, gradients = [], 1
        for t in range(repeats + 1):
            begun = time.perf_counter()
            out = _local(
                simulator.spec,
                method,
                simulator.data,
                simulator.seed,
                t,
                place,
                received,
                row.memory,
            )
            jax.block_until_ready(out)
            spent.append(time.perf_counter() - begun)
            gradients = max(1, int(out[2]))
    return float(np.median(spent[1:])) / gradients
