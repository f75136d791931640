"""Progress bars with ETA, accuracy and bytes on a terminal; silence elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from coterie.comparing import Begin
from coterie.engine.simulate import Progress as Callback
from coterie.engine.simulate import Simulator, Snapshot
from coterie.report.units import bytes_text


def describe(simulator: Simulator, snapshot: Snapshot) -> str:
    """'accuracy 93.1% · 1.2 MB' of the newest evaluation."""
    score = float(np.nanmean(snapshot.scores["test"].score[0])) if "test" in snapshot.scores else float("nan")
    what = f"accuracy {100 * score:.1f}%" if simulator.federation.task == "classification" else f"mse {-score:.4g}"
    return f"{what} · {bytes_text(snapshot.up + snapshot.down)}"


@contextlib.contextmanager
def bars(console: Console) -> Iterator[Begin]:
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
        overall = None

        def begin(label: str, number: int, total: int) -> Callback:
            nonlocal overall
            for old in list(progress.tasks):
                if old.id != overall:
                    progress.remove_task(old.id)
            if total > 1:
                if overall is None:
                    overall = progress.add_task("all runs", total=None, note="", unit="runs")
                progress.update(overall, completed=number, total=total, note=f"run {number + 1} of {total}")
            task = progress.add_task(label, total=None, note="compiling", unit="rounds")

            def advance(simulator: Simulator, snapshot: Snapshot | None) -> None:
                progress.update(task, completed=simulator.t, total=simulator.training.rounds)
                if snapshot is not None:
                    progress.update(task, note=describe(simulator, snapshot))

            return advance

        yield begin
