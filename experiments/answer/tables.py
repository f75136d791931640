"""Real tables as somebody would have them: HAR, the Vehicle sensors, and tables that come with
scikit-learn, cut into sites.

A cut into sites is made by a measured quantity, so that sites differ as real ones do: sites are
quantiles of one column, which stays in the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets

import coterie


def _columns(x: np.ndarray, y: Any, site: np.ndarray) -> dict[str, Any]:
    names = [f"s{k:02d}" for k in site]
    columns = {f"x{i}": np.asarray(x[:, i], float).round(6) for i in range(x.shape[1])}
    return {"site": names, **columns, "y": y}


def _cut(column: np.ndarray, sites: int) -> np.ndarray:
    """Quantiles of a column."""
    order = np.argsort(np.argsort(column, kind="stable"), kind="stable")
    return np.asarray(order * sites // len(column))


def _federated(name: str) -> dict[str, Any]:
    """A federation of ours as one table again."""
    fed = coterie.load(name)
    parts = [
        (x, y, np.full(len(y), k))
        for split in fed.splits
        for k in range(fed.clients)
        for x, y in [split.client(k)]
    ]
    x, y, site = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _columns(x, [f"c{v}" for v in y], site)


def breast_cancer() -> dict[str, Any]:
    x, y = datasets.load_breast_cancer(return_X_y=True)
    return _columns(x, [("malignant", "benign")[v] for v in y], _cut(x[:, 0], 7))


def diabetes() -> dict[str, Any]:
    x, y = datasets.load_diabetes(return_X_y=True)
    return _columns(x, y, _cut(x[:, 0], 8))


def wine() -> dict[str, Any]:
    x, y = datasets.load_wine(return_X_y=True)
    return _columns(x, [f"c{v}" for v in y], _cut(x[:, 4], 6))


def digits() -> dict[str, Any]:
    x, y = datasets.load_digits(return_X_y=True)
    return _columns(x, [f"c{v}" for v in y], _cut(x.sum(1), 12))


TABLES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "breast-cancer": (breast_cancer, "569 rows, 7 sites by mean radius"),
    "diabetes": (diabetes, "442 rows, 8 sites by age, a number"),
    "wine": (wine, "178 rows, 6 sites by magnesium"),
    "digits": (digits, "1,797 rows, 12 sites by ink"),
}
if os.environ.get("COTERIE_DATA"):
    TABLES |= {
        "vehicle": (lambda: _federated("vehicle"), "the part of Vehicle there is, 23 sensors"),
        "har": (lambda: _federated("har"), "HAR, 30 subjects"),
    }
