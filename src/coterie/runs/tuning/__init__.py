"""Tuning: every method, Local included, gets the same budget, and only validation data decide."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from coterie.channel import Channel
from coterie.core.errors import InvalidInput, unknown
from coterie.coupling.graph import Graph
from coterie.data.blind import blind
from coterie.data.blind import folds as cut_folds
from coterie.data.federation import Federation
from coterie.engine.arguments import as_contender, as_federation, as_graph, as_list, as_model
from coterie.engine.training import Training
from coterie.methods.base import Method
from coterie.methods.graph import GraphMethod
from coterie.methods.local import Local
from coterie.models.base import Model, ModelSpec
from coterie.runs.experiment import Contender, Experiment
from coterie.runs.tuning.batch import Problem
from coterie.runs.tuning.spaces import PRESETS, Spaces, read_search, spaces_of
from coterie.runs.tuning.study import (
    SAMPLERS,
    Settings,
    Study,
    Trial,
    Tuned,
    optuna,
    predicted_steps,
    tune_one,
)

__all__ = [
    "PRESETS",
    "SAMPLERS",
    "Problem",
    "Settings",
    "Study",
    "Trial",
    "Tuned",
    "labels_of",
    "optuna",
    "problem_of",
    "tune_methods",
    "tuning_seeds",
]
TRIALS = 16
"""Runs of the dearest method that the default budget pays for."""
FIRST_SEED = 1000
Progress = Callable[[str, float, float | None, str], None]
"""Called with a label, the gradient steps per client taken so far, the budget of steps (None where
time decides), and a note.
"""


def tuning_seeds(reported: Sequence[int], count: int = 1) -> tuple[int, ...]:
    """Seeds that no report uses.

    >>> tuning_seeds([0, 1, 2]), tuning_seeds([1000], 2)
    ((1000,), (1001, 1002))
    """
    out: list[int] = []
    seed = FIRST_SEED
    while len(out) < count:
        if seed not in reported:
            out.append(seed)
        seed += 1
    return tuple(out)


def problem_of(
    federation: Federation,
    model: Model | ModelSpec | str,
    graph: Graph | None,
    training: Mapping[str, Any],
    *,
    seeds: Sequence[int],
    folds: int | None = None,
) -> Problem:
    """What is tuned on: the federation without its test rows, or its folds."""
    options = {k: v for k, v in training.items() if k not in ("seed", "store", "checkpoint_every")}
    options = {**Training.from_config(options).to_config(), **options}
    for key in ("seed", "store", "checkpoint_every"):
        options.pop(key, None)
    if options.get("held_out"):
        raise InvalidInput(
            f"training.held_out is {options['held_out']}, but tuning trains all clients; leave it"
            " out while tuning."
        )
    unseen = blind(federation)
    parts = [unseen] if folds is None else cut_folds(unseen, folds, int(seeds[0]))
    return Problem(tuple(parts), model, graph, options, tuple(seeds))


def labels_of(contenders: Sequence[Contender]) -> list[str]:
    """A name for each, no two alike."""
    from coterie.runs.compare import distinct, slug

    names = [
        slug(c.method.name + ("" if c.channel.name == "plain" else f" {c.channel.name}"))
        for c in contenders
    ]
    return distinct(names, "-{}")


def tune_methods(
    problem: Experiment | Federation,
    contenders: Sequence[Contender | Method | str | tuple[Method | str, Channel]] | None = None,
    *,
    model: Model | ModelSpec | str = "mlr",
    graph: Graph | None = None,
    training: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    steps: float | None = None,
    seeds: Sequence[int] | None = None,
    folds: int | None = None,
    sampler: str = "tpe",
    search: Mapping[str, Any] | None = None,
    whole: bool = False,
    decay: bool = False,
    prune: bool | None = None,
    width: int = 8,
    local: bool = True,
    jobs: int = 1,
    progress: Progress | None = None,
) -> list[Tuned]:
    """Tune methods in memory, in the order given; Local comes first, unless it is among them.

    `problem` is an experiment, or a federation with `model`, `graph` and `training` (the options of
    a run). All methods get the same budget: `steps` gradient steps per client each, or `minutes`
    for all together, shared equally. Without either, as many steps as 16 runs of the method that
    takes most. `seeds` are those of tuning, and should not be reported on. `search` overrides
    search spaces, by method and option; `whole` also searches whole numbers, each of which compiles
    a program; `decay` lets step sizes go to 0 over a run. `jobs` methods are tuned at a time, in
    threads.

    Test rows are taken away before anything else is done.
    """
    given = _asked(problem, contenders, model, graph, training)
    contenders_ = list(given.contenders)
    if local and not any(isinstance(c.method, Local) for c in contenders_):
        contenders_.insert(0, Contender(Local()))
    whole_problem = problem_of(
        given.federation,
        given.model,
        given.graph,
        given.training,
        seeds=tuning_seeds(given.reported) if seeds is None else seeds,
        folds=folds,
    )
    if sampler not in SAMPLERS:
        raise unknown("the sampler", sampler, SAMPLERS)
    if minutes is not None and not 0 < minutes < math.inf:
        raise InvalidInput(f"minutes is {minutes!r}, but must be a number > 0.")
    if steps is not None and not 0 < steps < math.inf:
        raise InvalidInput(f"steps is {steps!r}, but must be a number > 0.")
    if steps is None and minutes is None and sampler != "grid":
        steps = TRIALS * max(predicted_steps(c.method, whole_problem) for c in contenders_)
    spaces = read_search(dict(search or {}))
    if prune is None:
        prune = sampler != "grid" and (minutes is None or 60 * minutes / len(contenders_) >= 60)
    settings = Settings(steps, sampler, width, prune, whole_problem.seeds[0], decay)
    return _tune_all(
        contenders_,
        whole_problem,
        settings,
        spaces,
        minutes=minutes,
        whole=whole,
        jobs=jobs,
        progress=progress,
    )


def _tune_all(
    contenders: Sequence[Contender],
    problem: Problem,
    settings: Settings,
    search: Mapping[str, Spaces],
    *,
    minutes: float | None,
    whole: bool,
    jobs: int,
    progress: Progress | None,
) -> list[Tuned]:
    optuna()
    clock = Clock(minutes, len(contenders), jobs)

    def one(label: str, contender: Contender) -> Tuned:
        spaces = spaces_of(contender.method, search, whole=whole)
        study = Study(label, contender, spaces, settings, None)
        taken = 0.0

        def tick(steps: float, note: str) -> None:
            nonlocal taken
            taken += steps
            if progress is not None:
                progress(label, taken, settings.steps, note)

        return tune_one(study, problem, deadline=clock.begin(), tick=tick)

    named = list(zip(labels_of(contenders), contenders, strict=True))
    if jobs == 1:
        return [one(label, contender) for label, contender in named]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda pair: one(*pair), named))


class Clock:
    """Shares minutes equally: what a method leaves over is shared by those after it."""

    def __init__(self, minutes: float | None, methods: int, jobs: int) -> None:
        self.lock = threading.Lock()
        self.waiting, self.jobs = methods, min(jobs, methods)
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def begin(self) -> float | None:
        """When the method that begins now must end."""
        with self.lock:
            if self.end is None:
                return None
            now = time.monotonic()
            turns = max(1, math.ceil(self.waiting / self.jobs))
            self.waiting -= 1
            return now + max(0.0, self.end - now) / turns


class _Asked(NamedTuple):
    federation: Federation
    model: Model | ModelSpec | str
    graph: Graph | None
    training: Mapping[str, Any]
    contenders: list[Contender]
    reported: Sequence[int]


def _asked(
    problem: Experiment | Federation,
    contenders: Any,
    model: Any,
    graph: Graph | None,
    training: Mapping[str, Any] | None,
) -> _Asked:
    """Both ways to ask, as one."""
    if isinstance(problem, Experiment):
        unseen = blind(problem.federation())
        needs = any(isinstance(c.method, GraphMethod) for c in problem.contenders)
        made = _Asked(
            unseen,
            problem.model,
            problem.graph.build(unseen) if needs or contenders is not None else None,
            problem.training.to_config(),
            list(problem.contenders),
            problem.seeds or (problem.training.seed,),
        )
    else:
        made = _Asked(
            blind(as_federation(problem)), as_model(model), as_graph(graph), training or {}, [], ()
        )
    if contenders is not None:
        listed = as_list("contenders", contenders, '["fedu"]')
        chosen = [c if isinstance(c, Contender) else Contender(*as_contender(c)) for c in listed]
        made = made._replace(contenders=chosen)
    if not made.contenders:
        raise InvalidInput("there is no method to tune; give at least 1.")
    return made
