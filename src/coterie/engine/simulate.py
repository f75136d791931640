"""Train a method on a federation, in memory.

>>> import coterie
>>> fed = coterie.load("digits", clients=4)
>>> result = coterie.simulate(coterie.FedU(local_steps=2), fed, "mlr", rounds=2, eval_every=2)
>>> result.rounds, result.client_scores().shape
([0, 2], (4,))
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack
from coterie.channel import PLAIN, Channel
from coterie.core.compilation import Compilations
from coterie.core.errors import Diverged
from coterie.core.frames import frame, html_table
from coterie.core.ledger import Ledger
from coterie.core.metrics import Metric, OwnMetric, metric_of
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation
from coterie.engine.arguments import judged_by
from coterie.engine.keeper import Keeper
from coterie.engine.progress import shown
from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Snapshot
from coterie.engine.training import Training, TrainingOptions
from coterie.methods.base import Method
from coterie.models.base import Model, ModelSpec

if TYPE_CHECKING:
    import pandas

__all__ = ["Progress", "Result", "Simulator", "Snapshot", "drive", "simulate"]


@dataclasses.dataclass(repr=False)
class Result:
    """What a run leaves in memory.

    Scores are by the metric of the run, the larger the better: accuracies unless another one was
    asked for (classification), negated mean squared errors (regression). `metric.value(score)` is
    the value as people know it.
    """

    method: Method
    federation: Federation
    training: Training
    snapshots: list[Snapshot]
    ledger: Ledger
    seconds: float
    compile_seconds: float
    simulator: Any = dataclasses.field(repr=False)
    """The `Simulator`; of a slow run its `Reference`."""
    collapsed: str | None = None
    collapsed_at: int | None = None
    kept: int | None = None
    """The round that counts, where that need not be the last (`training.keep`)."""

    @property
    def counted(self) -> Snapshot:
        """The evaluation of the round that counts."""
        found = [s for s in self.snapshots if s.round == self.kept]
        return found[0] if found else self.snapshots[-1]

    @property
    def metric(self) -> Metric:
        """What the scores are."""
        found: Metric = getattr(self.simulator, "metric", None) or metric_of(
            self.training.metric, self.federation.task
        )
        return found

    @property
    def rounds(self) -> list[int]:
        return [s.round for s in self.snapshots]

    def curve(self, split: str = "test", view: int = 0) -> NDArray[np.float64]:
        """Mean score over clients at every evaluation."""
        return np.array([np.nanmean(s.scores[split].score[view]) for s in self.snapshots])

    def client_scores(self, split: str = "test", view: int = 0) -> NDArray[np.float64]:
        """Score of every client after the round that counts (the last, unless asked otherwise)."""
        return self.counted.scores[split].score[view]

    def __repr__(self) -> str:
        return f"<Result of {self.method.title} on {self.federation.name!r}: {self._told()}>"

    def _told(self) -> str:
        """What came of it, in a few words."""
        told = [f"{self.federation.clients:,} clients", f"{self.training.rounds:,} rounds"]
        if self.collapsed is not None:
            return ", ".join([*told, f"collapsed in round {self.collapsed_at}"])
        metric = self.metric
        value = metric.value(float(np.nanmean(self.client_scores())))
        shown = f"{100 * value:.2f}%" if metric.percent else f"{value:.4g}"
        looked_at = self.training.eval_clients
        sample = "" if looked_at is None else f" (of {looked_at:,} of {told[0]})"
        told.append(f"test {metric.title} {shown}{sample}")
        last = self.snapshots[-1]
        return ", ".join([*told, f"{last.up + last.down:,} bytes sent", f"{self.seconds:.1f} s"])

    def _repr_html_(self) -> str:
        views = self.method.model_views
        mean = lambda scores: f"{self.metric.value(np.nanmean(scores)):.4f}"
        rows = [
            [str(shot.round), split, *(mean(v) for v in scores.score[: len(views)])]
            for shot in self.snapshots[-1:]
            for split, scores in shot.scores.items()
            if np.isfinite(scores.score).any()
        ]
        about = f"{self.metric.title}, {self.metric.better}"
        title = f"{self.method.title} on {self.federation.name}: {self._told()} ({about})"
        return html_table(title, ["round", "split", *(f"{v} model" for v in views)], rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A row per evaluation, split, view and client that has a score: round, split, view,
        client, score (the larger the better: errors are negated), loss.

        Clients of the split "newcomers" are those that were held out. Needs pandas.
        """
        views, names = self.method.model_views, self.federation.names()
        columns: dict[str, list[Any]] = {
            key: [] for key in ("round", "split", "view", "client", "score", "loss")
        }
        for shot in self.snapshots:
            for split, scores in shot.scores.items():
                for i, view in enumerate(views):
                    who = np.flatnonzero(~np.isnan(scores.score[i]))
                    columns["round"] += [shot.round] * len(who)
                    columns["split"] += [split] * len(who)
                    columns["view"] += [view] * len(who)
                    columns["client"] += [names[k] for k in who]
                    columns["score"] += scores.score[i][who].tolist()
                    columns["loss"] += scores.loss[i][who].tolist()
        return frame(columns)

    def personal(self, client: int) -> Vector:
        """The model this client predicts with."""
        return self.simulator.models(client)[self.method.model_views[0]]


Progress = Callable[[Simulator, Snapshot | None], None]


def drive(
    simulator: Any, progress: Progress | None = None, keeper: Keeper | None = None
) -> Iterator[Snapshot]:
    """Run a `Simulator` (or a `Reference`) to the end, giving a snapshot at every evaluation (the
    first before any round, unless resumed).

    The keeper says whether to stop early. Whoever gives one brings back the round that counts with
    its `finish`.
    """
    options = simulator.training
    keeper = keeper or Keeper(options)
    if simulator.t == 0:
        first = simulator.evaluate()
        keeper.look(first, simulator)
        if progress:
            progress(simulator, first)
        yield first
    while simulator.t < options.rounds and not keeper.stopped:
        target = min(options.rounds, (simulator.t // options.eval_every + 1) * options.eval_every)
        while simulator.t < target:
            simulator.advance(target - simulator.t)
            if progress:
                progress(simulator, None)
        snapshot = simulator.evaluate()
        keeper.look(snapshot, simulator)
        if progress:
            progress(simulator, snapshot)
        yield snapshot


def simulate(
    method: Method | str,
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    graph: Graph | GraphRule | None = None,
    progress: Progress | bool | None = None,
    keep_collapsed: bool = False,
    channel: Channel | str = PLAIN,
    attack: Attack | None = None,
    metric: str | Metric | OwnMetric | None = None,
    **training: Unpack[TrainingOptions],
) -> Result:
    """Train a method on a federation in memory.

    `metric` is a name ("auc"), or a function (outputs, y) → a number of one client's rows, of which
    larger is better (`register_metric` takes others). Further arguments are those of `Training`:
    rounds, cohort, batch_size, seed, … With `progress` = True there is a bar on the terminal; in a
    notebook there is one unless it is False. A function is called with the simulator and, after an
    evaluation, a snapshot.

    A run that diverges raises `Diverged`; with `keep_collapsed` it gives what there was before,
    with `collapsed` set.
    """
    options = Training.from_config(judged_by(metric, dict(training)))
    begun = time.perf_counter()
    snapshots, collapsed, collapsed_at = [], None, None
    with Compilations() as compilations:
        simulator = Simulator(
            method, federation, model, options, graph, channel=channel, attack=attack
        )
        keeper = Keeper(options)
        try:
            with shown(simulator.method.title, progress) as show:
                for snapshot in drive(simulator, show, keeper):
                    snapshots.append(snapshot)
            add_newcomers(snapshots, keeper.finish(simulator))
        except Diverged as error:
            if not keep_collapsed:
                raise
            collapsed, collapsed_at = str(error), error.round
    seconds = time.perf_counter() - begun
    return Result(
        simulator.method,
        federation,
        options,
        snapshots,
        simulator.ledger,
        seconds,
        compilations.seconds,
        simulator,
        collapsed,
        collapsed_at,
        keeper.round if keeper.keeps and not collapsed else None,
    )


def add_newcomers(snapshots: list[Snapshot], found: Snapshot | None) -> None:
    """Put newcomers' scores to the evaluation of the round that they adapted from."""
    if found is not None:
        counted = next(s for s in snapshots if s.round == found.round)
        counted.scores |= found.scores
