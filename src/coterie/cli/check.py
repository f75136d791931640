"""`coterie check`: whether step sizes can work, before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.as_json import Json, print_json
from coterie.cli.console import DataDir, Import, Set, load_plugins, out


def check(
    experiment: Annotated[Path, typer.Argument(help="A TOML file with one method or several.")],
    data_dir: DataDir = None,
    settings: Set = None,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """Measure how steep the clients' losses are, and say which step-size conditions hold, with
    values that are safe. Trains nothing, writes nothing; exit code 1 if a method is unstable.

    Example: coterie check experiment.toml -s method.lr=0.5
    """
    load_plugins(imports)
    from coterie.runs.check import check_experiment
    from coterie.runs.settings import chosen_experiment

    chosen = chosen_experiment(experiment, settings, None, None, data_dir)
    found = check_experiment(chosen)
    if as_json:
        print_json(
            [{"method": m.label, "stable": m.stable, "sentences": m.sentences()} for m in found]
        )
    for method in found if not as_json else []:
        state = "stable" if method.stable else "unstable"
        out.print(f"{method.label}: {state}", style="green" if method.stable else "red")
        for sentence in method.sentences():
            out.print(f"  {sentence}", highlight=False, markup=False)
    if not all(method.stable for method in found):
        raise typer.Exit(1)
