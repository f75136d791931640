"""Progress bars with ETA, accuracy and bytes on a terminal; silence elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from coterie.engine.simulate import Progress as Callback
from coterie.engine.simulate import Simulator, Snapshot
from coterie.runs.grid import Begin, describe


class Bars:
    """A bar for all runs of a command, and one for each that is under way."""

    def __init__(self, progress: Progress, unit: str = "rounds") -> None:
        self.progress, self.unit = progress, unit
        self.all_runs: TaskID | None = None
        self.bars: dict[int, tuple[str, TaskID]] = {}

    def __call__(self, label: str, number: int, total: int) -> Callback:
        """A run that is alone under way."""
        self.overall(number, total)
        self._fresh(0, label)

        def advance(simulator: Simulator, snapshot: Snapshot | None) -> None:
            self.show(
                0,
                label,
                simulator.t,
                simulator.training.rounds,
                describe(simulator, snapshot) if snapshot is not None else None,
            )

        return advance

    def overall(self, ended: int, total: int) -> None:
        if total > 1:
            if self.all_runs is None:
                self.all_runs = self.progress.add_task("all runs", total=None, note="", unit="runs")
            self.progress.update(
                self.all_runs,
                completed=ended,
                total=total,
                note=f"run {min(ended + 1, total)} of {total}",
            )

    def _fresh(self, slot: int, label: str) -> None:
        if slot in self.bars:
            self.progress.remove_task(self.bars.pop(slot)[1])
        if label:
            self.bars[slot] = (
                label,
                self.progress.add_task(label, total=None, note="compiling", unit=self.unit),
            )

    def show(
        self, slot: int, label: str, rounds: int | None, total: int | None, note: str | None
    ) -> None:
        """How far the run in this slot is; without rounds it has just begun, without a label there
        is none any more.
        """
        if rounds is None:
            self._fresh(slot, label)
            return
        task = self.bars[slot][1]
        self.progress.update(task, completed=rounds, total=total)
        if note:
            self.progress.update(task, note=note)


@contextlib.contextmanager
def bars(console: Console, unit: str = "rounds") -> Iterator[Begin]:
    """Gives a function that begins a bar for a run; all vanish at the end."""
    if not console.is_terminal:
        yield lambda label, number, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress, unit)
