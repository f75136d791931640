"""Who owns which sample: rules that split one labelled data set into clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.errors import InvalidInput


def labels_per_client(
    y: NDArray[Any], clients: int, fewest: int, most: int, rng: np.random.Generator, *, spread: float = 0.0
) -> NDArray[np.int64]:
    """The owner of each sample when every client holds between `fewest` and `most` of the classes.

    Classes are dealt in turn, so each is held by about as many clients as any other; each class's samples are then shared among its
    holders, equally (`spread` = 0) or in proportions exp(spread · N(0, 1)). Every holder of a class gets at least one sample of it.
    """
    classes = np.unique(y)
    if not 1 <= fewest <= most:
        raise InvalidInput(f"labels per client run from {fewest} to {most}; they must satisfy 1 ≤ fewest ≤ most.")
    if most > len(classes):
        raise InvalidInput(f"{most} labels per client are asked for, but the data has only {len(classes)} labels.")
    counts = rng.integers(fewest, most + 1, clients)
    holders: dict[int, list[int]] = {int(c): [] for c in classes}
    for k in rng.permutation(clients):
        # The classes with the fewest holders so far come first; ties are broken at random.
        ranked = sorted(holders, key=lambda c: (len(holders[c]), rng.random()))
        for c in ranked[: counts[k]]:
            holders[c].append(int(k))
    owner = np.full(len(y), -1, np.int64)
    for c, owners in holders.items():
        rows = rng.permutation(np.flatnonzero(y == c))
        if not owners:
            continue
        if len(owners) > len(rows):
            raise InvalidInput(f"class {c} has {len(rows)} samples but {len(owners)} clients hold it; use fewer clients or labels.")
        share = np.exp(spread * rng.standard_normal(len(owners)))
        cuts = np.floor(np.cumsum(share / share.sum()) * (len(rows) - len(owners)) + 1e-9).astype(int) + np.arange(1, len(owners) + 1)
        cuts[-1] = len(rows)
        for k, part in zip(owners, np.split(rows, cuts[:-1]), strict=True):
            owner[part] = k
    return owner
