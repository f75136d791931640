"""Bringing inputs to a common scale, without looking at data that a model will be tested on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import Federation, Split

SCALED = "per feature, fitted on training data; 0 where that never varies"
BLOCK = 4096
"""Rows at once: sums are formed in double precision without a double-precision copy of the data."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """x ↦ (x − mean) / scale, per feature."""

    mean: NDArray[np.floating[Any]]
    scale: NDArray[np.floating[Any]]
    """Infinity: the feature never varied where it was fitted, and becomes 0 everywhere."""

    def __call__(self, x: NDArray[Any], *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        moved: NDArray[Any] = np.subtract(x, self.mean, out=out)
        moved /= self.scale
        return moved


def precision(x: NDArray[Any]) -> Any:
    """Double precision stays; everything else, bytes too, is worked on in single precision."""
    return np.float64 if x.dtype == np.float64 else np.float32


def moments(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every feature, summed in double precision.

    What is in double precision is centred in it too.
    """
    fine = precision(x)
    total = np.zeros(x.shape[1:])
    square = np.zeros(x.shape[1:])
    for i in range(0, len(x), BLOCK):
        total += x[i : i + BLOCK].sum(0, dtype=np.float64)
    mean = total / max(len(x), 1)
    for i in range(0, len(x), BLOCK):
        gap = x[i : i + BLOCK] - mean.astype(fine)
        square += np.einsum("i...,i...->...", gap, gap)
    return mean, np.sqrt(square / max(len(x), 1))


def fit(x: NDArray[Any], *, extra: float = 0.0) -> Scaling:
    """Zero mean, unit variance.

    A feature that never varies in `x` (beyond rounding) becomes 0 wherever the scaling is applied:
    nothing can be learnt from it, so whatever value it takes elsewhere must do no harm. `extra` is
    added to the standard deviation (the papers: 0.001).
    """
    mean, deviation = moments(x)
    fine = precision(x)
    if extra:
        scale = deviation + extra
    else:
        rounding = 8 * np.finfo(fine).eps * np.abs(mean)
        scale = np.where(_constant(x) | (deviation <= rounding), np.inf, deviation)
    return Scaling(mean.astype(fine), scale.astype(fine))


def _constant(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which features have one value only."""
    same = np.ones(x.shape[1:], bool)
    for i in range(0, len(x), BLOCK):
        same &= (x[i : i + BLOCK] == x[:1]).all(0)
    return same


def standardise(federation: Federation, *, in_place: bool = False) -> Federation:
    """Zero mean and unit variance per feature, fitted on the training rows of all clients together;
    the same map for all three splits.
    """
    scaling = fit(federation.train.x)

    def apply(s: Split) -> Split:
        return Split(scaling(s.x, out=s.x if in_place else None), s.y, s.offsets)

    train, validation, test = (apply(s) for s in federation.splits)
    facts = {**federation.facts, "scaling": SCALED}
    return dataclasses.replace(
        federation, train=train, validation=validation, test=test, facts=facts
    )
