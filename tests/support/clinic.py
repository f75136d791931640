"""A table with a column of every kind, and a run on it whose table is gone afterwards."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

import numpy as np

from coterie.runs import run as runs
from coterie.runs.experiment import Experiment

SITES = ("north", "south", "east/wing")


def rows(count: int = 120, seed: int = 0, **changes: Any) -> dict[str, list[Any]]:
    """Columns by name; `when` and `heat` have gaps."""
    rng = np.random.default_rng(seed)
    heat = rng.normal(20, 5, count)
    colour = rng.choice(["red", "green", "blue"], count)
    smoker = rng.random(count) < 0.5
    first = datetime.datetime(2023, 1, 1)
    when = [first + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 9000, count)]
    risk = heat + 3 * (colour == "red") + 2 * smoker + rng.normal(0, 1, count)
    made: dict[str, list[Any]] = {
        "patient": [f"{i:04d}" for i in range(count)],
        "site": [SITES[i % 3] for i in range(count)],
        "when": [None if i % 17 == 3 else moment for i, moment in enumerate(when)],
        "heat": [None if i % 11 == 5 else float(value) for i, value in enumerate(heat)],
        "colour": [None if i % 13 == 7 else str(value) for i, value in enumerate(colour)],
        "smoker": ["yes" if value else "no" for value in smoker],
        "answer": ["ill" if value > 21 else "well" for value in risk],
        "risk": [float(value) for value in 100 + 7 * risk],
    }
    return made | changes


def write_csv(path: Path, columns: dict[str, list[Any]]) -> Path:
    text = lambda value: "" if value is None else str(value)
    lines = [",".join(columns)]
    lines += [",".join(map(text, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def train(folder: Path, **changes: Any) -> Path:
    """A run in `folder`, on a table at a relative path that is deleted afterwards."""
    write_csv(folder / "rows.csv", rows())
    regression = changes.pop("regression", False)
    config: dict[str, Any] = {
        "data": {
            "name": "table",
            "path": "rows.csv",
            "client": "site",
            "target": "risk" if regression else "answer",
            "drop": "patient,answer" if regression else "patient,risk",
        },
        "training": {"rounds": 3, "eval_every": 3, "batch_size": 8},
        "method": {"name": "fedu", "local_steps": 2},
    }
    if regression:
        config["data"]["standardise_target"] = True
    config |= changes
    here = Path.cwd()
    os.chdir(folder)
    try:
        runs.start(Experiment.from_config(config), Path("run"), say=lambda _: None)
    finally:
        os.chdir(here)
    (folder / "rows.csv").unlink()
    return folder / "run"
