"""One run as numbers: what a comparison needs of it. `runs.outcomes` reads them from a folder."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import Split
from coterie.engine.row_scores import RowScores, row_scores
from coterie.engine.simulate import Result
from coterie.methods.base import Method
from coterie.report.learnt import LearntGraph

Array = NDArray[Any]


def rows_id(split: Split) -> str:
    """Tells whether two runs were tested on the same rows."""
    found = hashlib.sha256()
    for part in (split.offsets, split.y, split.x):
        found.update(np.ascontiguousarray(part).data)
    return found.hexdigest()[:16]


def learnt_graph(simulator: Any) -> LearntGraph | None:
    """What a simulator has learnt of its clients' likeness."""
    kinship = getattr(simulator, "kinship", None)
    return None if kinship is None or not kinship.history else LearntGraph.of(kinship)


def _mean(scores: Array) -> float | None:
    """Over the clients that have a score; None when nobody has."""
    return None if np.isnan(scores).all() else float(np.nanmean(scores))


@dataclasses.dataclass
class Outcome:
    """A method at one seed.

    Scores and losses are on the test split: arrays (evaluations, clients); NaN for clients without
    test data. Scores are NaN, too, where the metric has no meaning for a client's rows.
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
    planned: int = 0
    """The rounds that were asked for; training may stop earlier (`patience`)."""
    kept: int | None = None
    """The round that counts: that with the best validation score; None: the last."""
    validation: float | None = None
    """Mean score over clients on validation data after the round that counts, by the metric of the
    run: what a method may be chosen by. None where there is no such data, or the metric has no
    meaning for anybody's.
    """
    poor: tuple[int, ...] = ()
    """The clients that were down-sampled."""
    newcomers: dict[str, float] = dataclasses.field(default_factory=dict)
    """Mean test score by view of clients that were held out and adapted from the round that counts;
    empty when there are none.
    """
    predicted: Array | None = None
    """Seconds at every evaluation on the network of the experiment, if it has one."""
    rows: RowScores | None = None
    """The score of every test row after the round that counts; None if the run collapsed or is of a
    version that did not keep them.
    """
    test_rows: str = ""
    """Which test rows these are (`rows_id`): seeds may have splits of their own."""
    learnt: LearntGraph | None = None
    """The client graph, where it was learnt."""
    train_losses: dict[str, Array] = dataclasses.field(default_factory=dict)
    """Losses on the training data, as `losses`; empty unless `training.train_metrics`."""
    core_seconds: float | None = None
    """Seconds of processors, compiling included; None: the run is of a version that did not count
    them.
    """
    unsent: int = 0
    """Messages of malicious clients that were not finite, and counted as not sent."""

    @property
    def view(self) -> str:
        return self.method.model_views[0]

    @property
    def counted(self) -> int:
        """The place of the evaluation that counts."""
        return -1 if self.kept is None else int(np.searchsorted(self.rounds, self.kept))

    def last(self, view: str | None = None) -> Array:
        """Score of every client after the round that counts: the last, unless asked otherwise."""
        return self.scores[view or self.view][self.counted]

    @property
    def still_improving(self) -> bool:
        """Whether the last of all evaluations was the best on validation data."""
        return self.kept is not None and self.kept == int(self.rounds[-1])

    @classmethod
    def from_result(cls, result: Result) -> Outcome:
        shots, views, counted = result.snapshots, result.method.model_views, result.counted
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
                _mean(counted.scores["validation"].score[0])
                if "validation" in counted.scores
                else None
            ),
            newcomers=(
                {
                    v: found
                    for i, v in enumerate(views)
                    if (found := _mean(counted.scores["newcomers"].score[i])) is not None
                }
                if "newcomers" in counted.scores
                else {}
            ),
            planned=result.training.rounds,
            kept=result.kept,
            rows=None if result.collapsed else row_scores(result.simulator),
            test_rows=rows_id(result.federation.test),
            learnt=learnt_graph(result.simulator),
            train_losses={
                v: np.stack([s.scores["train"].loss[i] for s in shots])
                for i, v in enumerate(views)
                if all("train" in s.scores for s in shots)
            },
            unsent=result.simulator.unsent,
        )
