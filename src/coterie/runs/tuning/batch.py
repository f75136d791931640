"""Trials side by side: values of a method's options, trained in one compiled program and scored on
validation data.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.channel import Channel
from coterie.core.compilation import working_time
from coterie.core.errors import InvalidInput
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.federation import Federation
from coterie.engine.keeper import Keeper, Standing
from coterie.engine.many import Many
from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Saved, Snapshot
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.models.base import Model, ModelSpec
from coterie.runs.contender import Contender


@dataclasses.dataclass(frozen=True)
class TuningProblem:
    """What is tuned on. No federation here has test rows."""

    federations: tuple[Federation, ...]
    """One, or one for every fold."""
    model: Model | ModelSpec | str
    graph: Graph | GraphRule | None
    training: dict[str, Any]
    """The options of a run, but for its seed."""
    seeds: tuple[int, ...]

    def over(self, contender: Contender) -> TuningProblem:
        """The same problem over the graph of a method that has one of its own."""
        if contender.graph is None:
            return self
        return dataclasses.replace(self, graph=contender.graph.build(self.federations[0]))

    def __post_init__(self) -> None:
        for federation in self.federations:
            if len(federation.test):
                raise InvalidInput(
                    f"{federation.name!r} has {len(federation.test)} test rows, but tuning must not"
                    " have any."
                )
            if not len(federation.validation):
                raise InvalidInput(
                    f"{federation.name!r} has no validation data to tune on; give it a validation"
                    " share > 0, or tune with folds."
                )

    @property
    def legs(self) -> list[tuple[Federation, int]]:
        """The runs of one trial: every fold at every seed."""
        return [(federation, seed) for federation in self.federations for seed in self.seeds]


@dataclasses.dataclass
class Tried:
    """What became of one trial of a batch."""

    score: float = float("nan")
    """Mean over folds and seeds of the mean validation score over clients."""
    clients: NDArray[np.float64] | None = None
    """The same per client."""
    rounds: list[int] = dataclasses.field(default_factory=list)
    """The round that counts, of every run of the trial."""
    steps: float = 0.0
    """Gradient steps per client that it took."""
    seconds: float = 0.0
    state: str = "complete"
    """"complete"; "pruned" (dropped as one of the worse half); "cut" (time was up); "failed"."""
    reason: str = ""
    curve: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """Validation scores of the first run, by round."""


class _NotKept:
    """A shelf for runs whose models nobody will ask for."""

    def put(self, simulator: Simulator) -> None:
        pass

    def get(self) -> Saved:
        raise NotImplementedError


Tick = Callable[[float], None]
"""Called with the gradient steps per client that were taken since the last call."""


class TrialBatch:
    """Methods that differ in floats only, as trials side by side."""

    def __init__(
        self,
        problem: TuningProblem,
        methods: Sequence[Method],
        channel: Channel,
        *,
        prune: bool = True,
        deadline: float | None = None,
        tick: Tick | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.check = check
        """Called after every evaluation; may raise to stop at once."""
        self.problem, self.methods, self.channel = problem, list(methods), channel
        self.prune, self.deadline, self.tick = prune, deadline, tick
        self.tried = [Tried() for _ in methods]
        self.found: list[list[tuple[Standing, NDArray[np.float64], int]]] = [[] for _ in methods]

    @property
    def late(self) -> bool:
        return self.deadline is not None and working_time() > self.deadline

    def run(self) -> list[Tried]:
        """All trials to their end; those that do badly in the first run are dropped on the way."""
        going = list(range(len(self.methods)))
        for number, (federation, seed) in enumerate(self.problem.legs):
            going = self._leg(going, federation, seed, first=number == 0)
            if not going:
                break
        for tried, found in zip(self.tried, self.found, strict=True):
            if found and tried.state != "failed":
                tried.score = float(np.mean([standing.score for standing, _, _ in found]))
                tried.clients = _mean([scores for _, scores, _ in found])
                tried.rounds = [round_ for _, _, round_ in found]
        return self.tried

    def _leg(
        self, going: list[int], federation: Federation, seed: int, *, first: bool
    ) -> list[int]:
        """One run of each trial that is still going; gives those that go on."""
        begun = time.perf_counter()
        try:
            many = self._many(going, federation, seed)
        except InvalidInput as error:  # e.g. more numbers per message than the model has
            for i in going:
                self._fail(i, str(error))
            return []
        for place, i in enumerate(going):
            broken = [str(c) for c in many.sims[place].conditions() if not c.holds]
            if broken:
                self._fail(i, f"a step-size condition is broken: {'; '.join(broken)}.")
        many.keep([p for p, i in enumerate(going) if self.tried[i].state != "failed"])
        keepers = [Keeper(s.training, _NotKept()) for s in many.sims]
        last: list[Snapshot | None] = [None] * len(going)
        best: list[tuple[Standing, NDArray[np.float64], int] | None] = [None] * len(going)
        spent = [0] * len(going)
        rungs = _rungs(many.training.rounds) if self.prune and first else []

        def look() -> None:
            for p, snapshot in many.evaluate().items():
                last[p] = snapshot
                keepers[p].look(snapshot, many.sims[p])
                now = Standing.of(snapshot)
                if now is None:
                    continue
                if first:
                    self.tried[going[p]].curve.append((snapshot.round, now.score))
                kept = many.training.keep == "best"
                held = best[p]
                if held is None or not kept or now.beats(held[0]):
                    scores = snapshot.scores["validation"].score[0]
                    best[p] = (now, scores, snapshot.round)

        def pay() -> None:
            for p, s in enumerate(many.sims):
                steps = (s.ledger.gradients - spent[p]) / s.federation.clients
                self.tried[going[p]].steps += steps
                spent[p] = s.ledger.gradients
                if self.tick is not None and steps:
                    self.tick(steps)

        look()
        while many.t < many.training.rounds and many.members:
            self._advance(many)
            look()
            for p, why in many.failed.items():
                self._fail(going[p], str(why))
            pay()
            self.check()
            many.keep([p for p in many.members if not keepers[p].stopped])
            if self.late:
                break
            if rungs and many.t >= rungs[0] and many.members:
                rungs.pop(0)
                self._drop(many, best, going)
        cut = many.t < many.training.rounds and self.late
        for p, i in enumerate(going):
            one, tried = best[p], self.tried[i]
            if one is not None and tried.state != "failed":
                self.found[i].append(one)
            if cut and p in many.members and tried.state == "complete":
                tried.state, tried.reason = "cut", f"time was up after round {many.t}"
            tried.seconds += (time.perf_counter() - begun) / len(going)
        if cut:
            return []
        return [i for i in going if self.tried[i].state == "complete"]

    def _advance(self, many: Many) -> None:
        """To the next evaluation; with a deadline no further than that, but for the first tenth of
        the rounds, without which values cannot be told apart.
        """
        least = -(-many.training.rounds // 10)
        ahead = many.training.eval_every - many.t % many.training.eval_every
        if self.deadline is None:
            many.advance(ahead)
            return
        for _ in range(ahead):
            many.advance(1)
            if not many.members or (many.t >= least and self.late):
                break

    def _many(self, going: list[int], federation: Federation, seed: int) -> Many:
        return Many(
            [self.methods[i] for i in going],
            federation,
            self.problem.model,
            seeds=[seed] * len(going),
            graph=self.problem.graph,
            channel=self.channel,
            training=self.problem.training,
            alike=True,
        )

    def _drop(self, many: Many, best: Sequence[Any], going: Sequence[int]) -> None:
        """The worse half of the trials that are still going ends here."""
        rank = lambda p: (-best[p][0].score, best[p][0].loss)
        ranked = sorted(many.members, key=rank)
        stays = ranked[: -(-len(ranked) // 2)]
        for p in ranked[len(stays) :]:
            tried = self.tried[going[p]]
            tried.state = "pruned"
            tried.reason = f"one of the worse half after round {many.t}"
        many.keep(stays)

    def _fail(self, i: int, reason: str) -> None:
        self.tried[i].state, self.tried[i].reason = "failed", reason


def _rungs(rounds: int) -> list[int]:
    """After these rounds the worse half is dropped."""
    return [r for r in (-(-rounds // 4), -(-rounds // 2)) if r < rounds]


def _mean(scores: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Mean over runs, per client; NaN for clients without validation rows."""
    stacked = np.stack(scores)
    there = ~np.isnan(stacked)
    total = np.where(there, stacked, 0.0).sum(0)
    with np.errstate(invalid="ignore"):
        return np.where(there.any(0), total / there.sum(0), np.nan)


def predicted_steps(method: Method, problem: TuningProblem) -> float:
    """Gradient steps per client of one trial that runs to its end, as its options tell."""
    training = Training.from_config({**problem.training, "seed": 0})
    total = 0.0
    for federation, _ in problem.legs:
        work = method.work()
        if work.epochs is not None:
            batch = federation.shape.largest if training.sampling == "full" else training.batch_size
            each = float(np.mean(-(-federation.train.sizes // batch))) * work.epochs
        else:
            each = float(work.steps or 1)
        share = (
            1.0 if work.trains == "all" else training.cohort_size(federation) / federation.clients
        )
        total += each * share * training.rounds
    return total
