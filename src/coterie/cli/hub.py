"""`coterie hub` and `coterie client`: a real federation with a hub, over Zenoh."""

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
) -> None:
    """Bring a hub up and keep it up: the gate through which clients come, with certificates on
    both sides. Ctrl-C ends it.

    Example: coterie hub up --keys keys --folder hub --host 0.0.0.0
    """
    from coterie.deploy.zenoh import gate

    signal.signal(signal.SIGTERM, stopped)
    gate.up(keys, folder, host, port, say=_say)


@hub_app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="The plan that all participants have.")],
    folder: HubFolder,
) -> None:
    """Run a plan at a hub that is up, to its end.

    After any failure the same command goes on from the last round.

    Example: coterie hub run plan.toml --folder hub
    """
    from coterie.deploy.zenoh import conduct

    err = Console(stderr=True)
    with err.status("waiting for clients …") if err.is_terminal else err.capture() as status:

        def show(hub: Any, waiting: Collection[str]) -> None:
            if hasattr(status, "update"):
                bill = hub.ledger
                status.update(
                    f"round {hub.t}: {bytes_text(bill.up)} up, {bytes_text(bill.down)} down;"
                    f" waiting for {', '.join(waiting) or 'nobody'}"
                )

        signal.signal(signal.SIGTERM, stopped)
        results = conduct.run(plan, folder, say=_print, show=show)
    _print(f"Results: {results}")
    Console(width=None if sys.stdout.isatty() else 160).print(
        status_table(json.loads((results / "status.json").read_text()))
    )


@hub_app.command("go-back")
def go_back(
    plan: Annotated[Path, typer.Argument(help="The plan that all participants have.")],
    folder: HubFolder,
) -> None:
    """After an older copy of the hub's folder was put back: let the run go on from there.

    Clients that have done more rounds keep their models; the result is no longer the exact one.

    Example: coterie hub go-back plan.toml --folder hub
    """
    from coterie.deploy import set_back

    set_back.go_back(plan, folder, say=_print)


@client_app.command()
def join(
    sites: Annotated[
        list[Path],
        typer.Argument(help="The client's config; several for several plans at the same hub."),
    ],
    newcomer: Annotated[
        bool,
        typer.Option(
            "--newcomer",
            help="Go on although this client's folder was lost or set back, with what there is;"
            " the result is no longer the exact one.",
        ),
    ] = False,
) -> None:
    """Take part in a federation, until its plans are over: wait for the hub, train here, answer.

    Killed or stopped, the same command goes on where it was.

    Example: coterie client join site.toml
    """
    from coterie.deploy.zenoh import join as zenoh_join

    signal.signal(signal.SIGTERM, stopped)
    try:
        zenoh_join.join(sites, newcomer=newcomer, say=_say)
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
