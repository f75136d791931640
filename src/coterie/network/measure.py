"""How long a gradient takes on this machine."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import numpy as np

from coterie.engine.setting import ClientState, Round
from coterie.engine.simulator import Simulator
from coterie.methods.star import StarMethod


@partial(jax.jit, static_argnames="spec")
def _local(spec: Any, setting: Any, t: Any, client: Any, received: Any, own: Any) -> Any:
    objective = Round(spec, setting, t).objective(client)
    return setting.method.local(received, own, objective)


def measure_gradient_seconds(simulator: Simulator, *, client: int = 0, repeats: int = 20) -> float:
    """Seconds per mini-batch gradient of one client alone on this machine: the median of several
    rounds of local work, compiled beforehand.
    """
    method, index = simulator.method, simulator.roll.index_of(client)
    with simulator.precision():
        rows = simulator.store.gather(np.array([index]))
        row: ClientState = jax.tree.map(lambda leaf: leaf[0], rows)
        received = method.broadcast(simulator.hub, index) if isinstance(method, StarMethod) else ()
        spent, gradients = [], 1
        setting = simulator.supply.setting(simulator.setting, np.array([index]))
        for t in range(repeats + 1):
            begun = time.perf_counter()
            out = _local(simulator.spec, setting, t, index, received, row.method_state)
            jax.block_until_ready(out)
            spent.append(time.perf_counter() - begun)
            gradients = max(1, int(out.gradients))
    return float(np.median(spent[1:])) / gradients
