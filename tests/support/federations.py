"""Small made-up federations."""

from __future__ import annotations

import numpy as np

from coterie.data.federation import Split, pack


def blobs(rng: np.random.Generator, sizes: list[int], features: int, classes: int) -> Split:
    """Random inputs whose labels depend on the client, so that clients really differ."""
    parts = []
    for k, n in enumerate(sizes):
        x = rng.standard_normal((n, features)) + 0.3 * k
        rule = rng.standard_normal((features, classes))
        parts.append((x, np.argmax(x @ rule, axis=1).astype(np.int32)))
    return pack(parts)
