"""The draw behind pFedMe's MNIST split: how many samples of a label each client takes, and from
where.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

Whole = NDArray[np.int64]


class Taken(NamedTuple):
    """What the authors' script takes of a label for client u and slot j: its samples from
    `starts[u, j]` to `ends[u, j]`.
    """

    starts: Whole
    ends: Whole


def taken(y: NDArray[Any], clients: int = 20, seed: int = 1) -> tuple[Whole, Taken]:
    """Labels as 0, 1, …, and the published draw (numpy's legacy generator, seed 1).

    Each label is cut into as many parts as it has holders: all but the last from
    U{total//(holders+1) … total//2 − 1} of what is left. A client takes from the label's start, or,
    since an offset became true/false, from its second sample if the label was given out before.
    """
    classes, y = np.unique(y, return_inverse=True)
    c = len(classes)
    if c % 2 or (2 * clients) % c or clients < 1:
        raise InvalidInput(
            f"clients is {clients}, but the split 'pfedme' needs 2 · clients to be a multiple of"
            f" the {c} labels (an even number)."
        )
    holders = 2 * clients // c
    counts = np.bincount(y, minlength=c)
    if counts.min() < 2 ** (holders + 2):
        raise InvalidInput(
            f"a label has only {counts.min()} samples, too few for {clients} clients of the split"
            " 'pfedme'."
        )
    legacy = np.random.RandomState(seed)  # the published draw
    parts = np.empty((c, holders), np.int64)
    for label in range(c):
        left = int(counts[label])
        for slot in range(holders - 1):
            parts[label, slot] = legacy.randint(left // (holders + 1), left // 2)
            left -= int(parts[label, slot])
        parts[label, -1] = left
    given = np.zeros(c, bool)
    if c > 4:
        # the offset they start from is "is sample l a nine?", true for the fifth image of MNIST
        given[4] = True
    starts = np.zeros((clients, 2), np.int64)
    for u in range(clients):
        for j in range(2):
            starts[u, j], given[(u + j) % c] = given[(u + j) % c], True
    return y, Taken(starts, parts.T.reshape(clients, 2))


def shared(y: NDArray[Any], clients: int = 20, seed: int = 1) -> tuple[Whole, Whole]:
    """The split as it was published: rows of the data, some of them several times, and who owns
    each.

    Client u has the labels u and u + 1 (mod 10) and takes of each from its start, so that clients
    with a label in common share samples: what one trains on, another is tested on.
    """
    y, found = taken(y, clients, seed)
    c = int(y.max()) + 1
    of_label = [np.flatnonzero(y == label) for label in range(c)]
    rows, owner = [], []
    for u in range(clients):
        for j in range(2):
            mine = of_label[(u + j) % c][found.starts[u, j] : found.ends[u, j]]
            rows.append(mine)
            owner.append(np.full(len(mine), u, np.int64))
    return np.concatenate(rows), np.concatenate(owner)
