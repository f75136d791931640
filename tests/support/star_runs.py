"""Runs without evaluations, for tests that look at states only: evaluating is half of what there is
to compile.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie import Federation, Method, Simulator, Training


def trained(
    method: Method, federation: Federation, model: Any = "mlr", **training: Any
) -> Simulator:
    batch = {} if training.get("sampling") == "full" else {"batch_size": 4}
    options = Training.from_config({"rounds": 4, **batch, "precision": "float64", **training})
    simulator = Simulator(method, federation, model, options)
    simulator.template = simulator.template.map(
        np.array
    )  # the hub may be the template itself, whose memory rounds use again
    while simulator.t < options.rounds:
        simulator.advance(options.rounds - simulator.t)
    return simulator


def flat(tree: Any) -> NDArray[Any]:
    """All numbers of one model (or any other state), in a row."""
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def kept(simulator: Simulator) -> NDArray[Any]:
    """What every client keeps, a row each."""
    return np.concatenate(
        [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(memories(simulator))], axis=1
    )


def memories(simulator: Simulator) -> Any:
    """The same as it is, stacked along axis 0."""
    return jax.tree.map(
        np.asarray, simulator.store.gather(np.arange(simulator.spec.clients)).method_state
    )
