"""`coterie new`: files to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.console import out

app = typer.Typer(
    help="New files to begin with: an experiment, a method, a deployment.", no_args_is_help=True
)


def _told(written: list[Path], then: str) -> None:
    for path in written:
        out.print(f"Written: {path}", highlight=False, soft_wrap=True)
    out.print(f"Then: {then}", highlight=False, soft_wrap=True)


@app.command()
def experiment(
    file: Annotated[Path, typer.Argument(help="The TOML file to write.")] = Path("experiment.toml"),
) -> None:
    """An experiment for run, compare, tune, check and attack, on data that is shipped.

    Example: coterie new experiment mine.toml
    """
    from coterie.runs.scaffold import new_experiment

    written = new_experiment(file)
    _told(written, f"coterie compare {written[0]}")


@app.command()
def method(
    file: Annotated[Path, typer.Argument(help="The Python file; the method has its name.")],
) -> None:
    """A method of your own, and a test of it beside.

    Example: coterie new method nudge.py
    """
    from coterie.runs.scaffold import new_method

    written = new_method(file)
    name = written[0].stem.replace("_", "-")
    _told(
        written,
        f"pytest {written[1]}; coterie compare -d digits -m {name} --import {written[0]}",
    )


@app.command()
def deployment(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
) -> None:
    """A real federation of three clients and a hub: a plan, a folder for each client, and a script
    that runs all of it on this machine.

    Example: coterie new deployment clinic
    """
    from coterie.runs.scaffold import new_deployment

    new_deployment(folder)
    _told([folder], f"sh {folder / 'run-here.sh'}   (it needs: pip install 'coterie\\[deploy]')")
