"""The runs of one command: one after the other, or several at a time, each in a process of its own
(`worker`), on this machine or on the workers of a cluster (`cluster`).

A run of many small models keeps few cores busy, since XLA shares out single products, which are
small. Runs do not depend on each other, so a grid is done faster by one process per core. A run's
folder is the same either way, and the command can be killed and repeated either way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from coterie.core import plugins
from coterie.core.errors import CoterieError, Diverged, InvalidInput
from coterie.core.files import reading_tables
from coterie.core.options import as_written
from coterie.engine.progress import remark
from coterie.engine.simulate import Progress, Simulator, Snapshot
from coterie.report.outcome import Outcome
from coterie.report.units import bytes_text
from coterie.runs import inputs, tracking
from coterie.runs import run as runs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.experiment import Experiment
from coterie.runs.outcomes import read_outcome
from coterie.runs.stopping import stop_requests
from coterie.runs.waiting import Waiting, refuse
from coterie.runs.warm import Warming

Begin = Callable[[str, int, int], Progress | None]
"""Called before each run with its label, its number and how many there are; may give a progress
callback.
"""

PATIENCE = 60.0
"""Seconds that processes have for a last checkpoint when they are asked to stop."""


@dataclasses.dataclass(frozen=True)
class Planned:
    """A run and its folder.

    Runs of one `family` differ in numbers only: a process that has done one has the program for the
    others.
    """

    label: str
    family: str
    single: Experiment
    folder: Path

    @property
    def known(self) -> bool:
        """Whether the folder holds this very run, finished or not."""
        config = self.folder / "config.toml"
        if not config.is_file():
            return False
        if config.read_text(encoding="utf-8") == self.single.to_toml():
            return True
        try:
            with as_written():  # earlier versions wrote options that are without effect, too
                return Experiment.from_file(config).to_toml() == self.single.to_toml()
        except InvalidInput:
            return False

    @property
    def ended(self) -> bool:
        return self.known and runs.has_ended(self.folder)

    def order(self) -> dict[str, Any]:
        """What a process is told to do."""
        told = {"track": track} if (track := tracking.wanted()) else {}
        return {"config": self.single.to_toml(), "folder": str(self.folder), **told}

    def run(self, progress: Progress | None, say: runs.Say) -> None:
        """Run it, go on with it, or leave it if it has ended. One that diverges has ended too."""
        try:
            if not self.known:
                runs.start(self.single, self.folder, force=True, progress=progress, say=say)
            elif not self.ended:
                runs.resume(
                    self.folder,
                    progress=progress,
                    say=lambda s: None if "begins again" in s else say(s),
                )
        except Diverged as error:
            say(str(error))

    def renew(self, *, force: bool) -> None:
        """Refuse what is there of this run if it was made from other data or files; with `force`,
        delete it.
        """
        if not self.known:
            return
        if not force:
            inputs.refuse_changed(
                self.folder, self.single, "run all anew with --force or into another folder"
            )
        elif inputs.changed(self.folder, self.single):
            runs.discard(self.folder)

    def refuse_other_inputs(self) -> None:
        """Refuse a run of another machine that read other data or files than there are here."""
        if what := inputs.changed(self.folder, self.single):
            raise InvalidInput(
                f"{what} that {self.label!r} was made from on the cluster is not that of this"
                " machine; give all machines the same, and run all anew with --force."
            )

    def outcome(self) -> Outcome:
        with reading_tables(self.folder, "delete that folder and repeat the command"):
            return read_outcome(self.folder, self.single)


class Job(Protocol):
    """What a process can be given to do."""

    @property
    def label(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    def order(self) -> dict[str, Any]: ...

    def refuse_other_inputs(self) -> None: ...


@runtime_checkable
class Board(Protocol):
    """Where several runs that are under way are shown; each has a slot."""

    def overall(self, ended: int, total: int) -> None: ...

    def show(
        self, slot: int, label: str, rounds: int | None, total: int | None, note: str | None
    ) -> None: ...


def describe(simulator: Simulator, snapshot: Snapshot) -> str:
    """'accuracy 93.1% · 1.2 MB' of the newest evaluation."""
    what = remark(simulator, snapshot) or "no test score"
    return f"{what} · {bytes_text(snapshot.up + snapshot.down)}"


def run_all(
    plan: Sequence[Planned],
    *,
    jobs: int = 1,
    cluster: Scheduler | None = None,
    keep_models: bool = True,
    begin: Begin | None = None,
    say: runs.Say = print,
    force: bool = False,
) -> list[Outcome]:
    """Do all runs, `jobs` at a time or on a `cluster`, and give their outcomes in the order of the
    plan.

    Those that were made from data or files that have changed since are refused, or with `force`
    done anew.
    """
    if jobs < 1:
        raise InvalidInput(
            f"jobs is {jobs}, but must be a whole number ≥ 1, the number of runs at a time."
        )
    folders = [planned.folder for planned in plan]
    if len(set(folders)) < len(folders):
        twice = next(folder for folder in folders if folders.count(folder) > 1)
        raise InvalidInput(f"two runs would share the folder {str(twice)!r}; give one of them.")
    for planned in plan:
        planned.renew(force=force)
    todo = [planned for planned in plan if not planned.ended]
    if not keep_models:
        for planned in plan:
            if planned.ended:
                runs.drop_models(planned.folder)
    board = begin if isinstance(begin, Board) else None
    if cluster is not None and todo:
        from coterie.runs.cluster.drive import OnCluster

        OnCluster(cluster, todo, len(plan), board, say, keep_models).work()
        return [planned.outcome() for planned in plan]
    if jobs > 1 and len(todo) > 1:
        Workers(min(jobs, len(todo)), todo, len(plan), board, say, keep_models).work()
        return [planned.outcome() for planned in plan]
    outcomes, warming = [], Warming(todo)
    try:
        for number, planned in enumerate(plan):
            progress = begin(planned.label, number, len(plan)) if begin else None
            warming.wait_for(planned)
            planned.run(progress, say)
            if not keep_models:
                runs.drop_models(planned.folder)
            outcomes.append(planned.outcome())
    finally:
        warming.close()
    return outcomes


def ended_outcomes(plan: Sequence[Planned]) -> list[Outcome]:
    """The outcomes of runs that have all ended; nothing is run."""
    for planned in plan:
        if not planned.ended:
            raise InvalidInput(
                f"the run {str(planned.folder)!r} has not ended; repeat the command that began it."
            )
        planned.renew(force=False)
    return [planned.outcome() for planned in plan]


class Workers(Waiting):
    """Processes that work through a plan.

    They read runs from their standard input and tell how it goes, a line of JSON each.
    """

    def __init__(
        self,
        size: int,
        todo: Sequence[Job],
        total: int,
        board: Board | None,
        say: runs.Say,
        keep_models: bool = True,
    ) -> None:
        super().__init__(len(todo), total, board, say, keep_models)
        families: dict[str, deque[Job]] = {}
        for planned in todo:
            families.setdefault(planned.family, deque()).append(planned)
        self.untouched = deque(families.values())
        self.queues: list[deque[Job]] = [deque() for _ in range(size)]
        self.doing: list[Job | None] = [None] * size
        self.processes: list[subprocess.Popen[str]] = []

    def work(self) -> None:
        with stop_requests() as stop_asked:
            try:
                for slot, cores in enumerate(_shares_of_cores(len(self.queues))):
                    self._hire(slot, cores)
                    self._give(slot)
                self.wait(stop_asked)
            finally:
                self._dismiss()

    @property
    def busy(self) -> bool:
        return any(self.doing)

    def _hire(self, slot: int, cores: list[int]) -> None:
        files = [str(file.path) for file in plugins.imported()]
        command = [sys.executable, "-m", "coterie.runs.worker", ",".join(map(str, cores)), *files]
        # A session of its own: Ctrl-C in a terminal is for this process, which then asks the
        # others.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            bufsize=1,
            start_new_session=True,
        )
        self.processes.append(process)

        def listen() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.endswith("\n"):  # else it was killed while it wrote
                    self.events.put((slot, json.loads(line)))
            self.events.put((slot, None))

        threading.Thread(target=listen, daemon=True).start()

    def _next(self, slot: int) -> Job | None:
        """More of the family at hand, else a family that nobody has begun, else the last of what
        the busiest has before it.
        """
        if not self.queues[slot] and self.untouched:
            self.queues[slot] = self.untouched.popleft()
        if self.queues[slot]:
            return self.queues[slot].popleft()
        busiest = max(self.queues, key=len)
        return busiest.pop() if busiest else None

    def _give(self, slot: int) -> None:
        planned = self.doing[slot] = self._next(slot)
        self.tell_overall()
        if self.board:
            self.board.show(slot, planned.label if planned else "", None, None, None)
        stdin = self.processes[slot].stdin
        assert stdin is not None
        if planned is not None:
            with contextlib.suppress(BrokenPipeError):  # it has died: `listen` will say so
                stdin.write(json.dumps(planned.order()) + "\n")
                stdin.flush()

    def take(self, number: int, event: dict[str, Any] | None) -> None:
        slot, planned = number, self.doing[number]
        if planned is None:
            return
        if event is None:
            code = self.processes[slot].wait()
            raise CoterieError(
                f"the process that ran {planned.label!r} ended with code {code}; nothing else is"
                " lost: repeat the command."
            )
        refuse(event)
        if "say" in event:
            self.say(event["say"])
        elif "rounds" in event and self.board:
            self.board.show(slot, planned.label, event["rounds"], event["total"], event["note"])
        elif "ended" in event:
            self.end(planned)
            self._give(slot)

    def _dismiss(self) -> None:
        """Close the processes' inputs: those that are at work save what they have and end."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _shares_of_cores(jobs: int) -> list[list[int]]:
    """The cores that this process may use, dealt out; empty where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return [[] for _ in range(jobs)]
    return dealt(sorted(os.sched_getaffinity(0)), jobs)


def dealt(cores: list[int], jobs: int) -> list[list[int]]:
    """Cores shared out; where there are too few, some are shared."""
    return [cores[i::jobs] or [cores[i % len(cores)]] for i in range(jobs)]
