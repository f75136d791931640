"""A small table with a column of every kind, for tests of people's own data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

N = 60


def columns(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {
        "site": [f"site {i % 3}" for i in range(N)],
        "heat": rng.normal(20, 5, N).tolist(),
        "count": rng.integers(0, 50, N).tolist(),
        "on": [bool(i % 2) for i in range(N)],
        "colour": [("red", "blue", "green")[i % 3] for i in range(N)],
        "label": [("yes", "no")[i % 2] for i in range(N)],
    }
    made |= changes
    return {k: v for k, v in made.items() if v is not None}


def table(**changes: Any) -> pa.Table:
    return pa.table(columns(**changes))
