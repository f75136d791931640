"""dada: the weights that minimise distances, with a penalty on degrees and on size."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize

from coterie.core.options import option
from coterie.core.search import LogRange
from coterie.coupling.graph import Graph
from coterie.coupling.learnt.base import Evidence, Scaled, candidates, empty, rule

DELTA = 1e-3
"""Keeps the logarithm finite where a client has no neighbours."""


@rule(
    "dada",
    title="Dada's weights",
    paper=(
        "Zantedeschi, Bellet, Tommasi, Fully Decentralized Joint Learning of Personalized Models"
        " and Collaboration Graphs, AISTATS 2020"
    ),
)
class Dada(Scaled):
    """Sparse weights that tie clients with near models: the graph step of Dada's alternating
    minimisation. The model steps are those of the method that uses the graph.

    min_{a ≥ 0} Σ_{k<l} a_kl z_kl + β Σ_{k<l} a_kl² − Σ_k log(Σ_l a_kl + δ),  z_kl = ‖v_k − v_l‖²

    ============  ============
    symbol        argument
    ============  ============
    β             beta
    z_kl          from sketches, over their mean; both given scale to the problem
    δ             0.001
    ============  ============

    The logarithm keeps everybody tied to somebody, β spreads the weights. Dada's objective also has
    a client's degree times its loss, which a hub does not know; it is left out. The solution is
    scaled so that a client's weights add up to `total` on average. Only each client's `neighbours`
    nearest are candidates, so that memory does not grow with N².
    """

    beta: float = option(
        1.0, "how evenly weights are spread", symbol="β", above=0, search=LogRange(0.01, 100)
    )

    def graph(self, evidence: Evidence) -> Graph:
        n = evidence.clients
        low, high = candidates(evidence, self.neighbours)[:2]
        if not len(low):
            return empty(n)
        difference = evidence.sketches[low] - evidence.sketches[high]
        z = np.sum(difference**2, axis=1)
        a = solve(low, high, z / max(float(z.mean()), 1e-300), n, self.beta)
        there = a >= 1e-3 * a.max()  # the rest is within the solver's accuracy of nothing
        a = self.scaled(a[there], evidence.known)
        return self.strongest(low[there], high[there], a, n)


def solve(
    low: NDArray[Any], high: NDArray[Any], z: NDArray[Any], clients: int, beta: float
) -> NDArray[np.float64]:
    """The weights of the edges (low, high) with the costs z."""
    edges = len(low)
    ones, place = np.ones(edges), np.arange(edges)
    ends = sp.csr_array((ones, (low, place)), shape=(clients, edges)) + sp.csr_array(
        (ones, (high, place)), shape=(clients, edges)
    )
    there = np.unique(np.concatenate([low, high]))
    ends = sp.csr_array(ends[there])

    def objective(a: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        degrees = ends @ a + DELTA
        value = float(a @ z + beta * (a @ a) - np.log(degrees).sum())
        return value, z + 2 * beta * a - ends.T @ (1 / degrees)

    begin = np.full(edges, len(there) / (2 * edges))
    found = minimize(
        objective,
        begin,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * edges,
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-8, "maxfun": 10**6},
    )
    return np.asarray(found.x)
