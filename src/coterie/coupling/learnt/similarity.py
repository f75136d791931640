"""attention and simplex: the weights of FedAMP and of pFedGraph, as graphs for FedU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.search import LogRange
from coterie.coupling.graph import Graph
from coterie.coupling.learnt.base import Evidence, GraphRule, of_edges, ranks, rule, top

MOST_CLIENTS = 5000
"""These rules compare everybody with everybody, in N² numbers."""


def strongest(weights: NDArray[Any], rule_: Any, known: NDArray[np.bool_]) -> Graph:
    """A graph of each client's strongest ties, of a symmetric table of weights that are scaled to
    add up to `total` on average.
    """
    n = len(weights)
    weights = np.where(known[:, None] & known[None], weights, 0.0)
    np.fill_diagonal(weights, 0.0)
    kept = np.zeros((n, n), bool)
    np.put_along_axis(kept, top(weights, rule_.neighbours), values=True, axis=1)
    low, high = np.nonzero(np.triu((kept | kept.T) & (weights > 0), 1))
    a = weights[low, high]
    there = ranks(low, high, a) < rule_.most(n)
    low, high, a = low[there], high[there], a[there]
    scale = rule_.weight * rule_.total * int(known.sum()) / (2 * a.sum()) if len(a) else 1.0
    return of_edges(low, high, scale * a, n)


class _Compared(GraphRule):
    """Shared by rules that give every pair a weight and keep the strongest."""

    def most(self, clients: int) -> int:
        return min(clients - 1, int(self.crowd * self.neighbours))  # type: ignore[attr-defined]

    def check(self, evidence: Evidence) -> None:
        if evidence.clients > MOST_CLIENTS:
            raise InvalidInput(
                f"the rule {self.name!r} compares everybody with everybody and is for at most"
                f' {MOST_CLIENTS} clients, but there are {evidence.clients}; take "kin".'
            )

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        """Its `neighbours` nearest, alike, adding up to `total`."""
        me: Any = self
        best = top(cosines[None], me.neighbours)[0]
        best = best[np.isfinite(cosines[best])]
        out = np.zeros(len(cosines))
        out[best] = self.weight * me.total / max(1, len(best))
        return out


@rule(
    "attention",
    title="FedAMP's weights",
    paper="Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021",
)
class Attention(_Compared):
    """Whose model is near counts much: FedAMP's weights, as a graph.

    a_kl ∝ A'(d_kl) = exp(−d_kl/σ)/σ,  d_kl = ‖v_k − v_l‖² over its mean

    ============  ============
    symbol        argument
    ============  ============
    σ             sigma
    ============  ============

    FedAMP has α A' with a step size α; here weights are scaled so that a client's add up to `total`
    on average, and FedU's η is the step. Each client's `neighbours` strongest are kept.
    """

    sigma: float = option(
        0.3,
        "squared distances of this size, relative to their mean, count as near",
        symbol="σ",
        above=0,
        search=LogRange(0.03, 3),
    )
    total: float = option(9.0, "what a client's weights add up to, on average", above=0)
    neighbours: int = option(20, "ties of each client that are kept", low=1)
    crowd: float = option(
        3.0, "nobody has more than this many times `neighbours` neighbours", low=1, static=True
    )

    def graph(self, evidence: Evidence) -> Graph:
        self.check(evidence)
        d = evidence.squared_distances()
        d = d / max(float(d[np.ix_(evidence.known, evidence.known)].mean()), 1e-300)
        return strongest(np.exp(-(d - d.min()) / self.sigma), self, evidence.known)


@rule(
    "simplex",
    title="pFedGraph's weights",
    paper=(
        "Ye et al., Personalized Federated Learning with Inferred Collaboration Graphs, ICML 2023"
    ),
)
class Simplex(_Compared):
    """pFedGraph's weights, as a graph: a point on the simplex for every client, near to all alike
    and moved towards those whose models are alike.

    w_k = argmin over the simplex of Σ_l (w_l − 1/N)² − α Σ_l w_l cos(v_k, v_l);
    a_kl ∝ w_kl + w_lk

    ============  ============
    symbol        argument
    ============  ============
    α             alpha
    ============  ============

    pFedGraph has n_l/n in the place of 1/N; how many samples others have is not known here. A
    client's own weight is left out, and weights are scaled so that they add up to `total` on
    average. Each client's `neighbours` strongest ties are kept.
    """

    alpha: float = option(
        0.3, "how much likeness counts", symbol="α", low=0, search=LogRange(0.03, 3)
    )
    total: float = option(9.0, "what a client's weights add up to, on average", above=0)
    neighbours: int = option(20, "ties of each client that are kept", low=1)
    crowd: float = option(
        3.0, "nobody has more than this many times `neighbours` neighbours", low=1, static=True
    )

    def graph(self, evidence: Evidence) -> Graph:
        from coterie.coupling.learnt.simplex import weights

        self.check(evidence)
        cosines = evidence.cosines(evidence.sketches)
        found = np.asarray(
            weights(-cosines, evidence.known, sizes=np.ones(evidence.clients), alpha=self.alpha),
            float,
        )
        return strongest(found + found.T, self, evidence.known)
