"""`coterie hub` and `coterie client`: a real federation with a hub, over Zenoh (or Flower)."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from coterie.cli.console import stopped
from coterie.cli.deploy import status_table
from coterie.report.units import bytes_text

hub_app = typer.Typer(help="The hub of a real federation.", no_args_is_help=True)
client_app = typer.Typer(
    help="A client of a hub: take part, export its models.", no_args_is_help=True
)

HubFolder = Annotated[Path, typer.Option("--folder", "-f", help="The hub's own folder.")]
SiteFile = Annotated[
    Path, typer.Argument(help="The client's config: plan, name, keys, hub, [data].")
]

Flower = Annotated[
    bool, typer.Option("--flower", help="Over Flower, which must be so at the hub and all clients.")
]


@hub_app.callback()
def _hub() -> None:
    """The hub of a real federation."""


@client_app.callback()
def _client() -> None:
    """A client of a hub: take part, export its models."""


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)


def _print(sentence: str) -> None:
    Console().print(sentence, highlight=False, markup=False, soft_wrap=True)


@hub_app.command()
def up(
    keys: Annotated[
        Path,
        typer.Option(
            help="The operator's folder of keys, or the hub's own (issued with --role hub)."
        ),
    ],
    folder: HubFolder,
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 for everywhere.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port that clients call.")] = 9092,
    flower: Flower = False,
) -> None:
    """Bring a hub up and keep it up: the gate through which clients come, with certificates on
    both sides. Ctrl-C ends it.

    Example: coterie hub up --keys keys --folder hub --host 0.0.0.0
    """
    if flower:
        from coterie.deploy.flower import run as flower_run

        flower_run.up(keys, folder, host, port, say=_say)
        return
    from coterie.deploy.zenoh import gate

    signal.signal(signal.SIGTERM, stopped)
    gate.up(keys, folder, host, port, say=_say)


@hub_app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="The plan that all participants have.")],
    folder: HubFolder,
    flower: Flower = False,
) -> None:
    """Run a plan at a hub that is up, to its end.

    After any failure the same command goes on from the last round.

    Example: coterie hub run plan.toml --folder hub
    """
    err = Console(stderr=True)
    with err.status("waiting for clients …") if err.is_terminal else err.capture() as status:

        def show(now: dict[str, Any]) -> None:
            if hasattr(status, "update"):
                waiting = ", ".join(now.get("waiting", [])) or "nobody"
                status.update(
                    f"round {now.get('round', 0)}: {bytes_text(now.get('up', 0))} up,"
                    f" {bytes_text(now.get('down', 0))} down; waiting for {waiting}"
                )

        def look(hub: Any, waiting: Collection[str]) -> None:
            if hasattr(status, "update"):
                bill = hub.ledger
                show({"round": hub.t, "up": bill.up, "down": bill.down, "waiting": waiting})

        if flower:
            from coterie.deploy.flower import run as flower_run

            results = flower_run.run(plan, folder, say=_print, show=show)
        else:
            from coterie.deploy.zenoh import conduct

            signal.signal(signal.SIGTERM, stopped)
            results = conduct.run(plan, folder, say=_print, show=look)
    _print(f"Results: {results}")
    Console(width=None if sys.stdout.isatty() else 160).print(
        status_table(json.loads((results / "status.json").read_text()))
    )


@hub_app.command()
def register(
    name: Annotated[str, typer.Argument(help="The client's name in the plan.")],
    key: Annotated[Path, typer.Argument(help="Its flower.pub.")],
    folder: HubFolder,
) -> None:
    """Over Flower only: let a client in, at a hub without the operator's books (with them, `hub
    up` does it by itself).
    """
    from coterie.deploy.flower import run as flower_run

    flower_run.register(folder, name, key)
    _print(f"{name} may take part.")


@client_app.command()
def join(
    sites: Annotated[
        list[Path],
        typer.Argument(help="The client's config; several for several plans at the same hub."),
    ],
    flower: Flower = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="With --flower: let it run the hub's copy of the app, in a process per message.",
        ),
    ] = False,
) -> None:
    """Take part in a federation, until its plans are over: wait for the hub, train here, answer.

    Killed or stopped, the same command goes on where it was.

    Example: coterie client join site.toml
    """
    if flower:
        from coterie.deploy.flower import run as flower_run

        flower_run.join(sites, say=_say, plain=plain)
        return
    from coterie.deploy.zenoh import join as zenoh_join

    signal.signal(signal.SIGTERM, stopped)
    try:
        zenoh_join.join(sites, say=_say)
    except KeyboardInterrupt:
        _say("stopped; the same command goes on where it was.")


@client_app.command()
def export(
    site: SiteFile,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the models, one file per view.")
    ],
) -> None:
    """Write a client's models as safetensors files.

    Example: coterie client export site.toml --out models
    """
    from coterie.deploy import sites

    for path in sites.export(site, folder):
        _print(str(path))
