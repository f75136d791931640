"""The trials of one method: what is tried next (Optuna), what it gave, and what is the best."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.compilation import working_time
from coterie.core.errors import InvalidInput
from coterie.core.metrics import metric_of
from coterie.core.search import Among, LogRange
from coterie.report.trials import Trial
from coterie.runs.contender import Contender
from coterie.runs.tuning.batch import TrialBatch, Tried, TuningProblem, predicted_steps
from coterie.runs.tuning.found import Tuned, best_of
from coterie.runs.tuning.spaces import Params, Spaces, grid_points, inside, point, with_params

MOST_IDLE = 10
"""Batches in a row of which every trial failed before its first round; then there is no use."""
TOLD = "coterie"
"""Under this name a study holds what became of a trial: one value, since each is a write."""


@dataclasses.dataclass(frozen=True)
class TuningSettings:
    """How one method is tuned."""

    steps: float | None
    """Gradient steps per client that its trials may take together; None: as time allows."""
    sampler: str = "tpe"
    width: int = 8
    prune: bool = True
    seed: int = 0
    """Of the sampler."""
    decay: bool = False
    """Step sizes go to 0 over a run, along a cosine."""
    trials: int | None = None
    """The most that are made; None: as many as the budget pays for."""


def optuna() -> Any:
    """The library, or one sentence."""
    try:
        import optuna as found
    except ImportError:
        raise InvalidInput(
            "tuning needs Optuna, which is not installed; install it with: pip install"
            " 'coterie[tune]'"
        ) from None
    found.logging.set_verbosity(found.logging.WARNING)
    return found


class Study:
    """Asks for trials in batches and is told what they gave; `storage` may survive the process."""

    def __init__(
        self,
        label: str,
        contender: Contender,
        spaces: Spaces,
        settings: TuningSettings,
        storage: Any,
    ) -> None:
        self.library, self.settings = optuna(), settings
        self.contender, self.spaces, self.label = contender, spaces, label
        self.study = self.library.create_study(
            storage=storage, study_name=label, direction="maximize", load_if_exists=True
        )
        self.distributions = {
            name: self._distribution(name, space) for name, space in spaces.items()
        }

    def _distribution(self, name: str, space: Any) -> Any:
        kinds = self.library.distributions
        if isinstance(space, Among):
            return kinds.CategoricalDistribution(space.values)
        log = isinstance(space, LogRange)
        if self.contender.method.public()[name].traced:
            return kinds.FloatDistribution(space.low, space.high, log=log)
        return kinds.IntDistribution(int(space.low), int(space.high), log=log)

    def take_up(self) -> None:
        """Trials that a killed process left unfinished are failed and asked for again."""
        state = self.library.trial.TrialState
        for trial in self.study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            self.study.tell(trial.number, state=state.FAIL)
            self.study.enqueue_trial(trial.params)

    @property
    def done(self) -> list[Any]:
        """Trials that were told, with what they gave."""
        return [t for t in self.study.get_trials(deepcopy=False) if TOLD in t.user_attrs]

    def trials(self) -> list[Trial]:
        return [
            Trial(
                number,
                dict(t.params),
                told["state"],
                float("nan") if told["score"] is None else told["score"],
                tuple(told["rounds"]),
                told["steps"],
                told["seconds"],
                told["reason"],
            )
            for number, t in enumerate(self.done)
            for told in (t.user_attrs[TOLD],)
        ]

    @property
    def steps(self) -> float:
        return float(sum(t.user_attrs[TOLD]["steps"] for t in self.done))

    def plan(self) -> None:
        """Before the first trial: the given values, then places that fill the space evenly."""
        if self.study.get_trials(deepcopy=False):
            return
        first = self._first()
        places = self._grid() if self.settings.sampler == "grid" else self._even()
        for params in [*([] if first is None else [first]), *places]:
            if params is not first or params not in places:
                self.study.enqueue_trial(params)

    def _first(self) -> Params | None:
        given = {name: getattr(self.contender.method, name) for name in self.spaces}
        fits = all(inside(space, given[name]) for name, space in self.spaces.items())
        return given if fits else None

    def _grid(self) -> list[Params]:
        return grid_points(self.spaces, None if self.settings.steps is None else self.settings.seed)

    def _even(self) -> list[Params]:
        """A low-discrepancy sequence for the first batch."""
        from scipy.stats import qmc

        if not self.spaces:
            return []
        drawn = qmc.Halton(len(self.spaces), seed=self.settings.seed)
        places = drawn.random(max(0, self.settings.width - 1))
        return [point(self.spaces, place, self.contender.method) for place in places]

    @property
    def waiting(self) -> int:
        state = self.library.trial.TrialState.WAITING
        return len(self.study.get_trials(deepcopy=False, states=(state,)))

    def ask(self, count: int) -> list[Any]:
        """So many trials, fewer where a grid has no more."""
        if self.settings.sampler == "grid" or not self.spaces:
            count = min(count, self.waiting) if self.done or self.spaces else 1
        told = len(self.done)
        seed = int(np.random.default_rng([self.settings.seed, told]).integers(2**31))
        samplers = self.library.samplers
        with _quietly():
            self.study.sampler = (
                samplers.TPESampler(seed=seed, n_startup_trials=1, multivariate=True)
                if self.settings.sampler == "tpe"
                else samplers.RandomSampler(seed=seed)
            )
            return [self.study.ask(self.distributions) for _ in range(count)]

    def tell(self, trial: Any, tried: Tried) -> None:
        state = self.library.trial.TrialState
        known = bool(np.isfinite(tried.score))
        facts = {
            "score": tried.score if known else None,
            "rounds": tried.rounds,
            "steps": tried.steps,
            "seconds": tried.seconds,
            "reason": tried.reason,
            "clients": (
                [] if tried.clients is None else [None if np.isnan(c) else c for c in tried.clients]
            ),
            "state": tried.state if known or tried.state == "failed" else "failed",
        }
        trial.set_user_attr(TOLD, facts)
        with _quietly():
            if facts["state"] == "complete":
                self.study.tell(trial, tried.score)
            else:
                for round_, score in tried.curve[-1:]:  # TPE learns from it where it was dropped
                    if np.isfinite(score):
                        trial.report(score, round_)
                ended = state.PRUNED if facts["state"] != "failed" else state.FAIL
                self.study.tell(trial, state=ended)

    def clients_of(self, number: int) -> NDArray[np.float64]:
        found = self.done[number].user_attrs[TOLD]["clients"]
        return np.array([np.nan if c is None else c for c in found], float)

    @property
    def seconds(self) -> float:
        """The time that was spent, by all processes that worked on it."""
        return float(self.study.user_attrs.get("seconds", 0.0))

    @property
    def core_seconds(self) -> float:
        """The same in seconds of processors, compiling included."""
        return float(self.study.user_attrs.get("core_seconds", 0.0))

    def spent(self, seconds: float, core_seconds: float) -> None:
        self.study.set_user_attr("seconds", self.seconds + seconds)
        self.study.set_user_attr("core_seconds", self.core_seconds + core_seconds)

    @property
    def finished(self) -> bool:
        return bool(self.study.user_attrs.get("finished"))

    def finish(self) -> None:
        self.study.set_user_attr("finished", True)

    def result(self, rounds: int) -> Tuned:
        trials = self.trials()
        best = best_of(trials)
        over = rounds if self.settings.decay else None
        method = with_params(self.contender.method, best.params, self.spaces, over)
        return Tuned(
            self.label,
            self.contender,
            self.contender._replace(method=method),
            best.score,
            self.clients_of(best.number),
            best.rounds,
            trials,
            self.steps,
            self.seconds,
            self.spaces,
            self.core_seconds,
        )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tune_one(
    study: Study,
    problem: TuningProblem,
    *,
    deadline: float | None = None,
    tick: Callable[[float, str], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    check: Callable[[], None] = lambda: None,
) -> Tuned:
    """Trials of one method until its budget is used up.

    `stop` ends it after a batch; `check` may raise in the middle of one, whose trials are then made
    anew when the study is taken up.
    """
    study.take_up()
    study.plan()
    batch_seconds, idle = 0.0, 0
    while not stop() and idle < MOST_IDLE:
        count = _affordable(study, problem)
        if study.done and deadline is not None:
            left = deadline - working_time()
            if left < 0.6 * batch_seconds or left <= 0:
                break
        if count < 1:
            break
        started, cores, before = working_time(), time.process_time(), study.steps
        try:
            told = _batch(study, problem, count, deadline, tick, check=check)
        finally:
            batch_seconds = working_time() - started
            study.spent(batch_seconds, time.process_time() - cores)
        if not told:
            break
        idle = 0 if study.steps > before else idle + 1
    if not stop():
        study.finish()
    return study.result(int(problem.training["rounds"]))


def _batch(
    study: Study,
    problem: TuningProblem,
    count: int,
    deadline: float | None,
    tick: Callable[[float, str], None] | None,
    *,
    check: Callable[[], None],
) -> int:
    """One batch of trials; gives how many there were.

    They are told together at the end, so that a killed process leaves whole batches.
    """
    settings = study.settings
    asked = study.ask(min(count, settings.width))
    over = int(problem.training["rounds"]) if settings.decay else None
    base = study.contender.method
    groups: dict[tuple[Any, ...], list[Any]] = {}
    public, note = base.public(), _note(study, problem)
    told: list[tuple[Any, Tried]] = []
    for trial in asked:
        static = tuple(v for k, v in trial.params.items() if not public[k].traced)
        groups.setdefault(static, []).append(trial)
    for trials in groups.values():
        methods, fit = [], []
        for trial in trials:
            try:
                methods.append(with_params(base, trial.params, study.spaces, over))
                fit.append(trial)
            except InvalidInput as error:
                told.append((trial, Tried(state="failed", reason=str(error))))
        if not fit:
            continue
        batch = TrialBatch(
            problem.over(study.contender),
            methods,
            study.contender.channel,
            prune=settings.prune,
            deadline=deadline,
            tick=None if tick is None else lambda steps: tick(steps, note),
            check=check,
        )
        told += zip(fit, batch.run(), strict=True)
    order = {trial.number: tried for trial, tried in told}
    for trial in asked:
        study.tell(trial, order[trial.number])
    return len(asked)


def _note(study: Study, problem: TuningProblem) -> str:
    metric = metric_of(problem.training.get("metric"), problem.federations[0].task)
    scores = [t.score for t in study.trials() if np.isfinite(t.score)]
    best = f", best {metric.name} {metric.value(max(scores)):.4f}" if scores else ""
    return f"{len(study.done)} trials{best}"


def _affordable(study: Study, problem: TuningProblem) -> int:
    """How many more trials there may be; of those that gradient steps pay for, if all run to their
    end.
    """
    settings, done = study.settings, study.done
    most = settings.width if settings.trials is None else settings.trials - len(done)
    if settings.steps is None:
        return most
    whole = [t.steps for t in study.trials() if t.state == "complete"]
    cost = float(np.mean(whole)) if whole else predicted_steps(study.contender.method, problem)
    affordable = int((settings.steps - study.steps) / max(cost, 1e-9) + 1e-6)
    paid = max(affordable, 0 if done else 1)
    return paid if settings.trials is None else min(paid, most)
