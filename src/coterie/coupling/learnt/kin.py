"""kin: the clients whose models have moved in the most similar directions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.coupling.graph import Graph, from_edges
from coterie.coupling.learnt import gossip as talk
from coterie.coupling.learnt.base import (
    NAME,
    Evidence,
    Gossiped,
    Neighbourly,
    candidates,
    ranks,
    rule,
    top,
)


@rule("kin", title="Kin")
class Kin(Neighbourly):
    """Each client is joined to the k others whose models have moved in the most similar directions,
    by the cosines of their sketches. A tie of either makes an edge, or of both (`ties`).

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
    `most` neighbours (an edge must be among the `most` best of both its ends). With ties of both
    nobody has more than k.

    Without a hub, `gossip` spares that everybody's sketch goes to everybody: in so many phases
    peers meet in pairs, tell each other of whom they know, and in the end choose among those that
    they have heard of.
    """

    neighbours: int = option(
        9, "others that each client chooses (all, where there are fewer)", symbol="k", low=1
    )
    least: float = option(-1.0, "cosine that kin must have", symbol="c", low=-1, high=1)
    ties: str = option(
        "either", "who must have chosen the other for an edge", choices=("either", "both")
    )
    gossip: int = option(
        0,
        "methods without a hub: phases in which peers meet in pairs to hear of their kin; 0:"
        ' everybody\'s sketch goes to everybody. Needs ties = "both"',
        low=0,
        high=1000,
    )
    tell: int = option(4, "gossip: others of whom a peer tells its partner", low=0, high=1000)

    def validate(self) -> None:
        super().validate()
        if self.gossip and self.ties != "both":
            raise InvalidInput(
                f"kin.gossip is {self.gossip} and kin.ties is {self.ties!r}, but peers that gossip"
                ' know only whom they chose themselves: kin.ties must be "both".'
            )

    def unused(self) -> dict[str, str]:
        mine = {"crowd": 'kin.ties is "both"'} if self.ties == "both" else {}
        if not self.gossip:
            mine["tell"] = "kin.gossip is 0"
        return {**super().unused(), **mine}

    @property
    def gossips(self) -> bool:
        return self.gossip > 0

    def most(self, clients: int) -> int:
        if self.ties == "both":
            return min(clients - 1, self.neighbours)
        return super().most(clients)

    def graph(self, evidence: Evidence) -> Graph:
        pairs = candidates(evidence, self.neighbours)
        pairs = pairs.where(pairs.cosines >= self.least)
        if self.ties == "both":
            pairs = pairs.where(pairs.both)
        pairs = pairs.where(ranks(*pairs[:3]) < self.most(evidence.clients))
        return from_edges(evidence.clients, pairs.low, pairs.high, self.weight, NAME)

    def gossiped(self, evidence: Evidence, seed: int, t: int, message: int) -> Gossiped | None:
        if not self.gossip:
            return None
        found = talk.everybody(self, evidence, seed, t, self.sketch_bytes(message))
        graph = from_edges(evidence.clients, found.low, found.high, self.weight, NAME)
        return Gossiped(graph, found.up, found.down)

    def newcomer(self, cosines: NDArray[Any]) -> NDArray[np.float64]:
        best = top(cosines[None], self.neighbours)[0]
        out = np.zeros(len(cosines))
        out[best[cosines[best] >= self.least]] = self.weight
        return out
