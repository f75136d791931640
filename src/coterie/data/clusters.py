"""Hidden clusters: clients whose samples differ by a rule that nobody is told, to see who finds his
kin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

KINDS = ("rotate", "permute")
QUARTERS = 4


def drawn(clients: int, clusters: int, seed: int) -> NDArray[np.int64]:
    """The cluster of every client: sizes differ by one at most, who is where is random."""
    if clusters > clients:
        raise InvalidInput(
            f"hidden is {clusters}, but there are {clients} clients; it must not be larger."
        )
    rng = np.random.default_rng([seed, 0xC1])
    return np.asarray(rng.permutation(np.arange(clients) % clusters))


def label_orders(classes: int, clusters: int, seed: int) -> NDArray[np.int64]:
    """The labels as each cluster calls them, (clusters, classes); the first keeps their names.

    No two clusters agree on all labels.
    """
    rng = np.random.default_rng([seed, 0xC2])
    orders = [tuple(range(classes))]
    while len(orders) < clusters:
        one = tuple(int(c) for c in rng.permutation(classes))
        if one not in orders:
            orders.append(one)
    return np.array(orders, np.int64)


def hide(
    x: NDArray[Any],
    y: NDArray[Any],
    of: NDArray[np.int64],
    by: str,
    orders: NDArray[np.int64],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples of every cluster in its own way; `of` is each sample's cluster (−1: nobody's).

    "rotate" turns pictures (samples, height, width, channels) of cluster c by c quarter turns.
    "permute" calls the labels of cluster c by `orders[c]`.
    """
    if by == "permute":
        return x, np.where(of >= 0, orders[np.maximum(of, 0), y], y).astype(y.dtype)
    if x.ndim != 4 or x.shape[1] != x.shape[2]:
        raise InvalidInput(
            'hidden_by is "rotate", but the samples are no square pictures; it must be "permute".'
        )
    if of.max(initial=0) >= QUARTERS:
        raise InvalidInput(
            f'hidden is {of.max() + 1} and hidden_by is "rotate", but there are {QUARTERS} quarter'
            ' turns; take fewer clusters, or "permute".'
        )
    turned = x.copy()
    for c in range(1, QUARTERS):
        mine = of == c
        turned[mine] = np.rot90(x[mine], c, axes=(1, 2))
    return turned, y
