"""A tiny experiment that is tuned, what its folder holds, and tuning that dies on the way."""

from __future__ import annotations

import csv
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest

from coterie.runs.experiment import Experiment
from coterie.runs.tuning.batch import TrialBatch
from coterie.runs.tuning.folder import tune_into

EXPERIMENT = """
seeds = [0, 1]
[data]
name = "digits"
clients = 3
validation = 0.3
[training]
rounds = 4
eval_every = 2
batch_size = 4
keep = "best"
[tune]
width = 2
prune = false
steps = 48
[[methods]]
name = "local"
local_steps = 2
"""
TWO = EXPERIMENT + '[[methods]]\nname = "fedavg"\nlocal_steps = 2\n'


def longer(text: str, rounds: int) -> str:
    """Twice as many trials, of more rounds."""
    steps = 2 * 12 * rounds
    return text.replace("rounds = 4", f"rounds = {rounds}").replace("= 48", f"= {steps}")


def experiment(text: str) -> Experiment:
    return Experiment.from_config(tomllib.loads(text))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "trials.csv").open(newline="") as f:
        return list(csv.DictReader(f))


def values(folder: Path) -> list[dict[str, str]]:
    """The trials, but for the time they took."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows(folder)]


def tuned(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "tuned.toml").read_text())


def trials_in(database: Path) -> dict[str, int]:
    """How many trials of each state the studies hold."""
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            query = "SELECT state, COUNT(*) FROM trials GROUP BY state"
            return dict(connection.execute(query).fetchall())
    except sqlite3.OperationalError:
        return {}


def cut_short(made: Experiment, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning that dies in the second batch of its first method, as after a kill: the study holds
    trials that are running, and nobody runs them.
    """
    real, batches = TrialBatch.run, []

    def dying(batch: TrialBatch) -> Any:
        batches.append(batch)
        if len(batches) == 2:
            raise SystemExit("killed")
        return real(batch)

    with monkeypatch.context() as patch:
        patch.setattr(TrialBatch, "run", dying)
        with pytest.raises(SystemExit):
            tune_into(made, folder, say=lambda _: None)
