"""kin: the clients whose models have moved in the most similar directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.coupling.graph import Graph
from coterie.coupling.learnt.base import (
    Evidence,
    GraphRule,
    candidates,
    of_edges,
    ranks,
    rule,
    top,
)


@rule("kin", title="Kin")
class Kin(GraphRule):
    """Each client is joined to the k others whose models have moved in the most similar directions,
    by the cosines of their sketches. A tie of either makes an edge.

    c_kl = cos(P v_k, P v_l);  a_kl = 1 if l is among the k largest of c_k· with c_kl ≥ c, or k
    among those of c_l·, else 0

    ============  ============
    symbol        argument
    ============  ============
    k             neighbours
    c             least
    P             sketch (its rows), bits
    ============  ============

    It joins the three papers: lp-proj's random subspace finds kin, FedU learns with them, and a
    channel such as `delta` pays little for it. A client may be chosen by many; nobody has more than
    `most` neighbours (an edge must be among the `most` best of both its ends).
    """

    neighbours: int = option(9, "others that each client chooses", symbol="k", low=1)
    least: float = option(-1.0, "cosine that kin must have", symbol="c", low=-1, high=1)
    crowd: float = option(
        3.0, "nobody has more than this many times `neighbours` neighbours", low=1, static=True
    )

    def most(self, clients: int) -> int:
        return min(clients - 1, int(self.crowd * self.neighbours))

    def graph(self, evidence: Evidence) -> Graph:
        whose, others, cosines = candidates(evidence, self.neighbours)
        there = cosines >= self.least
        low = np.minimum(whose, others)[there]
        high = np.maximum(whose, others)[there]
        n = evidence.clients
        _, first = np.unique(low * n + high, return_index=True)
        low, high, strength = low[first], high[first], cosines[there][first]
        kept = ranks(low, high, strength) < self.most(n)
        return of_edges(low[kept], high[kept], np.full(int(kept.sum()), self.weight), n)

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        best = top(cosines[None], self.neighbours)[0]
        out = np.zeros(len(cosines))
        out[best[cosines[best] >= self.least]] = self.weight
        return out
