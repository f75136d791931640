"""What rare classes do to scores: whom a metric has no meaning for, what the most frequent class
alone would score, and whether accuracy tells anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.metrics import SHIPPED, Metric
from coterie.data.federation import Federation

if TYPE_CHECKING:
    from coterie.report.comparison import Comparison

Array = NDArray[Any]

MOST = 0.9
"""A class with a larger share of the rows makes accuracy say little."""
SHOWN = 8
"""Clients that a sentence names."""


def majority_scores(federation: Federation, metric: Metric) -> Array:
    """Per client, the test score of a model that knows only how frequent the classes are in the
    client's training data (counts plus one, so that none is impossible).
    """
    if metric.name == "accuracy":
        return federation.majority_score()
    counts = federation.label_counts()
    shares = np.log((counts + 1) / (counts + 1).sum(1, keepdims=True))
    test = federation.test
    owner = np.repeat(np.arange(federation.clients), test.sizes)
    return metric.scores(shares[owner], test.y, test.offsets)


def refuse_undefined(federation: Federation, metric: Metric) -> None:
    """Refuse a metric that has no meaning for any client's test rows. Of the metrics of coterie
    that is known beforehand: it is a matter of the true targets alone.
    """
    test = federation.test
    if metric.name not in SHIPPED or metric.rowwise or not len(test):
        return
    told = np.zeros((len(test), federation.outputs))
    if np.isnan(metric.values(told, test.y, test.offsets)).all():
        raise InvalidInput(
            f"training.metric is {metric.name!r}, but no client has it on its test data, since"
            f" {metric.undefined}; choose another metric."
        )


def notes(comparison: Comparison) -> list[str]:
    """Sentences about clients that are left out, and about classes that hide others."""
    metric, out = comparison.metric, []
    names = comparison.undefined()
    if names:
        shown = ", ".join(names[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        out.append(
            f"Not in the means, for all methods alike: {shown}{more}. Their {metric.title} is not"
            f" defined, since {metric.undefined}."
        )
    federation = comparison.federation
    if federation.task != "classification" or not len(federation.test):
        return out
    counts = np.bincount(federation.test.y, minlength=federation.classes)
    share = counts.max() / counts.sum()
    if metric.name == "accuracy" and share > MOST and federation.classes > 1:
        # Rounded down: never 100% where there is another class.
        percent = np.floor(1000 * share) / 10 if share > 0.99 else np.floor(100 * share)
        out.append(
            f"{percent:g}% of the test rows are of one class ({_label(federation, counts)}), so"
            ' accuracy tells little; consider metric = "auc", "balanced-accuracy" or "f1".'
        )
    return out


def _label(federation: Federation, counts: Array) -> str:
    """The most frequent class, as the data calls it."""
    labels = federation.facts.get("labels")
    k = int(counts.argmax())
    return str(labels[k]) if labels is not None and len(labels) == federation.classes else f"{k}"
