"""`coterie export`, `coterie predict` and `coterie adapt`: models of members, what they say about
rows, and models for newcomers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.as_json import Json, print_json, rows_of
from coterie.cli.console import Import, load_plugins, out, say
from coterie.core.errors import InvalidInput


def _written(paths: list[Path], folder: Path, as_json: bool) -> None:
    if as_json:
        print_json({"models": paths})
        return
    count = f"{len(paths)} model{'s' if len(paths) > 1 else ''}"
    out.print(f"{count} written to {paths[0] if len(paths) == 1 else folder}", highlight=False)


def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    client: Annotated[
        list[str] | None,
        typer.Option("--client", "-c", help="Which client, by name or number (repeat)."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All clients.")] = False,
    newcomers: Annotated[
        bool,
        typer.Option(
            "--newcomers",
            help="What `coterie adapt` needs for sites that were not in training, instead of a"
            " client's model.",
        ),
    ] = False,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A folder (one client: its own; several: one in it for each), or for one client a"
            " .safetensors or .onnx file.",
        ),
    ] = None,
    view: Annotated[str | None, typer.Option(help="Which model: personal, global, …")] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write model.onnx too, with the preprocessing inside.")
    ] = False,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """Write a client's model as a folder that `coterie predict` works with: parameters,
    preprocessing, schema and a model card. The training data are not needed.

    Example: coterie export runs/experiment --client site-a -o site-a
    """
    if bool(client) + all_ + newcomers != 1:
        raise InvalidInput(
            "say whose model to export: --client NAME or NUMBER (repeat for several), or --all; or"
            " --newcomers for what newcomers need."
        )
    load_plugins(imports)
    from coterie.runs import export as runs

    if newcomers:
        if onnx or view:
            raise InvalidInput(
                f"{'--onnx' if onnx else '--view'} is given with --newcomers, but newcomers have no"
                " model yet; leave it out."
            )
        place = runs.export_kit(folder, target or folder / "for-newcomers", say=say)
        if as_json:
            print_json({"for_newcomers": place})
        else:
            out.print(f"what newcomers need is written to {place}", highlight=False)
        return
    paths = runs.export(folder, client or None, target, view=view, onnx=onnx, say=say)
    _written(paths, target or folder / "models", as_json)


def predict(
    folder: Annotated[
        Path, typer.Argument(help="The folder of an exported model, or of several clients'.")
    ],
    data: Annotated[
        Path, typer.Argument(help="Raw rows: a table, or arrays (.npz, .npy) for models of arrays.")
    ],
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .csv or .parquet file (default: standard output)."),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="The probability of every class too.")
    ] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", "-k", help="A column to keep beside the predictions (repeat)."),
    ] = None,
    client_column: Annotated[
        str | None,
        typer.Option(help="The column that says whose row it is: each row gets its own model."),
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(
            help="For rows of clients without a model: 'global' (the shared model) or 'mean' (the"
            " mean of all clients' answers)."
        ),
    ] = None,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """Predict from raw rows with an exported model.

    Example: coterie predict site-a rows.csv -o predictions.csv --proba --keep patient
    """
    load_plugins(imports)
    from coterie.models.exported.rows import predict_table, write_predictions

    table = predict_table(
        folder,
        data,
        keep=keep or (),
        client=client_column,
        fallback=fallback,
        proba=proba,
    )
    if as_json and target is None:
        print_json(table.to_pylist())
        return
    write_predictions(table, target)
    if as_json:
        print_json({"predictions": target, "rows": table.num_rows})
    elif target is not None:
        count = f"{table.num_rows} prediction{'s' if table.num_rows != 1 else ''}"
        out.print(f"{count} written to {target}", highlight=False)


def adapt(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder of a run, or what `coterie export --newcomers` wrote."),
    ],
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
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write model.onnx too, with the preprocessing inside.")
    ] = False,
    target_folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write the models, a folder each (default: newcomers, in FOLDER).",
        ),
    ] = None,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """Personalise for clients that were not in training, in the method's own way; the federation
    stays as it is, and its data are not needed.

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
        onnx=onnx,
        say=say,
    )
    if as_json:
        print_json({"models": paths, "scores": rows_of(table)})
        return
    out.print(table)
    out.print(
        f"{len(paths)} model{'s' if len(paths) > 1 else ''} written to {paths[0].parent}",
        highlight=False,
    )
