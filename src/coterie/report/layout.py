"""Where the clients of a graph are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.coupling.graph import Graph

Array = NDArray[Any]


def places(graph: Graph, steps: int = 120) -> Array:
    """A point in the unit square for each client: tied clients attract each other by their weight,
    and all repel each other (Fruchterman and Reingold's rule). The same graph gives the same
    picture.

    >>> from coterie.coupling.graph import ring
    >>> places(ring(4)).shape
    (4, 2)
    """
    n = graph.clients
    turn = 2 * np.pi * np.arange(n) / max(n, 1)
    at = np.stack([np.cos(turn), np.sin(turn)], 1)
    at += 0.05 * np.random.default_rng(0).standard_normal((n, 2))  # a ring of equals never unfolds
    ties = graph.weights.toarray() / max(float(graph.weights.data.max(initial=0.0)), 1e-12)
    room = 1.0 / np.sqrt(max(n, 1))
    for step in range(steps):
        apart = at[:, None] - at[None]
        far = np.maximum(np.sqrt((apart**2).sum(-1)), 1e-3)
        pushed = (apart * (room**2 / far**2)[..., None]).sum(1)
        pulled = (apart * (ties * far / room)[..., None]).sum(1) / np.maximum(1.0, ties.sum(1))[
            :, None
        ]
        moved = (
            pushed - pulled - 0.5 * room * at
        )  # and towards the middle: parts stay in the picture
        long = np.maximum(np.sqrt((moved**2).sum(1, keepdims=True)), 1e-9)
        most = 0.2 * (1.0 - step / steps) + 0.002
        at = at + moved / long * np.minimum(long, most)
    low, high = at.min(0), at.max(0)
    return np.asarray((at - low) / np.maximum(high - low, 1e-9))
