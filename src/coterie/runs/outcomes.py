"""Read a run's folder as numbers for a report."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coterie.network import forecast_experiment
from coterie.report.outcome import Outcome, rows_id
from coterie.runs import outlines
from coterie.runs.experiment import Experiment
from coterie.runs.records import read_rows

Array = NDArray[Any]


def read_outcome(folder: Path, experiment: Experiment) -> Outcome:
    """A finished (or collapsed) run."""
    federation = experiment.federation()
    samples = federation.test.sizes
    status = json.loads((folder / "status.json").read_text())
    rounds = pq.read_table(folder / "rounds.parquet", filters=[("split", "=", "test")]).to_pydict()
    views, kept = experiment.method.model_views, status.get("kept")

    def mean_score(split: str, view: str) -> float | None:
        """After the round that counts; None where nobody has a score."""
        chosen = [("split", "=", split), ("view", "=", view)]
        found = pq.read_table(folder / "rounds.parquet", filters=chosen).to_pydict()
        scores = dict(zip(found["round"], found["score"], strict=True))
        mean = scores.get(kept, list(scores.values())[-1]) if scores else np.nan
        return float(mean) if np.isfinite(mean) else None

    timing = pq.read_table(folder / "timing.parquet").to_pydict()
    when = np.unique(np.array(rounds["round"]))

    def by_client(split: str, columns: tuple[str, ...]) -> list[dict[str, Array]]:
        """Each column by view: evaluations × clients, NaN for clients without rows."""
        chosen = [("split", "=", split)]
        found = pq.read_table(folder / "clients.parquet", filters=chosen).to_pydict()
        row = np.searchsorted(when, np.array(found["round"], int))
        view_of, client = np.array(found["view"]), np.array(found["client"], int)

        def table(column: str, view: str) -> Array:
            out = np.full((len(when), len(samples)), np.nan)
            mine = view_of == view
            out[row[mine], client[mine]] = np.array(found[column])[mine]
            return out

        return [{view: table(column, view) for view in views} for column in columns]

    first = np.array(rounds["view"]) == views[0]
    pick = lambda column: np.array(rounds[column])[first]
    scores, losses = by_client("test", ("score", "loss"))
    trained = by_client("train", ("loss",))[0] if experiment.training.train_metrics else {}
    return Outcome(
        method=experiment.method,
        seed=experiment.training.seed,
        rounds=when,
        up=pick("up"),
        down=pick("down"),
        gradients=pick("gradients"),
        scores=scores,
        losses=losses,
        samples=samples,
        seconds=float(np.max(timing["seconds"], initial=0.0)),
        compile_seconds=float(np.max(timing["compile_seconds"], initial=0.0)),
        collapsed=status.get("diverged"),
        collapsed_at=status["round"] if status.get("diverged") else None,
        poor=tuple(federation.facts.get("downsampled", ())),
        planned=experiment.training.rounds,
        kept=kept,
        validation=mean_score("validation", views[0]),
        newcomers={v: s for v in views if (s := mean_score("newcomers", v)) is not None},
        predicted=(
            None
            if experiment.network is None
            else forecast_experiment(experiment.network, experiment, folder).after(when)
        ),
        rows=read_rows(folder, views),
        test_rows=rows_id(federation.test),
        learnt=outlines.read_learnt(folder),
        train_losses=trained,
        core_seconds=_core_seconds(timing),
        unsent=int(status.get("unsent", 0)),
    )


def _core_seconds(timing: dict[str, list[Any]]) -> float | None:
    """Of all processes that had the run in turn: each begins at nothing.

    >>> _core_seconds({"core_seconds": [1.0, 4.0, 0.5, 2.0]})
    6.0
    """
    clock = [c for c in timing.get("core_seconds", [None]) if c is not None]
    if len(clock) < len(timing.get("core_seconds", [None])):
        return None
    ends = [a for a, b in itertools.pairwise(clock) if b < a]
    return float(sum(ends) + sum(clock[-1:]))
