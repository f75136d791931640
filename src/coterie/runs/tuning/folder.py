"""Tuning into a folder: a study in SQLite that survives a kill, and what was found.

The folder holds config.toml, inputs.json, study.db (a study per method), and at the end tuned.toml
(the experiment with the values that were found), trials.csv, trials.md and trials.svg.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sqlite3
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder, write_text
from coterie.core.metrics import metric_of
from coterie.methods.local import Local, equal_compute
from coterie.report.trials import trials_csv, trials_figure, trials_markdown
from coterie.runs import inputs
from coterie.runs import run as runs
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Board, Workers
from coterie.runs.tuning.batch import TuningProblem
from coterie.runs.tuning.study import Tuned, TuningSettings, optuna, tune_one
from coterie.runs.tuning.tune import Clock, TuningRequest, asked_experiment, tuning_seeds

STUDY = "study.db"
FOUND = ("tuned.toml", "trials.csv", "trials.md", "trials.svg")
WRITTEN = ("config.toml", inputs.FILE, STUDY, f"{STUDY}-wal", f"{STUDY}-shm", *FOUND)
Show = Callable[[float, float, str], None]
"""Called with what is done, what there is to do (steps, or seconds), and a note."""


@dataclasses.dataclass(frozen=True)
class Workshop:
    """An experiment that is tuned into a folder."""

    experiment: Experiment
    folder: Path
    asked: TuningRequest
    problem: TuningProblem
    settings: TuningSettings

    @classmethod
    def of(cls, experiment: Experiment, folder: Path) -> Workshop:
        """Loads and checks everything, and writes nothing."""
        if not experiment.contenders:
            raise InvalidInput("the experiment names no method; give [[methods]] or --method.")
        asked = asked_experiment(experiment).with_local()
        seeds = tuning_seeds(asked.reported, asked.tuning.options.runs)
        problem = asked.problem(seeds)
        return cls(experiment, folder, asked, problem, asked.settings(problem))

    def storage(self) -> Any:
        """The studies, for one process among several.

        With a write-ahead log, what was committed survives a kill without a wait for the disk.
        """
        library, path = optuna(), (self.folder / STUDY).resolve()
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        wait = {"connect_args": {"timeout": 60}}
        made = library.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=wait)
        from sqlalchemy import event

        event.listen(
            made.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=NORMAL")
        )
        made.engine.dispose()  # connections from now on
        return made

    @property
    def minutes(self) -> float | None:
        return self.asked.tuning.options.minutes

    def tune(self, place: int, deadline: float | None, show: Show) -> Tuned:
        """All trials of one method that are not made yet."""
        study = self.asked.study(place, self.settings, self.storage())
        rounds = int(self.problem.training["rounds"])
        if study.finished:
            return study.result(rounds)
        taken, begun = study.steps, time.monotonic()
        share = 0.0 if deadline is None else max(deadline - begun, 1e-9)

        def tick(steps: float, note: str) -> None:
            nonlocal taken
            taken += steps
            if share:
                show(min(time.monotonic() - begun, share), share, note)
            elif self.settings.steps is not None:
                show(min(taken, self.settings.steps), self.settings.steps, note)
            else:
                show(len(study.done), len(study.done) + study.waiting, note)

        with runs.stop_requests() as stop_asked:

            def check() -> None:
                if stop_asked():
                    raise runs.Interrupted(
                        f"stopped; the trials that have ended are in {str(self.folder)!r}; go on"
                        " with the same command."
                    )

            return tune_one(study, self.problem, deadline=deadline, tick=tick, check=check)


@dataclasses.dataclass(frozen=True)
class PlannedTuning:
    """The tuning of one method, for a process of its own."""

    label: str
    folder: Path
    config: str
    number: int
    seconds: float | None

    @property
    def family(self) -> str:
        return self.label

    def order(self) -> dict[str, Any]:
        return {
            "tune": self.config,
            "folder": str(self.folder),
            "number": self.number,
            "seconds": self.seconds,
        }


def tune_in_folder(order: dict[str, Any], show: Show) -> None:
    """What a process does when it is given a `PlannedTuning`."""
    experiment = Experiment.from_config(tomllib.loads(order["tune"]))
    workshop = Workshop.of(experiment, Path(order["folder"]))
    seconds = order["seconds"]
    deadline = None if seconds is None else time.monotonic() + seconds
    workshop.tune(order["number"], deadline, show)


def tune_into(
    experiment: Experiment,
    folder: Path,
    *,
    force: bool = False,
    jobs: int = 1,
    board: Board | None = None,
    say: runs.Say = print,
) -> list[Tuned]:
    """Tune all methods of an experiment, and Local, into a folder; `jobs` methods at a time.

    The command can be killed and repeated: trials that have ended are kept, and those that were
    under way are made anew.
    """
    if jobs < 1:
        raise InvalidInput(f"jobs is {jobs}, but must be a whole number ≥ 1.")
    workshop = Workshop.of(experiment, folder)
    optuna()
    config = folder / "config.toml"
    text = experiment.to_toml()
    again = config.is_file() and config.read_text(encoding="utf-8") == text
    make_folder(folder, force=force or again)
    with locked(folder):
        if again and not force:
            inputs.refuse_changed(folder, experiment, "tune anew with --force")
        elif not again or inputs.changed(folder, experiment):
            for name in WRITTEN:
                (folder / name).unlink(missing_ok=True)
        write_text(config, text)
        inputs.note(folder, experiment)
        _tune_all(workshop, jobs, board, say)
        return _written(workshop)


def _tune_all(workshop: Workshop, jobs: int, board: Board | None, say: runs.Say) -> None:
    asked, storage = workshop.asked, workshop.storage()
    studies = [asked.study(i, workshop.settings, storage) for i in range(len(asked.contenders))]
    todo = [i for i, study in enumerate(studies) if not study.finished]
    spent = sum(study.seconds for study in studies) / (60 * jobs)
    minutes = None if workshop.minutes is None else max(1e-3, workshop.minutes - spent)
    if jobs > 1 and len(todo) > 1:
        crew = min(jobs, len(todo))
        turns = math.ceil(len(todo) / crew)
        seconds = None if minutes is None else 60 * minutes / turns
        config = workshop.experiment.to_toml()
        plan = [PlannedTuning(asked.labels[i], workshop.folder, config, i, seconds) for i in todo]
        Workers(crew, plan, len(asked.contenders), board, say).work()
        return
    clock = Clock(minutes, len(todo), 1)
    for number, i in enumerate(todo):
        label = asked.labels[i]
        if board is not None:
            board.overall(number, len(todo))
            board.show(0, label, None, None, None)

        def show(done: float, total: float, note: str, label: str = label) -> None:
            if board is not None:
                board.show(0, label, int(done), math.ceil(total), note)

        workshop.tune(i, clock.begin(), show)


def tuned_experiment(experiment: Experiment, found: list[Tuned]) -> Experiment:
    """The experiment with the values that were found: Local at its best, Local at the gradient
    steps and step size of each other method, and the others.
    """
    local = [t.contender for t in found if isinstance(t.method, Local)]
    others = [t.contender for t in found if not isinstance(t.method, Local)]
    equal = [Contender(equal_compute(c.method)) for c in others]
    contenders: list[Contender] = []
    for contender in [*local, *equal, *others]:
        if contender not in contenders:
            contenders.append(contender)
    return experiment.with_(contenders=tuple(contenders), tune=None)


def how(workshop: Workshop, found: list[Tuned]) -> list[str]:
    """How it was tuned, in sentences."""
    options, seeds = workshop.asked.tuning.options, workshop.problem.seeds
    many = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"seed {seeds[0]}"
    reported = ", ".join(map(str, workshop.asked.reported))
    rows = "validation rows" if options.folds is None else f"{options.folds} folds of all but"
    rows = rows if options.folds is None else f"{rows} the test rows, within each client"
    told = [
        f"Scores are means over clients on {rows}; test rows were taken away before.",
        f"Runs have {many}; reports have {reported}.",
    ]
    if workshop.settings.steps is not None:
        told.append(
            f"Every method had {workshop.settings.steps:g} gradient steps per client for all its"
            " trials."
        )
    elif workshop.minutes is not None:
        told.append(f"All methods together had {workshop.minutes:g} minutes, shared equally.")
    if workshop.experiment.resplit:
        told.append(
            "The split is that of the first seed (resplit); test rows of the other seeds may be"
            " among the rows that were tuned on."
        )
    spent = ", ".join(f"{t.label} {t.steps:.0f} steps in {t.seconds:.0f} s" for t in found)
    return [*told, f"Spent: {spent}."]


def _written(workshop: Workshop) -> list[Tuned]:
    """What was found, in files."""
    folder, storage = workshop.folder, workshop.storage()
    rounds = int(workshop.problem.training["rounds"])
    places = range(len(workshop.asked.contenders))
    found = [workshop.asked.study(i, workshop.settings, storage).result(rounds) for i in places]
    told, tables = how(workshop, found), [t.table() for t in found]
    task = workshop.problem.federations[0].task
    metric = metric_of(workshop.experiment.training.metric, task)
    head = f"# {workshop.experiment.name}: trials\n\n" + "\n".join(told) + "\n"
    write_text(folder / "trials.csv", trials_csv(tables))
    write_text(folder / "trials.md", trials_markdown(tables, head, metric))
    write_text(folder / "trials.svg", trials_figure(tables, metric) + "\n")
    remarks = "".join(f"# {sentence}\n" for sentence in ("Made by `coterie tune`.", *told))
    experiment = tuned_experiment(workshop.experiment, found)
    write_text(folder / "tuned.toml", remarks + "\n" + experiment.to_toml())
    return found
