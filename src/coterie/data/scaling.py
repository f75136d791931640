"""Bringing inputs to a common scale, without looking at data that a model will be tested on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import Federation, Split

BLOCK = 4096
"""Rows at once: sums are formed in double precision without a double-precision copy of the data."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """x ↦ (x − mean) / scale, per feature."""

    mean: NDArray[np.float32]
    scale: NDArray[np.float32]

    def __call__(self, x: NDArray[Any], *, out: NDArray[Any] | None = None) -> NDArray[Any]:
        moved: NDArray[Any] = np.subtract(x, self.mean, out=out)
        moved /= self.scale
        return moved


def moments(x: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every feature, summed in double precision."""
    total = np.zeros(x.shape[1:])
    square = np.zeros(x.shape[1:])
    for i in range(0, len(x), BLOCK):
        total += x[i : i + BLOCK].sum(0, dtype=np.float64)
    mean = total / max(len(x), 1)
    for i in range(0, len(x), BLOCK):
        gap = x[i : i + BLOCK] - mean.astype(np.float32)
        square += np.einsum("i...,i...->...", gap, gap)
    return mean, np.sqrt(square / max(len(x), 1))


def fit(x: NDArray[Any], *, extra: float = 0.0) -> Scaling:
    """Zero mean, unit variance.

    A feature that never varies in `x` is only centred: dividing by almost nothing would make
    whatever small value it takes elsewhere enormous. `extra` is added to the standard deviation
    (the papers: 0.001).
    """
    mean, deviation = moments(x)
    if extra:
        scale = deviation + extra
    else:
        constant = deviation <= 1e-6 * np.maximum(np.abs(mean), 1.0)
        scale = np.where(constant, 1.0, deviation)
    return Scaling(mean.astype(np.float32), scale.astype(np.float32))


def standardise(federation: Federation, *, in_place: bool = False) -> Federation:
    """Zero mean and unit variance per feature, fitted on the training rows of all clients together;
    the same map for all three splits.
    """
    scaling = fit(federation.train.x)

    def apply(s: Split) -> Split:
        return Split(scaling(s.x, out=s.x if in_place else None), s.y, s.offsets)

    train, validation, test = (apply(s) for s in federation.splits)
    facts = {**federation.facts, "scaling": "per feature, fitted on training data"}
    return dataclasses.replace(
        federation, train=train, validation=validation, test=test, facts=facts
    )
