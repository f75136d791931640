"""Numbers for people."""

from __future__ import annotations

import re

from coterie.core.metrics import Metric


def bytes_text(count: float) -> str:
    """1234567 → '1.2 MB'.

    >>> bytes_text(0), bytes_text(999), bytes_text(1234567)
    ('0 B', '999 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def seconds_text(seconds: float) -> str:
    """A time for people.

    >>> seconds_text(0.25), seconds_text(75), seconds_text(5400), seconds_text(200000)
    ('0.25 s', '75 s', '90 min', '56 h')
    """
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return (
                f"{seconds / size:.0f} {unit}"
                if seconds >= 20 * size
                else f"{seconds / size:.1f} {unit}"
            )
    return f"{seconds:.3g} s"


def days_text(seconds: float) -> str:
    """How far away a day is, for people: whole days that are left.

    >>> days_text(3600), days_text(86400), days_text(19.9 * 86400)
    ('today', 'tomorrow', 'in 19 days')
    """
    days = max(0, int(seconds // 86400))
    return f"in {days} days" if days > 1 else "tomorrow" if days else "today"


def score_number(value: float, unit: float, *, signed: bool = False) -> str:
    """A score for people: accuracies (unit 100) with two decimals, errors (unit 1) with three
    significant digits.

    >>> score_number(0.98765, 100), score_number(-0.012345, 1), score_number(0.5, 100, signed=True)
    ('98.77', '-0.0123', '+50.00')

    What rounds to zero has no minus sign.

    >>> score_number(-0.00001, 100), score_number(-0.00001, 100, signed=True)
    ('0.00', '+0.00')
    """
    sign = "+z" if signed else "z"
    return f"{unit * value:{sign}.2f}" if unit == 100 else f"{value:{sign}.3g}"


def value_text(score: float, metric: Metric) -> str:
    """A score as the metric's value, as people know it.

    >>> from coterie.core.metrics import METRICS
    >>> value_text(0.98765, METRICS["auc"]), value_text(-0.012345, METRICS["rmse"])
    ('98.77', '0.0123')
    """
    return score_number(metric.value(score), metric.unit)


def gain_text(gain: float, metric: Metric) -> str:
    """A difference of scores: with a plus where it is better."""
    return score_number(gain, metric.unit, signed=True)


_FACTORS = {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "min": 60.0, "h": 3600.0}


def leading(text: str) -> float | None:
    """The number that a text begins with, in bytes or seconds where it has a unit of these; what a
    column is sorted by. None where it begins with something else.

    >>> leading("98.77 ± 0.31"), leading("1.2 MB"), leading("-0.36 [−1, +2]"), leading("90 min")
    (98.77, 1200000.0, -0.36, 5400.0)
    >>> leading("Local"), leading("3 / 0 of 20"), leading("")
    (None, 3.0, None)
    """
    found = re.match(r"([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: (kB|MB|GB|TB|min|h)\b)?", text)
    return None if found is None else float(found[1].replace(",", "")) * _FACTORS.get(found[2], 1.0)
