"""attention and simplex: the weights of FedAMP and of pFedGraph, as graphs for FedU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.search import LogRange
from coterie.coupling.graph import Graph
from coterie.coupling.learnt.base import Evidence, Scaled, rule, top

MOST_CLIENTS = 5000
"""These rules compare everybody with everybody, in N² numbers."""


class Compared(Scaled):
    """Shared by rules that give every pair a weight and keep each client's strongest."""

    def pairs(self, evidence: Evidence) -> NDArray[np.float64]:
        """A weight for every pair, symmetric."""
        raise NotImplementedError

    def graph(self, evidence: Evidence) -> Graph:
        n, known = evidence.clients, evidence.known
        if n > MOST_CLIENTS:
            raise InvalidInput(
                f"the rule {self.name!r} compares everybody with everybody and is for at most"
                f' {MOST_CLIENTS} clients, but there are {n}; take "kin".'
            )
        weights = np.where(known[:, None] & known[None], self.pairs(evidence), 0.0)
        np.fill_diagonal(weights, 0.0)
        kept = np.zeros((n, n), bool)
        np.put_along_axis(kept, top(weights, self.neighbours), values=True, axis=1)
        low, high = np.nonzero(np.triu((kept | kept.T) & (weights > 0), 1))
        return self.strongest(low, high, self.scaled(weights[low, high], known), n)


@rule(
    "attention",
    title="FedAMP's weights",
    paper="Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021",
)
class Attention(Compared):
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

    def pairs(self, evidence: Evidence) -> NDArray[np.float64]:
        d = evidence.squared_distances()
        d = d / max(float(d[np.ix_(evidence.known, evidence.known)].mean()), 1e-300)
        return np.asarray(np.exp(-(d - d.min()) / self.sigma))


@rule(
    "simplex",
    title="pFedGraph's weights",
    paper=(
        "Ye et al., Personalized Federated Learning with Inferred Collaboration Graphs, ICML 2023"
    ),
)
class Simplex(Compared):
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

    def pairs(self, evidence: Evidence) -> NDArray[np.float64]:
        from coterie.coupling.learnt.simplex import weights

        cosines = evidence.cosines(evidence.sketches)
        found = np.asarray(
            weights(-cosines, evidence.known, sizes=np.ones(evidence.clients), alpha=self.alpha),
            float,
        )
        return np.asarray(found + found.T)
