"""`coterie tune`: good values for the options of every method, on validation data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from coterie.cli.as_json import Json, beside, print_json
from coterie.cli.console import (
    Cluster,
    ClusterKeys,
    DataDir,
    Force,
    Import,
    Insecure,
    Set,
    cluster_of,
    load_plugins,
    out,
    say,
)
from coterie.core.metrics import Metric, metric_of


def tune(
    experiment: Annotated[
        Path,
        typer.Argument(
            help=r"A TOML file, where \[\[methods]] lists the methods and \[tune] says how."
        ),
    ],
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method to tune (repeat); default: all of the file."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Gradient steps per client for all trials of a method (tune.steps)."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Time for all methods together, shared equally; compiling is not counted"
            " (tune.minutes)."
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="Cross-validation within each client, in so many folds (tune.folds)."),
    ] = None,
    sampler: Annotated[str | None, typer.Option(help="tpe, random or grid (tune.sampler).")] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="The grids of a paper: lp-proj-c2 (tune.preset; sampler grid)."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write (default: runs/<name>-tune)."),
    ] = None,
    data_dir: DataDir = None,
    settings: Set = None,
    imports: Import = None,
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", help="Methods at a time, each in a process of its own."),
    ] = 1,
    cluster: Cluster = None,
    cluster_keys: ClusterKeys = None,
    insecure: Insecure = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Tune every method, and Local, with the same budget of gradient steps each, on validation data
    only; test rows are taken away before.

    Writes tuned.toml, ready for `coterie compare`, and all trials as trials.csv, trials.md and
    trials.svg. It can be killed and repeated: what was tried is kept. `coterie show METHOD` says
    what is searched.

    Examples: coterie tune experiment.toml --minutes 10 --jobs 2

    coterie tune experiment.toml --preset lp-proj-c2 --folds 5
    """
    where = cluster_of(cluster, cluster_keys, insecure, jobs)
    load_plugins(imports)
    from coterie.cli.progress import bars
    from coterie.runs.grid import Board
    from coterie.runs.settings import chosen_experiment, titled
    from coterie.runs.tuning.folder import tune_into

    asked = {
        "steps": steps,
        "minutes": minutes,
        "folds": folds,
        "preset": preset,
        "sampler": sampler or ("grid" if preset else None),
    }
    given = [f"tune.{key}={value}" for key, value in asked.items() if value is not None]
    chosen = chosen_experiment(experiment, [*(settings or []), *given], methods, None, data_dir)
    chosen = titled(chosen, experiment.stem)
    place = folder or Path("runs") / f"{experiment.stem}-tune"
    with bars(beside(as_json), unit="s" if minutes is not None else "steps") as begin:
        board = begin if isinstance(begin, Board) else None
        found = tune_into(
            chosen, place, force=force, jobs=jobs, cluster=where, board=board, say=say
        )
    metric = metric_of(chosen.training.metric, chosen.federation().task)
    if as_json:
        print_json(_plain(found, metric) | {"tuned": place / "tuned.toml"})
        return
    out.print(_table(found, metric))
    out.print(
        "Tuned on validation data; test rows were not read. Compare with: coterie compare"
        f" {place / 'tuned.toml'}",
        highlight=False,
        soft_wrap=not out.is_terminal,
    )


def _plain(found: list[Any], metric: Metric) -> dict[str, Any]:
    lines = [
        {
            "method": t.label,
            "values": t.params,
            "score": metric.value(t.score),
            "as_given": None if t.given_score is None else metric.value(t.given_score),
            "trials": len(t.trials),
            "failed": sum(trial.state == "failed" for trial in t.trials),
            "steps": t.steps,
            "seconds": t.seconds,
        }
        for t in found
    ]
    return {"metric": {"name": metric.name, "better": metric.better}, "methods": lines}


def _table(found: list[Any], metric: Metric) -> Table:
    from coterie.report.trials import params_text

    title = f"best {metric.title} on validation data ({metric.better})"
    table = Table(title=title, title_justify="left")
    rest = ("as given", "trials", "failed", "steps", "seconds")
    for name in ("method", "values", metric.name, *rest):
        table.add_column(name, justify="left" if name in ("method", "values") else "right")
    for t in found:
        table.add_row(
            t.label,
            params_text(t.params) or "(nothing to search)",
            f"{metric.value(t.score):z.4f}",
            "" if t.given_score is None else f"{metric.value(t.given_score):z.4f}",
            str(len(t.trials)),
            str(sum(trial.state == "failed" for trial in t.trials)),
            f"{t.steps:.0f}",
            f"{t.seconds:.0f}",
        )
    return table
