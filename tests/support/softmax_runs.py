"""Short runs in float64 on all data, and softmax regression in NumPy to repeat them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import coterie
from coterie import Federation, Method

EXACT: dict[str, Any] = {"rounds": 3, "eval_every": 3, "sampling": "full", "precision": "float64"}
MLP = coterie.get_model("mlp", {"hidden": "5"})


def flat(method: Method, federation: Federation, model: Any = MLP, **more: Any) -> NDArray[Any]:
    """Every client's model after a run, a row each."""
    stacked = coterie.simulate(
        method, federation, model, **{**EXACT, **more}
    ).simulator.all_models()
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in stacked.leaves], axis=1)


def start(method: Method, federation: Federation, model: Any) -> Any:
    """The parameters before the first round, as numpy arrays."""
    options = coterie.Training.from_config(EXACT)
    return jax.tree.map(
        np.array, coterie.Simulator(method, federation, model, options).template.tree
    )


def softmax_error(
    w: NDArray[Any], b: NDArray[Any], x: NDArray[Any], y: NDArray[Any]
) -> NDArray[Any]:
    """What softmax(w x + b) gives, less what is true, row by row."""
    z = x @ w.T + b
    p = np.exp(z - z.max(1, keepdims=True))
    found: NDArray[Any] = p / p.sum(1, keepdims=True) - np.eye(len(b))[y]
    return found


def softmax_gradient(
    w: NDArray[Any], b: NDArray[Any], x: NDArray[Any], y: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of the mean cross-entropy of softmax(w x + b)."""
    error = softmax_error(w, b, x, y)
    return error.T @ x / len(x), error.mean(0)
