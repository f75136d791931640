"""Where the command line prints: results to standard output, remarks to standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from coterie.core.errors import InvalidInput

if TYPE_CHECKING:
    from coterie.runs.cluster.address import Scheduler

out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)


def say(sentence: str) -> None:
    err.print(sentence, style="yellow", highlight=False, markup=False)


def stopped(number: int, frame: FrameType | None) -> None:
    """What a process does at SIGTERM, if it is to end as with Ctrl-C."""
    raise KeyboardInterrupt


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        help="Override a value of the experiment, e.g. -s training.rounds=50",
        show_default=False,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Where the data set's files lie (else COTERIE_DATA, else the user's cache).",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        help="Runs at a time, each in a process of its own with its share of the cores.",
    ),
]
Metrics = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        envvar="COTERIE_METRICS",
        show_envvar=True,
        help="Show /metrics (for Prometheus) and /healthz on this port of 127.0.0.1.",
        min=1,
        max=65535,
        show_default=False,
    ),
]
AllowModule = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-module",
        help="With a kit: a Python module that its plan may name, to be imported here (repeat); the"
        " folder remembers it.",
        show_default=False,
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log",
        help="Write what is said to this file as well, as JSON lines; it is put aside at 10 MB.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        help="Give each run, or the tuning of each method, to a worker of this Dask cluster: the"
        " address of its scheduler (tls://host:port, or tcp:// on this machine) or its file"
        " (.json).",
    ),
]
ClusterKeys = Annotated[
    Path | None,
    typer.Option(
        "--cluster-keys",
        help="A folder of `coterie keys issue` with the certificate for tls:// (else Dask's own"
        " settings).",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Talk to a cluster on other machines without encryption; whoever reaches it can run"
        " code.",
        show_default=False,
    ),
]
DropModels = Annotated[
    bool,
    typer.Option(
        "--drop-models",
        help="Delete a run's models once it has ended, for the room they take; its scores stay.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Write into a folder that is not empty, and run anew what was made from other data.",
    ),
]
Import = Annotated[
    list[Path] | None,
    typer.Option(
        "--import",
        help="A Python file with a method, channel, attack, data set, model or metric of your own"
        " (repeat).",
        show_default=False,
    ),
]


def _track(specs: list[str] | None) -> list[str] | None:
    """Refuses a tracker that is not there before anything is read."""
    if specs or "coterie.runs.tracking" in sys.modules:
        from coterie.runs import tracking

        tracking.use(specs or ())
    return specs


Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        help="Tell runs to tensorboard, mlflow or wandb while they train; NAME=WHERE for a folder,"
        " a server, or wandb=online (repeat).",
        show_default=False,
        callback=_track,
    ),
]


def load_plugins(files: Sequence[Path] | None) -> None:
    """What is installed, and the files of --import."""
    from coterie.core import plugins

    plugins.load(files or (), say)


def cluster_of(
    cluster: str | None, keys: Path | None, insecure: bool, jobs: int
) -> Scheduler | None:
    """The cluster that is asked for, if any, and if it may be used."""
    if cluster is None:
        for name, given in (("--cluster-keys", keys is not None), ("--insecure", insecure)):
            if given:
                raise InvalidInput(f"{name} is given, but it is for --cluster, which is not.")
        return None
    if jobs != 1:
        raise InvalidInput(
            f"--jobs is {jobs} and --cluster is {cluster!r}, but --jobs is for this machine and a"
            " cluster has one run per worker; give one of them."
        )
    from coterie.runs.cluster.address import Scheduler

    chosen = Scheduler(cluster, keys, insecure)
    _ = chosen.address, chosen.security()  # refuses before anything is read or written
    return chosen
