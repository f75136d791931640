"""kin: the clients whose models have moved in the most similar directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.coupling.graph import Graph, from_edges
from coterie.coupling.learnt.base import (
    NAME,
    Evidence,
    Neighbourly,
    candidates,
    ranks,
    rule,
    top,
)


@rule("kin", title="Kin")
class Kin(Neighbourly):
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

    neighbours: int = option(
        9, "others that each client chooses (all, where there are fewer)", symbol="k", low=1
    )
    least: float = option(-1.0, "cosine that kin must have", symbol="c", low=-1, high=1)

    def graph(self, evidence: Evidence) -> Graph:
        low, high, cosines = candidates(evidence, self.neighbours)
        near = cosines >= self.least
        low, high = low[near], high[near]
        kept = ranks(low, high, cosines[near]) < self.most(evidence.clients)
        return from_edges(evidence.clients, low[kept], high[kept], self.weight, NAME)

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        best = top(cosines[None], self.neighbours)[0]
        out = np.zeros(len(cosines))
        out[best[cosines[best] >= self.least]] = self.weight
        return out
