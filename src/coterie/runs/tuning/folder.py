"""Tuning into a folder: studies in SQLite that survive a kill, and what was found.

The folder holds config.toml, inputs.json, study.db (a study per method), and at the end tuned.toml
(the experiment with the values that were found), trials.csv, trials.md and trials.svg.

What was tuned on a cluster has a folder of its own for each method, studies/METHOD: several
machines must not write to one SQLite file, so each file has one process at a time that writes to
it. Wherever a method's trials are, a command goes on with them, on a cluster or not.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.compilation import working_time
from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder, write_text
from coterie.core.metrics import metric_of
from coterie.methods.local import Local, equal_compute
from coterie.report.trials import trials_csv, trials_figure, trials_markdown
from coterie.runs import inputs
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.contender import Contender
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Board, Workers
from coterie.runs.tuning.found import Tuned
from coterie.runs.tuning.study import optuna
from coterie.runs.tuning.tune import Clock
from coterie.runs.tuning.workshop import STUDIES, STUDY, Show, Workshop

FOUND = ("tuned.toml", "trials.csv", "trials.md", "trials.svg")
WRITTEN = ("config.toml", inputs.FILE, STUDY, f"{STUDY}-wal", f"{STUDY}-shm", *FOUND)


@dataclasses.dataclass(frozen=True)
class PlannedTuning:
    """The tuning of one method, for a process of its own."""

    label: str
    workshop: Workshop
    number: int
    seconds: float | None
    """As `Workshop.tune` takes them."""

    @property
    def family(self) -> str:
        return self.label

    @property
    def folder(self) -> Path:
        return self.workshop.folder

    def order(self) -> dict[str, Any]:
        return {
            "tune": self.workshop.experiment.to_toml(),
            "folder": str(self.folder),
            "alone": self.workshop.alone,
            "number": self.number,
            "seconds": self.seconds,
        }

    def refuse_other_inputs(self) -> None:
        """Refuse trials of another machine on other data or files than there are here."""
        if what := inputs.changed(self.folder, self.workshop.experiment):
            raise InvalidInput(
                f"{what} that {self.label!r} was tuned with on the cluster is not that of this"
                " machine; give all machines the same, and tune anew with --force."
            )


def tune_in_folder(order: dict[str, Any], show: Show) -> None:
    """What a process does when it is given a `PlannedTuning`."""
    experiment = Experiment.from_config(tomllib.loads(order["tune"]))
    workshop = Workshop.of(experiment, Path(order["folder"]))
    workshop = dataclasses.replace(workshop, alone=order["alone"])
    workshop.tune(order["number"], order["seconds"], show)


def tune_into(
    experiment: Experiment,
    folder: Path,
    *,
    force: bool = False,
    jobs: int = 1,
    cluster: Scheduler | None = None,
    board: Board | None = None,
    say: runs.Say = print,
) -> list[Tuned]:
    """Tune all methods of an experiment, and Local, into a folder; `jobs` methods at a time, or as
    many as a `cluster` has workers.

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
            for noted in (folder, *_own_folders(folder)):
                inputs.refuse_changed(noted, experiment, "tune anew with --force")
        elif not again or inputs.changed(folder, experiment):
            _discard(folder, lambda own: True)
            for name in WRITTEN:
                (folder / name).unlink(missing_ok=True)
        elif force:
            _discard(folder, lambda own: bool(inputs.changed(own, experiment)))
        write_text(config, text)
        inputs.note(folder, experiment)
        if cluster is not None:
            _tune_on_cluster(workshop, cluster, board, say)
        else:
            _tune_all(workshop, jobs, board, say)
        return _written(workshop)


def _own_folders(folder: Path) -> list[Path]:
    """Those of single methods, which were tuned on a cluster."""
    return sorted(path for path in (folder / STUDIES).glob("*") if path.is_dir())


def _discard(folder: Path, unwanted: Callable[[Path], bool]) -> None:
    """Delete the own folders of methods, unless somebody is at work there."""
    for own in _own_folders(folder):
        if unwanted(own):
            with locked(own):
                shutil.rmtree(own)


def _tune_on_cluster(
    workshop: Workshop, cluster: Scheduler, board: Board | None, say: runs.Say
) -> None:
    """Each method on a worker, in its own study, with the same share of the minutes whichever
    workers there are.
    """
    from coterie.runs.cluster.drive import OnCluster

    labels, minutes = workshop.asked.labels, workshop.minutes
    share = None if minutes is None else 60 * minutes / len(labels)
    plan = []
    for place, label in enumerate(labels):
        there = workshop.of_method(place)
        if there.begun and workshop.asked.study(place, there.settings, there.storage()).finished:
            continue
        plan.append(PlannedTuning(label, workshop.moved_out(place), place, share))
    if plan:
        OnCluster(cluster, plan, len(labels), board, say).work()


def _tune_all(workshop: Workshop, jobs: int, board: Board | None, say: runs.Say) -> None:
    asked, studies = workshop.asked, workshop.studies()
    todo = [i for i, study in enumerate(studies) if not study.finished]
    spent = sum(study.seconds for study in studies) / (60 * jobs)
    minutes = None if workshop.minutes is None else max(1e-3, workshop.minutes - spent)
    if jobs > 1 and len(todo) > 1:
        crew = min(jobs, len(todo))
        turns = math.ceil(len(todo) / crew)
        share = None if minutes is None else 60 * minutes / turns
        plan = [
            PlannedTuning(
                asked.labels[i],
                workshop.of_method(i),
                i,
                None if share is None else share + studies[i].seconds,
            )
            for i in todo
        ]
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

        deadline = clock.begin()
        left = None if deadline is None else deadline - working_time()
        seconds = None if left is None else left + studies[i].seconds
        workshop.of_method(i).tune(i, seconds, show)


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
    folder = workshop.folder
    rounds = int(workshop.problem.training["rounds"])
    found = [study.result(rounds) for study in workshop.studies()]
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
