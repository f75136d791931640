"""`coterie chaos`: a test tool that strikes a real federation on this machine."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from coterie.cli.as_json import Json, print_json
from coterie.cli.console import out

if TYPE_CHECKING:
    from coterie.deploy.chaos import Ended


def chaos(
    events: Annotated[int, typer.Option(help="How many faults.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Which faults: the same seed gives the same.")] = 0,
    peers: Annotated[
        bool, typer.Option("--peers", help="Five peers and no server, instead of a hub.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where to make everything; must be new or empty.")
    ] = Path("coterie-chaos"),
    as_json: Json = False,
) -> None:
    """Strike a real federation on this machine: processes are killed and stopped, links are cut,
    held and slowed, disks are full, clocks jump, by a schedule that a seed draws. After every fault
    a round must follow, and in the end all must have the simulator's models.

    Example: coterie chaos --events 20 --seed 1
    """
    from coterie.deploy import demo
    from coterie.deploy.chaos import carry_out

    err, begun = Console(stderr=True), time.perf_counter()

    def say(sentence: str) -> None:
        text = f"{time.perf_counter() - begun:5.0f} s  {sentence}"
        err.print(text, highlight=False, markup=False, soft_wrap=True)

    ended, rows = carry_out(folder, seed, events, say, peers=peers)
    verdict = demo.verdict(rows, f"there were {len(ended)} faults")
    if as_json:
        faults = [{**dataclasses.asdict(e.event), "went_on": e.went_on} for e in ended]
        print_json({"faults": faults, "clients": [dataclasses.asdict(r) for r in rows]})
        return
    out.print(_table(ended))
    out.print(demo.table(rows))
    out.print(verdict, highlight=False, soft_wrap=True)


def _table(ended: Sequence[Ended]) -> Table:
    """By kind: how many, and how long until the next round."""
    shown = Table("fault", "times", "the next round after it: median", "longest")
    for kind in dict.fromkeys(sorted(e.event.kind for e in ended)):
        seconds = [e.went_on for e in ended if e.event.kind == kind]
        median, most = statistics.median(seconds), max(seconds)
        shown.add_row(kind, str(len(seconds)), f"{median:.1f} s", f"{most:.1f} s")
    return shown
