"""`coterie export` and `coterie adapt`: models of members, and models for newcomers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.console import Import, load_plugins, out, say
from coterie.core.errors import InvalidInput


def _written(paths: list[Path], folder: Path) -> None:
    count = f"{len(paths)} model{'s' if len(paths) > 1 else ''}"
    out.print(f"{count} written to {paths[0] if len(paths) == 1 else folder}", highlight=False)


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    client: Annotated[
        list[str] | None,
        typer.Option("--client", "-c", help="Which client, by name or number (repeat)."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All clients.")] = False,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .safetensors file for one client, or a folder."),
    ] = None,
    view: Annotated[str | None, typer.Option(help="Which model: personal, global, …")] = None,
    imports: Import = None,
) -> None:
    """Write a client's personal model as safetensors, for numpy, PyTorch or anything else that
    reads it.
    """
    if bool(client) == all_:
        raise InvalidInput(
            "say whose model to export: --client NAME or NUMBER (repeat for several), or --all."
        )
    load_plugins(imports)
    from coterie.runs.export import export as write

    target = target or folder / "models"
    _written(write(folder, client or None, target, view=view, say=say), target)


def adapt(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            "-d",
            help="The newcomers' own rows: a table (.csv, .parquet), or an .npz with x and y.",
        ),
    ],
    client: Annotated[
        str | None,
        typer.Option(
            help="The column that says whose row it is; nothing: all rows are one client's."
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The column to predict (default: as in the run).")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Local rounds.", min=0)] = 20,
    test: Annotated[
        float, typer.Option(help="Share of the rows to test on.", min=0.0, max=0.9)
    ] = 0.25,
    target_folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write the models (default: <run>/newcomers)."),
    ] = None,
    imports: Import = None,
) -> None:
    """Personalise for clients that were not in training, in the method's own way; the federation
    stays as it is.

    Example: coterie adapt runs/experiment --data my-readings.csv
    """
    load_plugins(imports)
    from coterie.runs import newcomers

    paths, table = newcomers.adapt_into(
        folder,
        data,
        target_folder or folder / "newcomers",
        client=client,
        target=target,
        rounds=rounds,
        test=test,
        say=say,
    )
    out.print(table)
    out.print(
        f"{len(paths)} model{'s' if len(paths) > 1 else ''} written to {paths[0].parent}",
        highlight=False,
    )
