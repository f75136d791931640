"""`coterie status` and `coterie deploy-demo`: looking at a real federation, and seeing one work."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from coterie.cli.as_json import Json, print_json
from coterie.core.errors import InvalidInput
from coterie.deploy.statuses import read_statuses, statuses
from coterie.report.units import bytes_text, days_text


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)


def status(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a hub (all its plans are shown), or of a peer.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, until all is finished.")
    ] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2.0,
) -> None:
    """Where a real federation is: round, bytes, who was last seen when, rejected messages, and
    scores where clients share them.

    Example: coterie status hub --watch
    """
    if watch:
        _watch(folder, every, as_json=as_json)
        return
    found = read_statuses(folder)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    for one in found:
        _console().print(status_table(one))


def _watch(folder: Path, every: float, *, as_json: bool) -> None:
    """Tables that change, in a terminal; else a line for whatever is new."""
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} is not there.")
    console, told, found = _console(), dict[str, Any](), list[dict[str, Any]]()
    shown = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with shown or contextlib.nullcontext():
        while not found or not all(one["finished"] for one in found):
            found = statuses(folder)
            if shown is not None and not as_json:
                waiting = Text("No round has been done yet.", style="dim")
                shown.update(Group(*map(status_table, found)) if found else waiting, refresh=True)
            for one in found:
                if (shown is None or as_json) and told.get(one["name"]) != one["written"]:
                    told[one["name"]] = one["written"]
                    typer.echo(json.dumps(one) if as_json else _title(one))
            if not found or not all(one["finished"] for one in found):
                time.sleep(every)


def _title(now: dict[str, Any]) -> str:
    state = "finished" if now["finished"] else f"round {now['round']} of {now['rounds']}"
    who = f" · {now['peer']}" if "peer" in now else ""
    return (
        f"{now['name']}{who} · {now['method']} · {state} · {bytes_text(now['up'])} up,"
        f" {bytes_text(now['down'])} down"
    )


def _ends(now: dict[str, Any]) -> str:
    """When the certificate of whoever wrote this ends; in red if that is soon."""
    facts = now.get("certificate")
    if not isinstance(facts, dict):
        return ""
    end = min(float(facts["expires"]), float(facts["ca_expires"]))
    left, day = end - time.time(), time.strftime("%Y-%m-%d", time.gmtime(end))
    words = f"certificate of {escape(str(facts['name']))} until {day}"
    if left >= 30 * 86400:
        return words
    return f"[red]{words}: {'expired' if left <= 0 else f'ends {days_text(left)}'}[/]"


def status_table(now: dict[str, Any]) -> Table:
    """One plan: the hub's clients, or a peer's neighbours."""
    title = f"{_title(now)} · {ago(now['written'])}"
    metric = now.get("metric") or {"title": "score", "higher": True}
    sign = 1 if metric["higher"] else -1
    better = "larger is better" if metric["higher"] else "smaller is better"
    caption = ", ".join(
        f"{key} {sign * value:.3f}"
        for key, value in now.get("scores", {}).items()
        if key.startswith("test/")
    )
    caption += f" ({metric['title']}, {better})" if caption else ""
    if "neighbours" in now:
        table = Table(
            "neighbour",
            "last round",
            "edge",
            "rejected",
            title=escape(title),
            title_justify="left",
            caption=" · ".join(filter(None, (escape(caption), _ends(now)))),
        )
        for n in now["neighbours"]:
            edge = (
                "counts"
                if n["active"]
                else f"from round {n['entry']}"
                if n["entry"] >= 0
                else "[red]dropped[/]"
            )
            table.add_row(
                escape(n["name"]),
                str(n["round"]) if n["round"] >= 0 else "–",
                edge,
                str(n["rejected"]),
            )
        return table
    table = Table(
        "client",
        "rounds",
        "up",
        "down",
        "last seen",
        "rejected",
        f"test {escape(metric['title'])}",
        title=escape(title),
        title_justify="left",
        caption=" · ".join(
            filter(None, (f"{escape(metric['title'])}: {better}", _exact(now), _ends(now)))
        ),
        caption_justify="left",
    )
    for c in now["clients"]:
        scores = [
            f"{escape(key.partition('/')[2])} {sign * value:.3f}"
            for key, value in c["scores"].items()
            if key.startswith("test/")
        ]
        amounts = (
            bytes_text(c["up"]),
            bytes_text(c["down"]),
            _seen(c),
            str(c["rejected"]),
        )
        table.add_row(
            escape(c["name"]), str(c["rounds"]), *amounts, ", ".join(scores) or "not shared"
        )
    return table


def _exact(now: dict[str, Any]) -> str:
    return "" if now.get("exact", True) else "[red]set back: not the plan's exact result[/]"


def _seen(client: dict[str, Any]) -> str:
    """When a client was last heard of, and what has become of it."""
    when = ago(client["last_seen"]) if client["last_seen"] else "never"
    standing = client.get("standing", "")  # earlier versions had none
    return when if standing in ("", "there") else f"{when}, {standing}"


def ago(moment: float) -> str:
    """A time on the clock as how long ago that is."""
    seconds = max(0.0, time.time() - moment)
    return (
        f"{seconds:.0f} s ago"
        if seconds < 120
        else f"{seconds / 60:.0f} min ago"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h ago"
    )


def deploy_demo(
    peers: Annotated[
        bool,
        typer.Option(
            "--peers",
            help="Five peers and no server, instead of three clients and a hub.",
        ),
    ] = False,
    learn: Annotated[
        bool,
        typer.Option("--learn", help="With --peers: they find their neighbours themselves."),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Where to make everything (default: coterie-deploy-demo)."
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Communication rounds (default: 100 with a hub, 200 without).", min=2),
    ] = None,
    as_json: Json = False,
) -> None:
    """A real federation on this machine, with keys and TLS; one participant is killed in the
    middle, and all end with the simulator's models.
    """
    from coterie.deploy import demo

    if learn and not peers:
        raise InvalidInput("--learn is for peers: give --peers with it.")
    err = Console(stderr=True)
    made_in = folder or Path("coterie-deploy-demo" + ("-peers" if peers else ""))
    begun = time.perf_counter()

    def say(sentence: str) -> None:
        err.print(
            f"{time.perf_counter() - begun:4.0f} s  {sentence}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )

    rows = (
        demo.with_peers(made_in, rounds or 200, say, learn=learn)
        if peers
        else demo.with_hub(made_in, rounds or 100, say)
    )
    if as_json:
        print_json({"participants": rows, "verdict": demo.verdict(rows), "folder": made_in})
        return
    console = _console()
    console.print(demo.table(rows))
    console.print(demo.verdict(rows), highlight=False, soft_wrap=True)
    console.print(
        f"Everything it made is in {made_in}: plans, configs, keys, logs, models.",
        highlight=False,
        soft_wrap=True,
    )
