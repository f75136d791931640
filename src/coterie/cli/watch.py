"""`coterie watch` and `coterie ui`: runs seen from outside while they train."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from coterie.cli.as_json import Json, plain, print_json
from coterie.cli.console import out
from coterie.core.errors import InvalidInput
from coterie.report.units import bytes_text, seconds_text

MOST = 30
"""Runs that are shown one by one; of more, those that are under way come first."""
ORDER = {"running": 0, "stopped": 1, "collapsed": 2, "waiting": 3, "finished": 4}
STYLES = {"running": "green", "collapsed": "red", "stopped": "yellow"}


def watch(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a run, a comparison, or a grid of attacks.")
    ],
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Watch runs while they train, from another terminal: how far, how long, scores and bytes.

    Ends when the runs do: with exit code 1 if some were stopped before their end. It only reads.

    Example: coterie watch coterie-demo
    """
    from coterie.runs.watching.seen import Watcher, is_run

    watcher = Watcher(folder)
    if as_json:
        if not once:
            raise InvalidInput("--json is given, but it is for one look: give --once with it.")
        seen = watcher.look()
        runs = [{**plain(run), "bytes": run.bytes} for run in seen.runs]
        print_json({"busy": seen.busy, "over": seen.over, "runs": runs})
        return
    if once or not out.is_terminal:
        seen = _lines(watcher, every, once=once)
    else:
        with Live(console=out, auto_refresh=False) as live:
            seen = watcher.look()
            while True:
                live.update(_table(seen, str(folder)), refresh=True)
                if _ended(seen, watcher):
                    break
                time.sleep(every)
                seen = watcher.look()
    if not seen.runs:
        what = "has no evaluation yet" if is_run(folder) else "holds no runs"
        out.print(f"{folder} {what}.", highlight=False)
    if any(run.state == "stopped" for run in seen.runs) and not once:
        raise typer.Exit(1)


def _ended(seen: Any, watcher: Any) -> bool:
    """Nothing is to come: everything has ended, or nobody works on what has not. What is between
    two runs for a moment is looked at again.
    """
    if seen.over:
        return True
    if seen.busy:
        return False
    time.sleep(1.0)
    return not watcher.look().busy


def _lines(watcher: Any, every: float, *, once: bool) -> Any:
    """A line for whatever is new, for pipes and logs."""
    told: dict[str, tuple[Any, ...]] = {}
    while True:
        seen = watcher.look()
        for run in seen.runs:
            key = (run.state, run.curve[-1][0] if run.curve else None)
            if told.get(run.name) != key:
                told[run.name] = key
                out.print(_line(run), highlight=False, soft_wrap=True, markup=False)
        if once or _ended(seen, watcher):
            return seen
        time.sleep(every)


def _line(run: Any) -> str:
    left = f"{seconds_text(run.left)} left" if run.left is not None else ""
    score = f"{run.metric.get('title', '')} {run.value}" if run.value else ""
    sent = bytes_text(run.bytes) if run.curve else ""
    rounds = f"round {run.round} of {run.rounds}" if run.rounds else ""
    return " · ".join(text for text in (run.name, run.state, rounds, left, score, sent) if text)


def _table(seen: Any, title: str) -> Group:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    titles = {run.metric["title"] for run in seen.runs if run.metric}
    score = titles.pop() if len(titles) == 1 else "score"
    for name, wide in (("run", 8), ("", 9), ("", 10), ("rounds", 9), ("left", 6), (score, 8)):
        table.add_column(
            name, justify="left" if name in ("run", "") else "right", no_wrap=True, min_width=wide
        )
    table.add_column("bytes", justify="right", no_wrap=True, min_width=7)
    shown = sorted(seen.runs, key=lambda run: (ORDER[run.state], run.name))[:MOST]
    for run in sorted(shown, key=lambda run: run.name):
        bar = ProgressBar(total=max(1, run.rounds), completed=run.round, width=10)
        table.add_row(
            Text(run.name.removeprefix("runs/")),
            Text(run.state, style=STYLES.get(run.state, "dim")),
            bar,
            f"{run.round}/{run.rounds}" if run.rounds else "",
            seconds_text(run.left) if run.left is not None else "",
            run.value,
            bytes_text(run.bytes) if run.curve else "",
        )
    ended = sum(run.state in ("finished", "collapsed") for run in seen.runs)
    more = f"; {len(shown)} are shown" if len(shown) < len(seen.runs) else ""
    return Group(table, Text(f"{ended} of {len(seen.runs)} runs have ended{more}", style="dim"))


def ui(
    folder: Annotated[Path, typer.Argument(help="A folder with runs, at any depth.")] = Path(),
    port: Annotated[
        int, typer.Option(help="The port on this machine; 0: any that is free.")
    ] = 8730,
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser.")
    ] = False,
) -> None:
    """A page over all runs in a folder, which changes while they train.

    It is for this machine alone (127.0.0.1), and only reads. For another machine's runs, use a
    tunnel: ssh -L 8730:127.0.0.1:8730 machine

    Example: coterie ui runs
    """
    from coterie.runs.watching.server import serve

    with serve(folder, port) as server, contextlib.suppress(KeyboardInterrupt):
        out.print(f"{server.url} shows the runs in {folder}; end with Ctrl-C.", highlight=False)
        if open_:
            import webbrowser

            webbrowser.open(server.url)
        server.wait()
