"""Where the command line prints: results to standard output, remarks to standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)


def say(sentence: str) -> None:
    err.print(sentence, style="yellow", highlight=False, markup=False)


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


def load_plugins(files: Sequence[Path] | None) -> None:
    """What is installed, and the files of --import."""
    from coterie.core import plugins

    plugins.load(files or (), say)
