"""How far a simulation is: a bar on a terminal, and one in a notebook."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from coterie.core.metrics import SHIPPED

Show = Callable[[int, int, str], None]
"""Shows rounds done, all rounds, and a remark."""
OFTEN = 0.2
"""Seconds between two pictures in a notebook."""


def in_notebook() -> bool:
    """Whether the program runs in a Jupyter notebook (and not in IPython on a terminal)."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell is not None else None
    return found is not None and hasattr(found, "kernel")


@contextlib.contextmanager
def shown(title: str, wanted: Any) -> Iterator[Callable[..., None] | None]:
    """Gives what `drive` calls: the caller's own function, or a bar (`True`, and by default in a
    notebook), or nothing.
    """
    if callable(wanted):
        yield wanted
        return
    if wanted is False or (wanted is None and not in_notebook()):
        yield None
        return
    with _notebook(title) if in_notebook() else _terminal(title) as show:
        note = "compiling"

        def advance(simulator: Any, snapshot: Any) -> None:
            nonlocal note
            if snapshot is not None:
                note = remark(simulator, snapshot)
            show(simulator.t, simulator.training.rounds, note)

        yield advance


def remark(simulator: Any, snapshot: Any) -> str:
    """'accuracy 93.1%' of the newest evaluation; nothing if there is no test score."""
    if "test" not in snapshot.scores or np.isnan(snapshot.scores["test"].score[0]).all():
        return ""
    metric = simulator.metric
    value = metric.value(float(np.nanmean(snapshot.scores["test"].score[0])))
    shown = f"{100 * value:.1f}%" if metric.percent else f"{value:.4g}"
    return f"{metric.name if metric.name in SHIPPED else metric.title} {shown}"


@contextlib.contextmanager
def _terminal(title: str) -> Iterator[Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, note="compiling")
        yield lambda done, total, note: progress.update(
            task, completed=done, total=total, note=note
        )


@contextlib.contextmanager
def _notebook(title: str) -> Iterator[Show]:
    """One output of the cell, drawn again and again; needs no further library."""
    from IPython.display import HTML, display

    begun, last = time.monotonic(), -OFTEN
    handle = display(HTML(f"{html.escape(title)}: compiling"), display_id=True)

    def show(done: int, total: int, note: str) -> None:
        nonlocal last
        passed = time.monotonic() - begun
        if done < total and passed - last < OFTEN:
            return
        last = passed
        left = f", {passed / done * (total - done):.0f} s left" if 0 < done < total else ""
        handle.update(
            HTML(
                f"{html.escape(title)} <progress value='{done}' max='{total}'></progress> {done} of"
                f" {total} rounds, {passed:.0f} s{left} {html.escape(note)}"
            )
        )

    yield show
