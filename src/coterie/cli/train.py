"""`coterie compare`, `attack` and `demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from coterie.cli.as_json import Json, beside, print_json
from coterie.cli.complete import names_of
from coterie.cli.console import (
    Cluster,
    ClusterKeys,
    DataDir,
    DropModels,
    Force,
    Import,
    Insecure,
    Jobs,
    Set,
    Track,
    cluster_of,
    load_plugins,
    out,
    say,
)
from coterie.core.errors import InvalidInput

MOST_SITES = 40
"""Clients that are listed one by one on a terminal; the report always has all."""


def demo(
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the report and the runs.")
    ] = Path("coterie-demo"),
    rounds: Annotated[int, typer.Option(help="Communication rounds.")] = 60,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
    as_json: Json = False,
) -> None:
    """Compare six methods on real handwritten digits, 20 clients with 2–3 digits each: a table and
    an HTML page, in under a minute.
    """
    from coterie.runs.presets import demo_experiment

    experiment = demo_experiment(rounds, range(seeds))
    beside(as_json).print(
        f"Six methods on 20 clients with 2–3 handwritten digits each, {rounds} rounds, equal"
        " gradient steps for all."
    )
    _compare(experiment, folder, force=(folder / "report.html").exists(), as_json=as_json)


def _compare(
    experiment: Any,
    folder: Path,
    *,
    force: bool,
    scores: list[float] | None = None,
    budgets: list[str] | None = None,
    fair: bool = False,
    jobs: int = 1,
    cluster: Any = None,
    drop_models: bool = False,
    minutes: float | None = None,
    as_json: bool = False,
) -> None:
    """Compare, or with `minutes` tune and compare, and print what comes out."""
    from coterie.cli.progress import bars
    from coterie.core.sizes import parse_bytes
    from coterie.report.measures import sheets
    from coterie.report.sites import sites_sheet
    from coterie.report.tables import comparison_table
    from coterie.runs.answer import Wishes, answer_into
    from coterie.runs.compare import Doing, check_wishes, train_all
    from coterie.runs.reporting import write_report

    paid = [parse_bytes(text) for text in budgets or []]
    targets = scores or []
    with bars(beside(as_json)) as begin:
        doing = Doing(force, begin, say, jobs, not drop_models, cluster)
        if minutes is None:
            check_wishes(experiment, targets, paid)
            comparison = train_all(experiment, folder, doing)
            write_report(comparison, experiment, folder, targets, paid)
        else:
            comparison = answer_into(experiment, folder, doing, Wishes(minutes, targets, paid))
    if as_json:
        from coterie.report.plain import comparison_plain

        places = {"report": folder / "report.html", "runs": folder / "runs"}
        print_json(comparison_plain(comparison) | places)
        return
    out.print(comparison_table(comparison, out.width))
    fairness, bill, *times = sheets(comparison, scores or [], paid)
    for sheet in [*([fairness] if fair else []), *([bill] if scores or paid else []), *times]:
        out.print(sheet.rich())
    tell = lambda text: out.print(text, highlight=False, soft_wrap=not out.is_terminal)
    clients = sites_sheet(comparison) if minutes is not None else None
    if clients is not None and len(clients.lines) <= MOST_SITES:
        out.print(clients.rich())
    sentences = [] if minutes is not None else comparison.verdict()
    for sentence in [*sentences, *comparison.notes()]:
        tell(f"· {sentence}")
    first, *rest = comparison.answer().sentences
    tell(f"\n[b]{first}[/b]")
    tell(" ".join(rest))
    out.print(f"\nReport: {folder / 'report.html'}   Runs: {folder / 'runs'}", highlight=False)


def compare(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            help=(
                r"A TOML file, where \[\[methods]] lists the methods; or your own table (.csv,"
                " .parquet, .xlsx, .npz) or folder."
            )
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="A method to compare (repeat); see `coterie list`.",
            autocompletion=names_of("methods"),
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seed", help="A seed (repeat); all methods are paired at each."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="A data set by name, instead of a file.",
            autocompletion=names_of("data"),
        ),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Your own table: the column that says whose row it is.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Your own table or folder: the column to predict.")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What decides, e.g. auc, f1, rmse (coterie list metrics); default: accuracy, or"
            " the mean squared error.",
            autocompletion=names_of("metrics"),
        ),
    ] = None,
    scores: Annotated[
        list[float] | None,
        typer.Option(
            "--to",
            help="What it costs to reach this value of the metric, e.g. 0.95 (a share) or an RMSE"
            " of 3.5 (repeat).",
        ),
    ] = None,
    budgets: Annotated[
        list[str] | None,
        typer.Option("--budget", help="What so many bytes buy, e.g. 2MB (repeat)."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help=(
                "Your own table: about how long tuning, training and everything else may take,"
                " but for compiling (default: 2); 0: nothing is tuned."
            ),
            min=0.0,
        ),
    ] = None,
    fair: Annotated[
        bool,
        typer.Option(
            "--fairness", help="Print how evenly clients are served (the report always has it)."
        ),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Your own table: say what was done to each column first."),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write (default: runs/<name>-compare)."),
    ] = None,
    data_dir: DataDir = None,
    settings: Set = None,
    imports: Import = None,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    cluster_keys: ClusterKeys = None,
    insecure: Insecure = False,
    drop_models: DropModels = False,
    track: Track = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare methods on the same clients, splits, cohorts, batches and seeds; Local with equal
    gradient steps is always there.

    Examples: coterie compare -d digits -m fedavg -m fedu -m pfedme --seed 0 --seed 1 -s
    training.rounds=50

    coterie compare readings.csv --client site --target label --metric auc

    coterie compare -d digits -m fedu -m lp-proj-2 --to 0.95 --budget 100kB --fairness
    """
    where = cluster_of(cluster, cluster_keys, insecure, jobs)
    load_plugins(imports)
    from coterie.runs.settings import Asked, compared_experiment

    asked = Asked(experiment, data, client, target)
    if minutes is not None and not asked.own:
        raise InvalidInput(
            f"--minutes is {minutes:g}, but it is for your own table or folder; tune an experiment"
            " with `coterie tune`."
        )
    if metric is not None:
        settings = [*(settings or []), f"training.metric={json.dumps(metric)}"]
    name, chosen = compared_experiment(asked, settings, methods, seeds, data_dir)
    if explain:
        from coterie.cli.data import explained

        beside(as_json).print(explained(chosen.federation()))
    _compare(
        chosen,
        folder or Path("runs") / f"{name}-compare",
        force=force,
        scores=scores,
        budgets=budgets,
        fair=fair,
        jobs=jobs,
        cluster=where,
        drop_models=drop_models,
        minutes=(2.0 if minutes is None else minutes) if asked.own else None,
        as_json=as_json,
    )


def attack(
    experiment: Annotated[
        Path, typer.Argument(help=r"A TOML file, where \[\[methods]] lists the methods.")
    ],
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            "-a",
            help="An attack (repeat); default: same-value, sign-flip, gaussian, random-labels.",
            autocompletion=names_of("attacks"),
        ),
    ] = None,
    fractions: Annotated[
        list[float] | None,
        typer.Option(
            "--fraction",
            "-f",
            help="A share of malicious clients (repeat); default: 0 .1 .2 .5 .8.",
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seed", help="A seed (repeat); all methods and attacks are paired at each."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write (default: runs/<name>-attack)."),
    ] = None,
    data_dir: DataDir = None,
    settings: Set = None,
    imports: Import = None,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    cluster_keys: ClusterKeys = None,
    insecure: Insecure = False,
    drop_models: DropModels = False,
    track: Track = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Methods under attack: every method × attack × share of malicious clients × seed, in one
    command that can be killed and repeated.

    Scores are over honest clients; who lies is fixed by the seed. `coterie list attacks` names the
    attacks, `coterie show alie` explains one.

    Example: coterie attack experiment.toml -a sign-flip -a alie -f 0.1 -f 0.3 --seed 0 --seed 1
    """
    where = cluster_of(cluster, cluster_keys, insecure, jobs)
    load_plugins(imports)
    from coterie.cli.progress import bars
    from coterie.report.attacked import attack_tables
    from coterie.runs.attack import attack_into, chosen_attacks
    from coterie.runs.settings import chosen_experiment, titled

    chosen = chosen_experiment(experiment, settings, None, seeds, data_dir)
    chosen = titled(chosen, experiment.stem)
    wanted, shares = chosen_attacks(attacks, fractions)
    folder = folder or Path("runs") / f"{experiment.stem}-attack"
    with bars(beside(as_json)) as begin:
        grid = attack_into(
            chosen,
            wanted,
            shares,
            folder,
            force=force,
            begin=begin,
            say=say,
            jobs=jobs,
            cluster=where,
            keep_models=not drop_models,
        )
    if as_json:
        from coterie.report.plain import grid_plain

        print_json(grid_plain(grid) | {"report": folder / "report.html", "runs": folder / "runs"})
        return
    for table in attack_tables(grid):
        out.print(table)
    out.print(f"\nReport: {folder / 'report.html'}   Runs: {folder / 'runs'}", highlight=False)
