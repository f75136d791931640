"""`coterie peer`: federations without a server."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.console import LogFile, Metrics, stopped
from coterie.core.errors import InvalidInput


def peer(
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "-c",
            help="This machine's own file: plan, name, keys, data, listen, [[neighbours]].",
        ),
    ],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    metrics: Metrics = None,
    log: LogFile = None,
) -> None:
    """Take part in a federation without a server: train here, exchange messages with the
    neighbours, and with nobody else.

    Killed or stopped, the same command goes on where it was; `coterie status FOLDER` tells where
    that is.

    Example: coterie peer --config peer.toml
    """
    from coterie.deploy.site import Site

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
