"""A client's score for its card, with a 95% interval."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from coterie.core.metrics import Metric
from coterie.runs.records import read_rows

Array = NDArray[Any]
DRAWS, NUMBERS = 500, 2_000_000
"""Of the bootstrap: how many draws, and how many rows in all of them together at most."""
POWER = {"mse": 2, "rmse": 1, "mae": 1}
"""Metrics that have the target's unit, to this power."""


@dataclasses.dataclass(frozen=True)
class TestRows:
    """What is known of a client's test rows: the value of each, or what the model gave and the
    truth.
    """

    values: Array | None = None
    outputs: Array | None = None
    y: Array | None = None

    def __len__(self) -> int:
        return len(self.values if self.values is not None else self.y if self.y is not None else ())

    @classmethod
    def of_outputs(cls, metric: Metric, outputs: Array, y: Array) -> TestRows:
        if metric.rowwise:
            return cls(metric.values(outputs, y, np.arange(len(y) + 1)))
        return cls(None, outputs, y)


def wilson(right: int, rows: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share.

    >>> tuple(round(end, 4) for end in wilson(45, 50))
    (0.7864, 0.9565)
    """
    found = stats.binomtest(right, rows).proportion_ci(level, "wilson")
    return float(found.low), float(found.high)


def _of_rows(metric: Metric, values: Array) -> tuple[float, float | None, float | None, str]:
    value = float(values.mean())
    if metric.name == "accuracy":
        return (value, *wilson(int(np.round(values.sum())), len(values)), "Wilson")
    how = "Student's t over rows"
    if len(values) < 2 or values.std() == 0:
        return value, None, None, how
    reach = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    low, high = value - reach, value + reach
    low = low if metric.low is None else max(low, metric.low)
    return value, float(low), float(high if metric.high is None else min(high, metric.high)), how


def _bootstrap(
    metric: Metric, outputs: Array, y: Array
) -> tuple[float, float | None, float | None, str]:
    n = len(y)
    value = float(metric.values(outputs, y, np.array([0, n]))[0])
    draws = max(50, min(DRAWS, NUMBERS // n))
    rows = np.random.default_rng(0).integers(0, n, (draws, n)).reshape(-1)
    found = metric.values(outputs[rows], y[rows], n * np.arange(draws + 1))
    how = f"percentiles of {draws} draws of rows"
    if np.isnan(found).mean() > 0.05:
        return value, None, None, how
    low, high = np.nanpercentile(found, [2.5, 97.5])
    return value, float(low), float(high), how


def score_facts(metric: Metric, rows: TestRows, scale: float = 1.0) -> dict[str, Any] | None:
    """The value of a metric with its interval; None without rows, or where it has no meaning.
    `scale` is how many of the target's units one unit of training is.
    """
    if not len(rows):
        return None
    if rows.values is not None:
        value, low, high, how = _of_rows(metric, rows.values.astype(float))
    else:
        assert rows.outputs is not None
        assert rows.y is not None
        value, low, high, how = _bootstrap(metric, rows.outputs, rows.y)
    if not np.isfinite(value):
        return None
    unit = scale ** POWER.get(metric.name, 0)
    times = lambda v: None if v is None else v * unit
    return {
        "metric": metric.name,
        "title": metric.title,
        "percent": metric.percent,
        "larger is better": metric.higher,
        "value": value * unit,
        "low": times(low),
        "high": times(high),
        "rows": len(rows),
        "interval": how,
    }


def gain_facts(
    metric: Metric, mine: TestRows, alone: TestRows, scale: float = 1.0
) -> dict[str, Any] | None:
    """The gain over Local on the same test rows: > 0 is better. Where the metric is a mean over
    rows, with an exact test of it (McNemar's; the sign test for what is not right or wrong).
    """
    if not len(mine) or len(mine) != len(alone):
        return None
    scores = [score_facts(metric, rows, scale) for rows in (mine, alone)]
    if scores[0] is None or scores[1] is None:
        return None
    told: dict[str, Any] = {
        "mean": metric.sign * (scores[0]["value"] - scores[1]["value"]),
        "p": None,
        "against": "Local at equal gradient steps, on the same test rows",
    }
    if mine.values is None or alone.values is None:
        return told
    difference = metric.sign * (mine.values.astype(float) - alone.values)
    better, worse = int((difference > 0).sum()), int((difference < 0).sum())
    p = stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
    return told | {"rows better": better, "rows worse": worse, "p": float(p)}


class AllRows:
    """The test rows of a run's clients, of one view."""

    def __init__(self, folder: Path, metric: Metric, view: str) -> None:
        self.metric, self.found, self.view = metric, read_rows(folder, [view]), view
        if self.found is not None:
            self.order = np.lexsort((self.found.row, self.found.client))
            self.client = self.found.client[self.order]

    def of(self, number: int) -> TestRows:
        """Of one client, in the order of the test split."""
        if self.found is None:
            return TestRows()
        first, last = np.searchsorted(self.client, [number, number + 1])
        rows = self.order[first:last]
        if self.found.outputs is None or self.found.y is None:
            return TestRows(self.metric.value(self.found.scores[self.view][rows]))
        return TestRows(None, self.found.outputs[self.view][rows], self.found.y[rows])
