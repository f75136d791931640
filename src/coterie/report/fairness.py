"""How evenly a method serves its clients, and whether those who bring much get much."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def tenth(scores: Array, *, best: bool = False) -> float:
    """Mean of the lowest (or highest) tenth of the clients, at least one.

    >>> tenth(np.array([0.9, 0.1, 0.5])), tenth(np.array([0.9, 0.1, 0.5]), best=True)
    (0.1, 0.9)
    """
    s = np.sort(scores[~np.isnan(scores)])
    count = max(1, -(-len(s) // 10))
    return float((s[-count:] if best else s[:count]).mean())


def jain(values: Array) -> float:
    """Jain's index (Σv)²/(n Σv²): 1 when all have the same, 1/n when one has everything; for values
    ≥ 0.

    >>> jain(np.array([1.0, 1.0])), jain(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    v = values[~np.isnan(values)]
    square = float((v**2).sum())
    return float(v.sum()) ** 2 / (len(v) * square) if square > 0 else 1.0


def entropy(values: Array) -> float:
    """Entropy of the shares v/Σv, divided by log n: 1 when all have the same, 0 when one has
    everything; for values ≥ 0.

    >>> round(entropy(np.array([2.0, 2.0, 2.0])), 12), entropy(np.array([1.0, 0.0]))
    (1.0, 0.0)
    """
    v = values[~np.isnan(values)]
    if len(v) < 2 or v.sum() <= 0:
        return 1.0
    share = v[v > 0] / v.sum()
    return abs(float(-(share * np.log(share)).sum() / np.log(len(v))))


def correlation(a: Array, b: Array) -> float:
    """Pearson's correlation over the clients that both have; NaN when either does not vary."""
    both = ~(np.isnan(a) | np.isnan(b))
    x, y = a[both] - a[both].mean(), b[both] - b[both].mean()
    norm = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / norm if norm > 0 else float("nan")


@dataclasses.dataclass(frozen=True)
class Fairness:
    """Of one run, over its clients."""

    score_variance: float
    loss_variance: float
    worst: float
    best: float
    jain: float
    entropy: float
    loss_jain: float
    loss_entropy: float
    collaboration: float
    """Correlation of a client's score with what it reaches alone with equal gradient steps; NaN
    without a Local.
    """

    @classmethod
    def of(cls, scores: Array, losses: Array, alone: Array | None) -> Fairness:
        shifted = (
            scores if np.nanmin(scores) >= 0 else scores - np.nanmin(scores)
        )  # negated errors are below 0
        return cls(
            float(np.nanvar(scores)),
            float(np.nanvar(losses)),
            tenth(scores),
            tenth(scores, best=True),
            jain(shifted),
            entropy(shifted),
            jain(losses),
            entropy(losses),
            correlation(scores, alone) if alone is not None else float("nan"),
        )
