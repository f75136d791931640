"""Tuning in memory: every method, Local included, gets the same budget, and only validation data
decide.

>>> import coterie
>>> fed = coterie.load("digits", clients=3, validation=0.3)
>>> options = {"rounds": 2, "eval_every": 2}
>>> found = tune_methods(fed, ["local"], training=options, steps=80, width=2)
>>> [(t.label, len(t.trials), t.steps) for t in found]
[('local', 2, 80.0)]
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from coterie.channel import PLAIN, Channel
from coterie.core.compilation import working_time
from coterie.core.errors import InvalidInput
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import GraphRule
from coterie.data.blind import blind
from coterie.data.blind import folds as cut_folds
from coterie.data.federation import Federation
from coterie.engine.arguments import (
    as_contender,
    as_federation,
    as_graph,
    as_list,
    as_model,
    as_seeds,
)
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.methods.local import Local
from coterie.models.base import Model, ModelSpec
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.tuning.batch import TuningProblem, predicted_steps
from coterie.runs.tuning.found import Tuned
from coterie.runs.tuning.options import Tuning
from coterie.runs.tuning.spaces import read_search, spaces_of
from coterie.runs.tuning.study import Study, TuningSettings, optuna, tune_one

TRIALS = 16
"""Runs of the method that takes most steps, for which the default budget is enough."""
FIRST_SEED = 1000
BRIEF = 60.0
"""With fewer seconds than this for a method, nothing is pruned: each new width of the stack of
trials compiles another program.
"""
Progress = Callable[[str, float, float | None, str], None]
"""Called with a label, the gradient steps per client taken so far, the budget of steps (None where
time decides), and a note.
"""


def tuning_seeds(reported: Sequence[int], count: int = 1) -> tuple[int, ...]:
    """Seeds that no report uses.

    >>> tuning_seeds([0, 1, 2]), tuning_seeds([1000], 2)
    ((1000,), (1001, 1002))
    """
    free = (seed for seed in range(FIRST_SEED, 2**31) if seed not in reported)
    return tuple(next(free) for _ in range(count))


class TuningRequest(NamedTuple):
    """What is to be tuned, however it was asked."""

    federation: Federation
    """Without test rows."""
    model: Model | ModelSpec | str
    graph: Graph | GraphRule | None
    training: Mapping[str, Any]
    contenders: list[Contender]
    reported: Sequence[int]
    tuning: Tuning

    def problem(self, seeds: Sequence[int]) -> TuningProblem:
        """What trials are made on."""
        options = Training.from_config(dict(self.training)).to_config()
        for key in ("seed", "store", "checkpoint_every"):
            options.pop(key, None)
        if options.get("held_out"):
            raise InvalidInput(
                f"training.held_out is {options['held_out']}, but tuning trains all clients; leave"
                " it out while tuning."
            )
        count = self.tuning.options.folds
        parts = [self.federation] if count is None else cut_folds(self.federation, count, seeds[0])
        return TuningProblem(tuple(parts), self.model, self.graph, options, tuple(seeds))

    def settings(self, problem: TuningProblem) -> TuningSettings:
        """What is the same for all methods."""
        options, steps = self.tuning.options, self.tuning.options.steps
        grid = options.sampler == "grid"
        budget = None if steps is None else float(steps)
        if steps is None and options.minutes is None and not grid:
            budget = TRIALS * max(predicted_steps(c.method, problem) for c in self.contenders)
        prune = options.prune
        if prune is None:
            share = math.inf if options.minutes is None else 60 * options.minutes
            prune = not grid and share / len(self.contenders) >= BRIEF
        return TuningSettings(
            *(budget, options.sampler, options.width, prune, problem.seeds[0], options.decay),
            trials=options.trials,
        )

    def study(self, place: int, settings: TuningSettings, storage: Any = None) -> Study:
        contender = self.contenders[place]
        options = self.tuning.options
        spaces = spaces_of(contender.method, self.tuning.spaces, whole=options.whole)
        return Study(self.labels[place], contender, spaces, settings, storage)

    @property
    def labels(self) -> list[str]:
        """A name for each method, no two alike."""
        from coterie.runs.compare import slug
        from coterie.runs.labels import distinct

        channel = lambda c: "" if c.channel == PLAIN else f" {c.channel.name}"
        graph = lambda c: "" if c.graph is None else f" {c.graph.kind}"
        names = [slug(c.method.name + channel(c) + graph(c)) for c in self.contenders]
        return distinct(names, "-{}")

    def with_local(self) -> TuningRequest:
        """Local comes first, unless it is there, with a penalty where the others have one; and so
        does a Local with a memory where a method has one (`Method.alone`).
        """
        penalty = max((c.method.l2 for c in self.contenders), default=0.0)
        plain = Local(l2=penalty)
        there = {type(c.method) for c in self.contenders}
        wanted = {type(m): m for m in (plain, *(c.method.alone(plain) for c in self.contenders))}
        added = [Contender(m) for kind, m in wanted.items() if kind not in there]
        return self._replace(contenders=[*added, *self.contenders])


def asked_experiment(experiment: Experiment) -> TuningRequest:
    """An experiment's data without test rows, and all that is tuned on it.

    With `resplit` the split is that of the first seed.
    """
    seeds = experiment.seeds or (experiment.training.seed,)
    split = experiment
    if experiment.resplit:
        split = experiment.with_(data_seed=experiment.data_seed + seeds[0])
    unseen = blind(split.federation())
    if experiment.attack is not None:
        raise InvalidInput(
            f"the experiment has the attack {experiment.attack.name!r}, but methods are tuned"
            " without one; leave it out."
        )
    graph = any(c.method.couples for c in experiment.contenders)
    return TuningRequest(
        unseen,
        experiment.model,
        experiment.graph.build(unseen) if graph else None,
        experiment.training.to_config(),
        list(experiment.contenders),
        seeds,
        experiment.tune or Tuning(),
    )


def _asked(
    problem: Experiment | Federation,
    contenders: Any,
    model: Any,
    graph: Graph | GraphRule | None,
    training: Mapping[str, Any] | None,
) -> TuningRequest:
    chosen = None
    if contenders is not None:
        listed = as_list("contenders", contenders, '["fedu"]')
        chosen = [c if isinstance(c, Contender) else Contender(*as_contender(c)) for c in listed]
    if isinstance(problem, Experiment):
        if chosen is not None:
            problem = problem.with_(contenders=tuple(chosen))
        made = asked_experiment(problem)
    else:
        fed, options = blind(as_federation(problem)), dict(training or {})
        seed = int(options.get("seed", 0))
        made = TuningRequest(
            fed, as_model(model), as_graph(graph), options, chosen or [], (seed,), Tuning()
        )
    if not made.contenders:
        raise InvalidInput("there is no method to tune; give at least 1.")
    return made


def tune_methods(
    problem: Experiment | Federation,
    contenders: Sequence[Contender | Method | str | tuple[Method | str, Channel]] | None = None,
    *,
    model: Model | ModelSpec | str = "mlr",
    graph: Graph | GraphRule | None = None,
    training: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    search: Mapping[str, Any] | None = None,
    local: bool = True,
    jobs: int = 1,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> list[Tuned]:
    """Tune methods in memory; the results are in the order of the methods, with Local first unless
    it is among them (or `local` is false).

    `problem` is an experiment, or a federation with `model`, `graph` and `training` (the options of
    a run). Test rows are taken away before anything else is done. Further arguments are those of
    the section [tune]: `minutes` for all methods together, or `steps` (gradient steps per client)
    for each; `trials`, `folds`, `sampler`, `width`, `prune`, `whole`, `decay`, `preset`. `search`
    has search spaces by method and option. `seeds` are those of the trials' runs; reports should
    use others. `jobs` methods are tuned at a time, in threads. When `stop` answers true, a method
    ends after the batch that is under way.
    """
    asked = _asked(problem, contenders, model, graph, training)
    spaces = {**asked.tuning.search, **read_search(dict(search or {}))}
    given = {**asked.tuning.options.to_config(), **options}
    asked = asked._replace(tuning=Tuning.from_config({**given}).searching(spaces))
    asked = asked.with_local() if local else asked
    if jobs < 1:
        raise InvalidInput(f"jobs is {jobs}, but must be a whole number ≥ 1.")
    runs = asked.tuning.options.runs
    chosen = tuning_seeds(asked.reported, runs) if seeds is None else as_seeds(seeds)
    whole = asked.problem(chosen)
    settings = asked.settings(whole)
    optuna()
    clock = Clock(asked.tuning.options.minutes, len(asked.contenders), jobs)

    def one(place: int) -> Tuned:
        study, taken = asked.study(place, settings), 0.0

        def tick(steps: float, note: str) -> None:
            nonlocal taken
            taken += steps
            if progress is not None:
                progress(study.label, taken, settings.steps, note)

        return tune_one(study, whole, deadline=clock.begin(), tick=tick, stop=stop)

    if jobs == 1:
        return [one(place) for place in range(len(asked.contenders))]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, range(len(asked.contenders))))


class Clock:
    """Shares minutes equally: what a method leaves over is shared by those after it."""

    def __init__(self, minutes: float | None, methods: int, jobs: int) -> None:
        self.lock = threading.Lock()
        self.waiting, self.jobs = methods, min(jobs, methods)
        self.end = None if minutes is None else working_time() + 60 * minutes

    def begin(self) -> float | None:
        """When the method that begins now must end."""
        with self.lock:
            if self.end is None:
                return None
            now = working_time()
            turns = max(1, math.ceil(self.waiting / self.jobs))
            self.waiting -= 1
            return now + max(0.0, self.end - now) / turns


tune = tune_methods
"""The name in `coterie.tune`."""
