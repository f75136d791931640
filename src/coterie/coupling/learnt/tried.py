"""Rules that try others' models on a client's own validation rows, of a few candidates that the
sketches name.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.coupling.graph import Graph, from_edges
from coterie.coupling.learnt.base import NAME, Evidence, Scaled, ranks, rule, top


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trying(Scaled):
    """Shared by rules that download models of a few candidates."""

    tries_models: ClassVar[bool] = True

    tries: int = option(
        8, "models of others that each client downloads and tries", symbol="M", low=1
    )

    def downloads(self, evidence: Evidence) -> NDArray[np.int64]:
        """For every client the others with the largest cosines, (N, M); −1 where there are fewer,
        and for who is not known.
        """
        cosines = evidence.cosines(evidence.sketches)
        cosines[:, ~evidence.known] = -np.inf
        np.fill_diagonal(cosines, -np.inf)
        best = top(cosines, min(self.tries, max(1, evidence.clients - 1)))
        there = np.isfinite(np.take_along_axis(cosines, best, 1)) & evidence.known[:, None]
        return np.where(there, best, -1)


def symmetric(whose: NDArray[Any], others: NDArray[Any], weights: NDArray[Any], n: int) -> Any:
    """Edges with the mean of both ends' weights: the smaller number, the larger, the weight."""
    low, high = np.minimum(whose, others), np.maximum(whose, others)
    key, place = np.unique(low * n + high, return_inverse=True)
    total = np.bincount(place, weights=weights, minlength=len(key))
    return key // n, key % n, total / 2


@rule(
    "gain",
    title="Gain on validation rows",
    paper=(
        "Zhang, Sapra, Fidler, Yeung, Alvarez, Personalized Federated Learning with First Order"
        " Model Optimization, ICLR 2021"
    ),
)
class Gain(Trying):
    """Whose model does better on a client's own validation rows counts, per distance: FedFomo's
    weights, as a graph.

    w_kl = max(0, F_k(x_k) − F_k(x_l)) / ‖v_k − v_l‖, divided by their sum over l
    a_kl ∝ w_kl + w_lk

    ============  ============
    symbol        argument
    ============  ============
    M             tries
    v             sketches: how models have moved
    F_k           the mean loss on client k's validation rows
    ============  ============

    Each client downloads the models of the M others with the largest cosines, which is billed. A
    client for which nobody's model is better chooses nobody; it may be chosen.
    """

    def graph(self, evidence: Evidence) -> Graph:
        n, tried = evidence.clients, self.downloads(evidence)
        alone = np.broadcast_to(np.arange(n)[:, None, None], (n, 1, 1))
        losses = evidence.losses(np.concatenate([alone, tried[:, :, None]], axis=1))
        gains = np.maximum(losses[:, :1] - losses[:, 1:], 0.0)
        squares = evidence.squared_distances()
        apart = np.sqrt(np.take_along_axis(squares, np.maximum(tried, 0), 1))
        w = np.where((tried >= 0) & (apart > 0), gains / np.where(apart > 0, apart, 1.0), 0.0)
        w = w / np.maximum(w.sum(1, keepdims=True), 1e-300)
        whose, place = np.nonzero(w > 0)
        low, high, a = symmetric(whose, tried[whose, place], w[whose, place], n)
        return self.strongest(low, high, self.scaled(a, evidence.known), n)


@rule(
    "greedy",
    title="Greedy choice within a budget",
    paper=(
        "Kharrat, Canini, Horváth, DPFL: Decentralized Personalized Federated Learning, AISTATS"
        " 2025"
    ),
)
class Greedy(Trying):
    """Each client takes neighbours one by one, always the one that helps most, until nobody helps
    or it has k: DPFL's greedy choice, as a graph.

    B_k = ∅; then up to k times l* = argmin_l F_k(mean of x_k, x_j for j ∈ B_k, and x_l), taken if
    that is below F_k without l*;  a_kl = 1 if l ∈ B_k or k ∈ B_l

    ============  ============
    symbol        argument
    ============  ============
    k             neighbours
    M             tries
    F_k           the mean loss on client k's validation rows
    ============  ============

    Each client downloads the models of the M others with the largest cosines, which is billed; the
    paper downloads everybody's. DPFL's graph is directed; here a tie of either makes an edge, since
    FedU's pulls are mutual.
    """

    neighbours: int = option(5, "others that each client takes at most", symbol="k", low=1)

    def graph(self, evidence: Evidence) -> Graph:
        n, tried = evidence.clients, self.downloads(evidence)
        count = min(self.neighbours, tried.shape[1])
        sets = np.full((n, tried.shape[1], count + 1), -1, np.int64)
        sets[:, :, 0] = np.arange(n)[:, None]
        best = evidence.losses(sets[:, :1])[:, 0]
        free, everyone = tried >= 0, np.arange(n)
        chosen: list[tuple[NDArray[Any], NDArray[Any]]] = []
        going: NDArray[np.bool_] = np.asarray(free.any(1))
        for place in range(count):
            sets[:, :, place + 1] = np.where(free, tried, -1)
            losses = np.where(free & going[:, None], evidence.losses(sets), np.inf)
            pick = losses.argmin(1)
            found = losses[everyone, pick]
            going &= found < best
            best = np.where(going, found, best)
            taken = np.where(going, tried[everyone, pick], -1)
            sets[:, :, place + 1] = taken[:, None]
            free[everyone[going], pick[going]] = False
            chosen.append((everyone[going], taken[going]))
            if not going.any():
                break
        whose = np.concatenate([k for k, _ in chosen])
        others = np.concatenate([l for _, l in chosen])
        low, high, tied = symmetric(whose, others, np.ones(len(whose)), n)
        kept = ranks(low, high, tied) < self.most(n)
        return from_edges(n, low[kept], high[kept], self.weight, NAME)
