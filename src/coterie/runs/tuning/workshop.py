"""Where methods are tuned: a folder with their studies in SQLite, or, on a cluster, one folder for
each, since several machines must not write to one SQLite file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.compilation import working_time
from coterie.core.errors import InvalidInput
from coterie.core.files import locked, writing
from coterie.runs import inputs
from coterie.runs import run as runs
from coterie.runs.experiment import Experiment
from coterie.runs.stopping import stop_requests
from coterie.runs.tuning.batch import TuningProblem
from coterie.runs.tuning.study import Study, TuningSettings, optuna, tune_one
from coterie.runs.tuning.tune import TuningRequest, asked_experiment, tuning_seeds

STUDY, STUDIES = "study.db", "studies"
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
    alone: bool = False
    """Whether the folder is that of one method, which has a study of its own."""

    @classmethod
    def of(cls, experiment: Experiment, folder: Path) -> Workshop:
        """Loads and checks everything, and writes nothing."""
        if not experiment.contenders:
            raise InvalidInput("the experiment names no method; give [[methods]] or --method.")
        asked = asked_experiment(experiment).with_local()
        seeds = tuning_seeds(asked.reported, asked.tuning.options.runs)
        problem = asked.problem(seeds)
        return cls(experiment, folder, asked, problem, asked.settings(problem))

    def own(self, place: int) -> Workshop:
        """One method's own workshop."""
        folder = self.folder / STUDIES / self.asked.labels[place]
        return dataclasses.replace(self, folder=folder, alone=True)

    def of_method(self, place: int) -> Workshop:
        """Where the trials of a method are: in its own workshop, if it has one."""
        own = self.own(place)
        return own if own.begun else self

    def moved_out(self, place: int) -> Workshop:
        """One method's own workshop, with the trials that were made here."""
        own, here = self.own(place), self.folder / STUDY
        own.folder.mkdir(parents=True, exist_ok=True)
        if self.begun and not own.begun:
            with (
                writing(own.folder / STUDY) as temporary,
                contextlib.closing(sqlite3.connect(here, timeout=60)) as source,
                contextlib.closing(sqlite3.connect(temporary)) as copy,
            ):
                source.backup(copy)
                copy.execute("PRAGMA journal_mode=DELETE")
        return own

    @property
    def begun(self) -> bool:
        return (self.folder / STUDY).is_file()

    def storage(self) -> Any:
        """The studies, for one process among several.

        With a write-ahead log, what was committed survives a kill without a wait for the disk. It
        needs memory that all processes share, so a file that another machine may go on with has
        none.
        """
        library, path = optuna(), (self.folder / STUDY).resolve()
        mode = "DELETE" if self.alone else "WAL"
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as connection:
            connection.execute(f"PRAGMA journal_mode={mode}")
        wait = {"connect_args": {"timeout": 60}}
        made = library.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=wait)
        if self.alone:
            return made
        from sqlalchemy import event

        event.listen(
            made.engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=NORMAL")
        )
        made.engine.dispose()  # connections from now on
        return made

    def studies(self) -> list[Study]:
        """Those of all methods, each from where it is."""
        storages: dict[Path, Any] = {}
        found = []
        for place in range(len(self.asked.contenders)):
            there = self.of_method(place)
            if there.folder not in storages:
                storages[there.folder] = there.storage()
            found.append(self.asked.study(place, self.settings, storages[there.folder]))
        return found

    @property
    def minutes(self) -> float | None:
        return self.asked.tuning.options.minutes

    def tune(self, place: int, seconds: float | None, show: Show) -> None:
        """All trials of one method that are not made yet; in so many seconds, with those that were
        spent before.
        """
        if not self.alone:
            self._tune(place, seconds, show, self.storage())
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder):
            inputs.refuse_changed(self.folder, self.experiment, "tune anew with --force")
            inputs.note(self.folder, self.experiment)
            storage = self.storage()
            try:
                self._tune(place, seconds, show, storage)
            finally:  # another machine may go on with it
                storage.remove_session()
                storage.engine.dispose()

    def _tune(self, place: int, seconds: float | None, show: Show, storage: Any) -> None:
        study = self.asked.study(place, self.settings, storage)
        if study.finished:
            return
        deadline = None if seconds is None else working_time() + seconds - study.seconds
        taken, begun = study.steps, working_time()
        share = 0.0 if deadline is None else max(deadline - begun, 1e-9)

        def tick(steps: float, note: str) -> None:
            nonlocal taken
            taken += steps
            if share:
                show(min(working_time() - begun, share), share, note)
            elif self.settings.steps is not None:
                show(min(taken, self.settings.steps), self.settings.steps, note)
            else:
                show(len(study.done), len(study.done) + study.waiting, note)

        with stop_requests() as stop_asked:

            def check() -> None:
                if stop_asked():
                    raise runs.Interrupted(
                        f"stopped; the trials that have ended are in {str(self.folder)!r}; go on"
                        " with the same command."
                    )

            tune_one(study, self.problem, deadline=deadline, tick=tick, check=check)
