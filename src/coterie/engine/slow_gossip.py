"""The gossip of peers (coupling/learnt/gossip.py) a second time, one peer after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.coupling.graph import Graph, from_edges
from coterie.coupling.learnt import gossip


def gossip_slowly(
    rule: Any, own: NDArray[np.float64], seed: int, *, t: int, size: int
) -> tuple[Graph, NDArray[Any], NDArray[Any]]:
    """Of everybody's sketches: the graph, and the bytes that each sent and got; `size` is the bytes
    of a sketch.
    """
    n = len(own)
    known: list[dict[int, NDArray[np.float64]]] = [{} for _ in own]
    up, down = np.zeros((2, n), np.int64)

    def send(k: int, l: int, count: int) -> None:
        up[k] += count
        down[l] += count

    for phase in range(rule.gossip):
        drawn = gossip.partners(seed, t, phase, n)
        pairs = [(k, int(l)) for k, l in enumerate(drawn) if k != l]
        tells = {k: gossip.told(rule, known[k], l, own[l]) for k, l in pairs}
        for k, l in pairs:
            known[k] |= {l: own[l], **tells[l]}
            send(k, l, size + len(gossip.passed_on(tells[k], rule.bits)))
    near: list[dict[int, NDArray[np.float64]]] = [{} for _ in own]
    for k in range(n):
        for l in gossip.chosen(rule, known[k], own[k]):
            near[k][l], near[l][k] = own[l], own[k]
            send(k, l, size)
        for stride in gossip.strides(n):
            send(k, (k + stride) % n, 1)
    kept = [gossip.chosen(rule, near[k], own[k]) for k in range(n)]
    for k in range(n):
        for l in near[k]:
            send(k, l, 1)
    edges = [(k, l) for k in range(n) for l in kept[k] if k < l and k in kept[l]]
    low, high = np.array(edges, np.int64).reshape(-1, 2).T
    return from_edges(n, low, high, rule.weight, "learnt"), up, down
