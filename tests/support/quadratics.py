"""Clients whose losses are quadratic, so that solutions are known on paper: f_k(x) = (b_k/2)‖x −
ŵ_k‖² + const. Unequal curvatures b_k, clients far from each other; runs in float64 with exact
gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, Method, Result

N, D = 4, 3
EXACT: dict[str, Any] = {"sampling": "full", "precision": "float64"}


def linear(clients: int = N, dimension: int = D) -> Federation:
    return coterie.load(
        "linear",
        clients=clients,
        samples=2 * dimension,
        dimension=dimension,
        scale=0.5,
        scale_last=2.0,
        spread=1.0,
    )


def facts(federation: Federation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """b_k and ŵ_k."""
    return federation.facts["b"][:, None], federation.facts["least_squares"]


def run(
    method: Method, federation: Federation, rounds: int, graph: Graph | None = None, **more: Any
) -> Result:
    """Evaluated at the end only."""
    return coterie.simulate(
        method,
        federation,
        "linear",
        graph=graph,
        rounds=rounds,
        eval_every=rounds,
        **{**EXACT, **more},
    )


def models(result: Result, view: str | None = None) -> NDArray[np.float64]:
    """The weights of all clients, a row each."""
    (leaf,) = result.simulator.all_models(view).leaves
    return np.asarray(leaf).reshape(len(leaf), -1)
