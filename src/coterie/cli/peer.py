"""`coterie peer`: federations without a server."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.console import AllowModule, LogFile, Metrics, stopped
from coterie.core.errors import InvalidInput


def peer(
    kit: Annotated[
        list[Path] | None,
        typer.Argument(help="A kit and a file of data (ward-a.zip data.csv)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="Without a kit: this machine's own file (plan, name, keys, data, listen,"
            " \\[\\[neighbours]]).",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", "-f", help="With a kit: where to keep all (default: NAME-PLAN here)."
        ),
    ] = None,
    allow_module: AllowModule = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    metrics: Metrics = None,
    log: LogFile = None,
) -> None:
    """Take part in a federation without a server: train here, exchange messages with the
    neighbours, and with nobody else.

    Killed or stopped, the same command goes on where it was; `coterie status FOLDER` tells where
    that is.

    Example: coterie peer ward-a.zip ward-a.csv
    """
    from coterie.deploy.site import Site

    config = _config(kit or [], config, folder, allow_module or [])
    site = Site.from_file(config)

    def say(sentence: str) -> None:
        if not quiet:
            print(
                f"{time.strftime('%H:%M:%S')} {site.name}: {sentence}", file=sys.stderr, flush=True
            )

    if not site.plan.peers:
        raise InvalidInput(
            f"{site.plan.method.name} needs a hub: run the plan with `coterie hub` and `coterie"
            " client`."
        )
    from coterie.deploy.log import also_to
    from coterie.deploy.zenoh.peer import run_peer

    signal.signal(signal.SIGTERM, stopped)
    with also_to(log, say, role="peer", name=site.name) as both:
        run_peer(site, both, metrics)


def _config(
    given: list[Path], config: Path | None, folder: Path | None, allowed: list[str]
) -> Path:
    """The config, or that of a kit and a file of data, which is unpacked."""
    from coterie.deploy import kit

    told = " ".join(map(str, given))
    if config is not None:
        if given or folder is not None or allowed:
            more = told or (f"--folder {folder}" if folder else f"--allow-module {allowed[0]}")
            raise InvalidInput(f"--config {config} is given, and {more!r}, which is for kits.")
        return config
    if len(given) != 2 or not kit.is_kit(given[0]):
        raise InvalidInput(
            f"{told or 'nothing'!r} is given, but must be a kit and the data (coterie peer"
            " ward-a.zip ward-a.csv), or --config and a file."
        )
    say = lambda sentence: print(sentence, file=sys.stderr)
    return kit.peer_file(given[0], given[1], folder, allowed=allowed, say=say)
