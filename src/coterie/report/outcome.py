"""One run as numbers: what a comparison needs of it, from memory or from its folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from coterie.engine.simulate import Result
from coterie.methods.base import Method
from coterie.network import forecast_experiment
from coterie.runs.experiment import Experiment

Array = NDArray[Any]


@dataclasses.dataclass
class Outcome:
    """A method at one seed.

    Scores and losses are on the test split: arrays (evaluations, clients); NaN for clients without
    test data.
    """

    method: Method
    seed: int
    rounds: Array
    up: Array
    down: Array
    gradients: Array
    scores: dict[str, Array]
    losses: dict[str, Array]
    samples: Array
    seconds: float
    compile_seconds: float
    collapsed: str | None = None
    collapsed_at: int | None = None
    """The round in which a run collapsed."""
    validation: float | None = None
    """Mean score over clients on validation data after the last round: what a method may be chosen
    by.
    """
    poor: tuple[int, ...] = ()
    """The clients that were down-sampled."""
    newcomers: dict[str, float] = dataclasses.field(default_factory=dict)
    """Mean test score by view of clients that were held out and adapted after the last round; empty
    when there are none.
    """
    predicted: Array | None = None
    """Seconds at every evaluation on the network of the experiment, if it has one."""

    @property
    def view(self) -> str:
        return self.method.model_views[0]

    def last(self, view: str | None = None) -> Array:
        """Score of every client after the last round."""
        return self.scores[view or self.view][-1]

    @classmethod
    def from_result(cls, result: Result) -> Outcome:
        shots, views = result.snapshots, result.method.model_views
        return cls(
            method=result.method,
            seed=result.training.seed,
            rounds=np.array([s.round for s in shots]),
            up=np.array([s.up for s in shots]),
            down=np.array([s.down for s in shots]),
            gradients=np.array([s.gradients for s in shots]),
            scores={
                v: np.stack([s.scores["test"].score[i] for s in shots]) for i, v in enumerate(views)
            },
            losses={
                v: np.stack([s.scores["test"].loss[i] for s in shots]) for i, v in enumerate(views)
            },
            samples=result.federation.test.sizes,
            seconds=result.seconds,
            compile_seconds=result.compile_seconds,
            collapsed=result.collapsed,
            collapsed_at=result.collapsed_at,
            poor=tuple(result.federation.facts.get("downsampled", ())),
            validation=(
                float(np.nanmean(shots[-1].scores["validation"].score[0]))
                if "validation" in shots[-1].scores
                else None
            ),
            newcomers=(
                {
                    v: float(np.nanmean(shots[-1].scores["newcomers"].score[i]))
                    for i, v in enumerate(views)
                }
                if "newcomers" in shots[-1].scores
                else {}
            ),
        )

    @classmethod
    def from_folder(cls, folder: Path, experiment: Experiment, samples: Array) -> Outcome:
        """Read a finished (or collapsed) run."""
        status = json.loads((folder / "status.json").read_text())
        clients = pq.read_table(
            folder / "clients.parquet", filters=[("split", "=", "test")]
        ).to_pydict()
        rounds = pq.read_table(
            folder / "rounds.parquet", filters=[("split", "=", "test")]
        ).to_pydict()
        mean_scores = lambda split, view: pq.read_table(
            folder / "rounds.parquet", filters=[("split", "=", split), ("view", "=", view)]
        ).to_pydict()["score"]
        validated = mean_scores("validation", experiment.method.model_views[0])
        timing = pq.read_table(folder / "timing.parquet").to_pydict()
        views = experiment.method.model_views
        when = np.unique(np.array(rounds["round"]))
        place = np.searchsorted(when, np.array(clients["round"]))
        view_of, client = np.array(clients["view"]), np.array(clients["client"], int)

        def table(column: str, view: str) -> Array:
            out = np.full((len(when), len(samples)), np.nan)
            mine = view_of == view
            out[place[mine], client[mine]] = np.array(clients[column])[mine]
            return out

        first = np.array(rounds["view"]) == views[0]
        pick = lambda column: np.array(rounds[column])[first]
        return cls(
            method=experiment.method,
            seed=experiment.training.seed,
            rounds=when,
            up=pick("up"),
            down=pick("down"),
            gradients=pick("gradients"),
            scores={v: table("score", v) for v in views},
            losses={v: table("loss", v) for v in views},
            samples=samples,
            seconds=float(np.max(timing["seconds"], initial=0.0)),
            compile_seconds=float(np.max(timing["compile_seconds"], initial=0.0)),
            collapsed=status.get("diverged"),
            collapsed_at=status["round"] if status.get("diverged") else None,
            poor=tuple(experiment.federation().facts.get("downsampled", ())),
            validation=validated[-1] if validated else None,
            newcomers={v: found[-1] for v in views if (found := mean_scores("newcomers", v))},
            predicted=(
                None
                if experiment.network is None
                else forecast_experiment(experiment.network, experiment, folder).after(when)
            ),
        )
