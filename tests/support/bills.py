"""Byte bills and links by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.network import LinkSpeeds

FREE: dict[str, Any] = {
    "work_seconds": 0,
    "message_seconds": 0,
    "round_seconds": 0,
    "slow_start": False,
}


def links(latency: Any, up: Any = np.inf, down: Any = np.inf, gradient: Any = 0.0) -> LinkSpeeds:
    return LinkSpeeds(
        *(np.asarray(a, float) for a in np.broadcast_arrays(latency, up, down, gradient))
    )


def bill(rounds: int, up: Any, down: Any, gradients: Any) -> np.ndarray:
    """The same round again and again."""
    up, down, gradients = np.broadcast_arrays(up, down, gradients)
    return np.array(
        [(t, k, up[k], down[k], gradients[k]) for t in range(rounds) for k in range(len(up))]
    )


def in_order(rows: Any, alone: int = 0) -> Any:
    """A bill by rounds and clients; the rounds alone, for which a hub asks nobody, and the sketches
    after them as one.
    """
    first, rest = rows[rows[:, 0] <= alone], rows[rows[:, 0] > alone]
    if alone:
        clients = np.unique(first[:, 1])
        sums = [first[first[:, 1] == k][:, 2:].sum(0) for k in clients]
        first = np.array([[alone, k, *total] for k, total in zip(clients, sums, strict=True)])
    rows = np.concatenate([first.reshape(-1, 5), rest])
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]
