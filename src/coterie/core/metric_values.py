"""Metrics of many clients at once, in NumPy: rows are packed client by client, and nothing loops
over clients.

`outputs` are what a model gives, (rows, classes) or (rows, targets): for classes these are
log-probabilities up to a constant per row. `y` are class numbers, or targets. A client without
rows, or for whose rows a metric has no meaning, gets NaN.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BINS = 15
"""Of the calibration error, of equal width between 0 and 1."""


@dataclasses.dataclass(frozen=True)
class Groups:
    """Which rows are whose: client k has the rows offsets[k] … offsets[k + 1] − 1."""

    offsets: Array

    @cached_property
    def sizes(self) -> Array:
        """Rows of each client."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> Array:
        """The client of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    @property
    def count(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    def sums(self, values: Array) -> Array:
        """Per client the sum over its rows; columns stay columns."""
        values = np.asarray(values, np.float64)
        if values.ndim == 1:
            return np.bincount(self.owner, values, self.count)
        columns = [np.bincount(self.owner, column, self.count) for column in values.T]
        return np.stack(columns, 1) if columns else np.zeros((self.count, 0))

    def means(self, values: Array) -> Array:
        """Per client the mean over its rows; NaN for those that have none."""
        return ratio(self.sums(values), self.sizes)

    def counts(self, y: Array, classes: int) -> Array:
        """(clients, classes): how many rows of each class."""
        places = self.owner * classes + y
        return np.bincount(places, minlength=self.count * classes).reshape(self.count, classes)


def ratio(above: Array, below: Array) -> Array:
    """above / below, NaN where below is 0."""
    below = np.asarray(below, np.float64)
    below = below.reshape(below.shape + (1,) * (np.ndim(above) - below.ndim))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(below != 0, above / below, np.nan), np.float64)


def over_present(values: Array, present: Array) -> Array:
    """Per client the mean over the classes that it has rows of; NaN for those that have none."""
    return ratio(np.where(present, values, 0.0).sum(1), present.sum(1))


def log_sum(outputs: Array) -> Array:
    """log Σ exp over the last axis."""
    top = np.max(outputs, axis=-1, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.sum(np.exp(outputs - top[..., None]), axis=-1)) + top)


def probabilities(outputs: Array) -> Array:
    """The softmax of outputs, in double precision."""
    outputs = np.asarray(outputs, np.float64)
    return np.exp(outputs - log_sum(outputs)[:, None])


def columns(y: Array) -> Array:
    """Targets as (rows, targets)."""
    y = np.asarray(y, np.float64)
    return y[:, None] if y.ndim == 1 else y


# -- classes -------------------------------------------------------------------------------------


def right(outputs: Array, y: Array) -> Array:
    """1 for each row that is classified correctly, else 0."""
    return (np.argmax(outputs, -1) == y).astype(np.float64)


def accuracy(outputs: Array, y: Array, groups: Groups) -> Array:
    return groups.means(right(outputs, y))


def balanced_accuracy(outputs: Array, y: Array, groups: Groups) -> Array:
    """The mean over the classes that a client has of the share that is classified correctly."""
    classes = outputs.shape[1]
    counts = groups.counts(y, classes)
    places = groups.owner * classes + y
    hits = np.bincount(places, right(outputs, y), groups.count * classes)
    return over_present(ratio(hits.reshape(counts.shape), counts), counts > 0)


def log_odds(outputs: Array, k: int) -> Array:
    """log(p/(1 − p)) of class k: it ranks like the probability, but has no end at 0 and 1 where
    unlike rows would be ties.
    """
    outputs = np.asarray(outputs, np.float64)
    if outputs.shape[1] == 2:
        return np.asarray(outputs[:, k] - outputs[:, 1 - k])
    return np.asarray(outputs[:, k] - log_sum(np.delete(outputs, k, axis=1)))


def midranks(values: Array, groups: Groups) -> Array:
    """Ranks 1, 2, … among the rows of the same client; those that are alike share their mean."""
    if not len(values):
        return np.zeros(0)
    order = np.lexsort((values, groups.owner))
    sorted_, owner = values[order], groups.owner[order]
    new = np.append(True, (sorted_[1:] != sorted_[:-1]) | (owner[1:] != owner[:-1]))
    first = np.flatnonzero(new)
    length = np.diff(np.append(first, len(values)))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(first + (length + 1) / 2, length)
    return ranks - np.asarray(groups.offsets)[groups.owner]


def judged_classes(classes: int) -> list[int]:
    """The classes that AUC and F1 are about: of two the last one (the positive class), of more all
    of them.
    """
    return [1] if classes == 2 else list(range(classes))


def _positive_or_present(counts: Array) -> Array:
    """Which classes of each client count in the mean over classes."""
    judged = judged_classes(counts.shape[1])
    return np.asarray(counts[:, judged] > 0)


def auc(outputs: Array, y: Array, groups: Groups) -> Array:
    """The chance that a row of the class is ranked above one that is not, ties count half
    (Mann–Whitney); of more than two classes the mean over those that the client has, each against
    the rest. NaN for a client whose rows are of one class.
    """
    counts = groups.counts(y, outputs.shape[1])
    judged = judged_classes(outputs.shape[1])
    each = np.empty((groups.count, len(judged)))
    for j, k in enumerate(judged):
        ones = counts[:, k].astype(np.float64)
        ranks = np.where(y == k, midranks(log_odds(outputs, k), groups), 0.0)
        above = groups.sums(ranks) - ones * (ones + 1) / 2
        each[:, j] = ratio(above, ones * (groups.sizes - ones))
    several = (counts > 0).sum(1) > 1
    return np.where(several, over_present(each, _positive_or_present(counts)), np.nan)


def f1(outputs: Array, y: Array, groups: Groups) -> Array:
    """2 tp / (2 tp + fp + fn) of the positive class; of more than two classes the mean over those
    that the client has. NaN for a client without rows of the positive class.
    """
    classes = outputs.shape[1]
    chosen = np.argmax(outputs, -1)
    counts, guessed = groups.counts(y, classes), groups.counts(chosen, classes)
    places = groups.owner * classes + y
    hits = np.bincount(places, chosen == y, groups.count * classes).reshape(counts.shape)
    judged = judged_classes(classes)
    each = ratio(2 * hits, counts + guessed)[:, judged]
    return over_present(each, _positive_or_present(counts))


def log_losses(outputs: Array, y: Array) -> Array:
    """−log p of the true class, per row."""
    outputs = np.asarray(outputs, np.float64)
    return np.asarray(log_sum(outputs) - outputs[np.arange(len(y)), y])


def log_loss(outputs: Array, y: Array, groups: Groups) -> Array:
    return groups.means(log_losses(outputs, y))


def binned(outputs: Array, y: Array) -> tuple[Array, Array]:
    """Of each row the bin of its confidence (the largest probability), and right or wrong (1 or 0)
    minus that confidence.
    """
    sure = probabilities(outputs).max(1, initial=0.0)
    place = np.clip(np.ceil(sure * BINS).astype(int) - 1, 0, BINS - 1)
    return place, right(outputs, y) - sure


def calibration_error(outputs: Array, y: Array, groups: Groups) -> Array:
    """Expected calibration error: by how much the mean confidence and the accuracy differ in each
    of 15 bins of equal width of the confidence, weighted by the rows of the bins.
    """
    place, excess = binned(outputs, y)
    sums = np.bincount(groups.owner * BINS + place, excess, groups.count * BINS)
    return ratio(np.abs(sums.reshape(groups.count, BINS)).sum(1), groups.sizes)


# -- quantities ----------------------------------------------------------------------------------


def squared_errors(outputs: Array, y: Array) -> Array:
    """Per row, added up over targets."""
    return np.asarray(np.square(np.asarray(outputs, np.float64) - columns(y)).sum(1))


def absolute_errors(outputs: Array, y: Array) -> Array:
    """Per row, added up over targets."""
    return np.asarray(np.abs(np.asarray(outputs, np.float64) - columns(y)).sum(1))


def mse(outputs: Array, y: Array, groups: Groups) -> Array:
    return groups.means(squared_errors(outputs, y))


def rmse(outputs: Array, y: Array, groups: Groups) -> Array:
    return np.sqrt(mse(outputs, y, groups))


def mae(outputs: Array, y: Array, groups: Groups) -> Array:
    return groups.means(absolute_errors(outputs, y))


def spread(y: Array, groups: Groups) -> Array:
    """(clients, targets): Σ (y − mean)² of each client; NaN where all targets are alike."""
    y = columns(y)
    around = np.square(y - groups.means(y)[groups.owner])
    total = groups.sums(around)
    # A mean is rounded, so targets that are all alike may seem to vary a little.
    alike = total <= 1e-28 * groups.sums(np.square(y))
    return np.where(alike | (groups.sizes[:, None] < 2), np.nan, total)


def r2(outputs: Array, y: Array, groups: Groups) -> Array:
    """1 − Σ (y − ŷ)² / Σ (y − mean)² with the client's own mean, mean over targets; NaN for a
    client with one row, or whose targets are all alike.
    """
    errors = np.square(np.asarray(outputs, np.float64) - columns(y))
    return np.asarray(1 - ratio(groups.sums(errors), spread(y, groups)).mean(1))
