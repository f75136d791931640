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

from coterie.cli.console import AllowModule, LogFile, Metrics, stopped
from coterie.cli.deploy import status_table
from coterie.report.units import bytes_text

hub_app = typer.Typer(help="The hub of a real federation.", no_args_is_help=True)
client_app = typer.Typer(
    help="A client of a hub: take part, export its models.", no_args_is_help=True
)

HubFolder = Annotated[Path, typer.Option("--folder", "-f", help="The hub's own folder.")]
SiteFile = Annotated[
    Path, typer.Argument(help="The client's config: plan, name, keys, hub, \\[data].")
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
        typer.Option(help="The hub's kit (hub.zip), its own folder of keys, or the operator's."),
    ],
    folder: HubFolder,
    host: Annotated[
        str, typer.Option(help="Where to listen; 0.0.0.0 for everywhere.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="The port that clients call (default: the kit's, or 9092)."),
    ] = None,
    metrics: Metrics = None,
    log: LogFile = None,
) -> None:
    """Bring a hub up and keep it up: the gate through which clients come, with certificates on
    both sides. Ctrl-C ends it.

    Example: coterie hub up --keys hub.zip --folder hub --host 0.0.0.0
    """
    from coterie.deploy import hub_up
    from coterie.deploy.log import also_to

    signal.signal(signal.SIGTERM, stopped)
    with also_to(log, _say, role="hub") as say:
        hub_up.up(keys, folder, host, port, say=say, metrics=metrics)


@hub_app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="The plan that all participants have.")],
    folder: HubFolder,
    log: LogFile = None,
) -> None:
    """Run a plan at a hub that is up, to its end.

    After any failure the same command goes on from the last round.

    Example: coterie hub run plan.toml --folder hub
    """
    from coterie.deploy.log import also_to
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
        with also_to(log, _print, role="run", plan=plan.stem) as say:
            results = conduct.run(plan, folder, say=say, show=show)
    _print(f"Results: {results}")
    Console(width=None if sys.stdout.isatty() else 160).print(
        status_table(json.loads((results / "status.json").read_text()))
    )


@hub_app.command()
def backup(
    folder: HubFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="A new file for the copy.")],
) -> None:
    """Copy the state and the bill of all plans of a hub into one file, also while they run.

    Example: coterie hub backup --folder hub --out hub-monday.zip
    """
    from coterie.deploy import backup as copies

    for name, t in copies.backup(folder, out).items():
        _print(f"{name}: round {t}")
    _print(
        f"{out} has all that the hub keeps, and its list of the revoked if it has one, but no keys."
        " It is as confidential as the models."
    )


@hub_app.command()
def restore(
    copy: Annotated[Path, typer.Argument(help="A file of `coterie hub backup`.")],
    folder: HubFolder,
) -> None:
    """Put a copy into a new folder; `hub up` and `hub run` there go on from its rounds.

    Example: coterie hub restore hub-monday.zip --folder hub
    """
    from coterie.deploy import backup as copies
    from coterie.deploy.keys.hub import LIST

    for name, t in copies.restore(copy, folder).items():
        _print(f"{name}: round {t}")
    if (folder / LIST).is_file():
        _print("It has a list of the revoked: `hub up` takes it if that of the keys is older.")
    _print(f"Next: coterie hub up --keys KEYS --folder {folder}, then coterie hub run for each.")


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
        typer.Argument(
            help="A kit and a file of data (ward-a.zip data.csv); or the client's config, several"
            " for several plans at the same hub."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", "-f", help="With a kit: where to keep all (default: NAME-PLAN here)."
        ),
    ] = None,
    share_scores: Annotated[
        bool,
        typer.Option("--share-scores", help="With a kit: the hub may know how the models do here."),
    ] = False,
    allow_module: AllowModule = None,
    newcomer: Annotated[
        bool,
        typer.Option(
            "--newcomer",
            help="Go on although this client's folder was lost or set back, with what there is;"
            " the result is no longer the exact one.",
        ),
    ] = False,
    metrics: Metrics = None,
    log: LogFile = None,
) -> None:
    """Take part in a federation, until its plans are over: wait for the hub, train here, answer.

    Killed or stopped, the same command goes on where it was.

    Example: coterie client join ward-a.zip ward-a.csv
    """
    from coterie.deploy import sites as deploy_sites

    sites = deploy_sites.given(
        sites, folder, share_scores=share_scores, allowed=allow_module or (), say=_say
    )
    from coterie.deploy.log import also_to
    from coterie.deploy.zenoh import join as zenoh_join

    signal.signal(signal.SIGTERM, stopped)
    try:
        with also_to(log, _say, role="client") as say:
            zenoh_join.join(sites, newcomer=newcomer, say=say, metrics=metrics)
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
