"""`coterie`: train, compare, resume, look, export. No logic here: it parses, calls, prints."""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from coterie.cli.notices import print_notices
from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.program_cache import use_users_cache

app = typer.Typer(
    name="coterie",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Train [b]a model of its own for every client[/b] of a federation, learnt together with its"
        " kin, without moving their data.\n\nStart with [b]coterie demo[/b]; see what there is with"
        " [b]coterie list[/b]; read about a method with [b]coterie show fedu[/b]."
    ),
)
out = Console(width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True)


def say(sentence: str) -> None:
    err.print(sentence, style="yellow", highlight=False)


def _apply(settings: list[str] | None, config: dict[str, Any]) -> None:
    """`--set training.rounds=50 --set method.name=fedu` onto a config; values are read as TOML,
    else taken as text.
    """
    for item in settings or []:
        path, equals, text = item.partition("=")
        if not equals or not path:
            raise InvalidInput(f"--set is {item!r}, but must be of the form section.key=value.")
        try:
            value = tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            value = text
        *sections, key = path.split(".")
        table = config
        for section in sections:
            if isinstance(table.get(section), str):
                table[section] = {"name": table[section]}
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                raise InvalidInput(f"--set is {item!r}, but {section} is not a table.")
        table[key] = value


def _experiment(
    path: Path | None,
    settings: list[str] | None,
    methods: list[str] | None = None,
    seeds: list[int] | None = None,
    data_dir: Path | None = None,
) -> Any:
    from coterie.runs.experiment import Experiment

    config: dict[str, Any] = Experiment.read(path) if path is not None else {}
    _apply(
        [*(settings or []), *([f"data.data_dir={json.dumps(str(data_dir))}"] if data_dir else [])],
        config,
    )
    if methods:
        for key in ("method", "methods"):
            table = config.get(key)
            if isinstance(table, dict) and "name" not in table:
                raise InvalidInput(
                    f"{key}.{next(iter(table), '')} is given, but not of which method; beside"
                    " --method, options go into an experiment file, in a [[methods]] table with"
                    " the method's name."
                )
        listed = [*config.get("methods", []), config.pop("method", None)]
        known = {m["name"]: m for m in listed if isinstance(m, dict) and "name" in m}
        config["methods"] = [known.get(name, name) for name in methods]
    if seeds:
        config["seeds"] = list(seeds)
    return Experiment.from_config(config)


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
Force = Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")]


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the report and the runs.")
    ] = Path("coterie-demo"),
    rounds: Annotated[int, typer.Option(help="Communication rounds.")] = 60,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
) -> None:
    """Compare six methods on real handwritten digits, 20 clients with 2–3 digits each: a table and
    an HTML page, in under a minute.
    """
    from coterie.runs.compare import compare_into
    from coterie.runs.presets import demo_experiment

    experiment = demo_experiment(rounds, range(seeds))
    out.print(
        f"Six methods on 20 clients with 2–3 handwritten digits each, {rounds} rounds, equal"
        " gradient steps for all."
    )
    _compare(compare_into, experiment, folder, force=(folder / "report.html").exists())


def _compare(
    compare_into: Any,
    experiment: Any,
    folder: Path,
    *,
    force: bool,
    scores: list[float] | None = None,
    budgets: list[str] | None = None,
    fair: bool = False,
    jobs: int = 1,
    drop_models: bool = False,
) -> None:
    from coterie.cli.progress import bars
    from coterie.report.budget import parse_bytes
    from coterie.report.measures import sheets
    from coterie.report.tables import comparison_table

    paid = [parse_bytes(text) for text in budgets or []]
    with bars(out) as begin:
        comparison = compare_into(
            experiment,
            folder,
            force=force,
            begin=begin,
            say=say,
            targets=scores or [],
            budgets=paid,
            jobs=jobs,
            keep_models=not drop_models,
        )
    out.print(comparison_table(comparison, out.width))
    fairness, bill = sheets(comparison, scores or [], paid)
    for sheet in [*([fairness] if fair else []), *([bill] if scores or paid else [])]:
        out.print(sheet.rich())
    for sentence in comparison.verdict():
        out.print(f"· {sentence}", highlight=False, soft_wrap=not out.is_terminal)
    out.print(f"\n[b]{comparison.answer()}[/b]", highlight=False, soft_wrap=not out.is_terminal)
    out.print(f"\nReport: {folder / 'report.html'}   Runs: {folder / 'runs'}", highlight=False)


@app.command()
def run(
    experiment: Annotated[
        Path,
        typer.Argument(
            help="A TOML file with [data], [model], [training], [method] (and [graph])."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The run's folder (default: runs/<name of the file>)."),
    ] = None,
    data_dir: DataDir = None,
    settings: Set = None,
    force: Force = False,
) -> None:
    """Run one method into a folder that can be killed, resumed and exported from.

    The folder holds config.toml (resolved), environment.json, rounds.parquet, clients.parquet,
    ledger.parquet, timing.parquet and checkpoints.
    """
    from coterie.cli.progress import bars
    from coterie.data import warn_without_test
    from coterie.runs import run as runs

    chosen = _experiment(experiment, settings, data_dir=data_dir)
    place = folder or Path("runs") / experiment.stem
    if warning := warn_without_test(chosen.federation()):
        say(warning)
    with bars(out) as begin:
        finished = runs.start(
            chosen, place, force=force, progress=begin(chosen.method.title, 0, 1), say=say
        )
    _finished(finished)


@app.command()
def resume(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a run that was killed or interrupted.")
    ],
) -> None:
    """Go on with a run; it ends bit for bit as if it had never been disturbed."""
    from coterie.cli.progress import bars
    from coterie.runs import run as runs

    with bars(out) as begin:
        finished = runs.resume(folder, progress=begin(folder.name, 0, 1), say=say)
    _finished(finished)


def _finished(finished: Any) -> None:
    from coterie.report.summary import run_table

    out.print(run_table(finished.folder))
    out.print(
        f"{finished.folder} · {finished.seconds:.1f} s, of which {finished.compile_seconds:.1f} s"
        " compiling",
        highlight=False,
    )


@app.command()
def compare(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            help=(
                "A TOML file, where [[methods]] lists the methods; or your own table (.csv,"
                " .parquet, .npz) or folder."
            )
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="A method to compare (repeat); see `coterie list`."),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option("--seed", help="A seed (repeat); all methods are paired at each."),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", help="A data set by name, instead of a file.")
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="Your own table: the column that says whose row it is.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Your own table or folder: the column to predict.")
    ] = None,
    scores: Annotated[
        list[float] | None,
        typer.Option("--to", help="What it costs to reach this score, e.g. 0.95 (repeat)."),
    ] = None,
    budgets: Annotated[
        list[str] | None,
        typer.Option("--budget", help="What so many bytes buy, e.g. 2MB (repeat)."),
    ] = None,
    fair: Annotated[
        bool,
        typer.Option(
            "--fairness", help="Print how evenly clients are served (the report always has it)."
        ),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write (default: runs/<name>-compare)."),
    ] = None,
    data_dir: DataDir = None,
    settings: Set = None,
    jobs: Jobs = 1,
    drop_models: DropModels = False,
    force: Force = False,
) -> None:
    """Compare methods on the same clients, splits, cohorts, batches and seeds; Local with equal
    gradient steps is always there.

    Examples: coterie compare -d digits -m fedavg -m fedu -m pfedme --seed 0 --seed 1 -s
    training.rounds=50

    coterie compare readings.csv --client site --target label

    coterie compare -d digits -m fedu -m lp-proj-2 --to 0.95 --budget 100kB --fairness
    """
    from coterie.runs.compare import compare_into

    if experiment is not None and (experiment.suffix != ".toml" or experiment.is_dir()):
        from coterie.runs.experiment import Experiment
        from coterie.runs.presets import own_data, with_methods

        config = own_data(experiment, client, target)
        _apply(settings, config)
        config = with_methods(config, methods) | ({"seeds": list(seeds)} if seeds else {})
        name, chosen = experiment.stem, Experiment.from_config(config)
    else:
        if data is not None:
            settings = [f'data.name="{data}"', *(settings or [])]
        if experiment is None and data is None:
            raise InvalidInput(
                "there is nothing to compare on: give an experiment file or --data NAME."
            )
        name, chosen = (
            experiment.stem if experiment is not None else str(data),
            _experiment(experiment, settings, methods, seeds, data_dir),
        )
        if chosen.name == "experiment":
            chosen = chosen.with_(name=name)
    place = folder or Path("runs") / f"{name}-compare"
    _compare(
        compare_into,
        chosen,
        place,
        force=force,
        scores=scores,
        budgets=budgets,
        fair=fair,
        jobs=jobs,
        drop_models=drop_models,
    )


@app.command()
def attack(
    experiment: Annotated[
        Path, typer.Argument(help="A TOML file, where [[methods]] lists the methods.")
    ],
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            "-a",
            help="An attack (repeat); default: same-value, sign-flip, gaussian, random-labels.",
        ),
    ] = None,
    fractions: Annotated[
        list[float] | None,
        typer.Option("--fraction", "-f", help="A share of liars (repeat); default: 0 .1 .2 .5 .8."),
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
    jobs: Jobs = 1,
    drop_models: DropModels = False,
    force: Force = False,
) -> None:
    """Methods under attack: every method × attack × share of liars × seed, in one command that can
    be killed and repeated.

    Scores are over honest clients; who lies is fixed by the seed. `coterie list attacks` names the
    attacks, `coterie show alie` explains one.

    Example: coterie attack experiment.toml -a sign-flip -a alie -f 0.1 -f 0.3 --seed 0 --seed 1
    """
    from coterie.adversary import get_attack
    from coterie.cli.progress import bars
    from coterie.report.attacked import attack_tables
    from coterie.runs.attack import FRACTIONS, attack_into

    chosen = _experiment(experiment, settings, None, seeds, data_dir)
    if chosen.name == "experiment":
        chosen = chosen.with_(name=experiment.stem)
    wanted = [
        get_attack(name)
        for name in attacks or ("same-value", "sign-flip", "gaussian", "random-labels")
    ]
    shares = fractions or list(FRACTIONS)
    for share in shares:
        wanted[0].replace(fraction=share)  # refuses what is no share
    place = folder or Path("runs") / f"{experiment.stem}-attack"
    with bars(out) as begin:
        grid = attack_into(
            chosen,
            wanted,
            shares,
            place,
            force=force,
            begin=begin,
            say=say,
            jobs=jobs,
            keep_models=not drop_models,
        )
    for table in attack_tables(grid):
        out.print(table)
    out.print(f"\nReport: {place / 'report.html'}   Runs: {place / 'runs'}", highlight=False)


@app.command("list")
def list_(
    what: Annotated[
        str | None, typer.Argument(help="methods, channels, attacks, data or models; nothing: all.")
    ] = None,
) -> None:
    """What there is: methods, channels, attacks, data sets and models, a line each."""
    from coterie.adversary import ATTACKS
    from coterie.channel import CHANNELS
    from coterie.core.errors import unknown
    from coterie.data import SOURCES
    from coterie.methods import METHODS
    from coterie.models import MODELS

    groups: dict[str, dict[str, Any]] = {
        "methods": dict(METHODS),
        "channels": dict(CHANNELS),
        "attacks": dict(ATTACKS),
        "data": dict(SOURCES),
        "models": dict(MODELS),
    }
    if what is not None and what not in groups:
        raise unknown("the list", what, groups)
    for title, group in groups.items():
        if what in (None, title):
            table = Table(
                title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
            )
            for name, cls in group.items():
                table.add_row(f"[b]{name}[/b]", cls.summary)
            out.print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A method, channel, attack, data set or model.")],
) -> None:
    """The equation, arguments, defaults and paper of a method; the options of a channel, attack,
    data set or model.
    """
    from coterie.adversary import ATTACKS
    from coterie.channel import CHANNELS
    from coterie.core.errors import unknown
    from coterie.data import SOURCES
    from coterie.methods import METHODS
    from coterie.models import MODELS

    found = {**MODELS, **SOURCES, **CHANNELS, **ATTACKS, **METHODS}
    if name not in found:
        raise unknown("the method, channel, attack, data set or model", name, found)
    cls: Any = found[name]
    if name in METHODS:
        out.print(f"[b]{cls.title}[/b]  ({name})\n{cls.paper}\n", highlight=False)
    out.print(inspect.cleandoc(cls.__doc__ or ""), markup=False, highlight=False)
    table = Table(title="\noptions", title_justify="left")
    for column in ("option", "symbol", "default", "allowed", "meaning"):
        table.add_column(column)
    for d in cls.public().values():
        default = (
            "–"
            if d.default is None
            else (
                "(required)"
                if not isinstance(d.default, (int, float, str, bool))
                else str(d.default)
            )
        )
        table.add_row(
            d.name,
            d.symbol,
            default,
            d.allowed + (", or a schedule" if d.schedulable else ""),
            d.help,
        )
    out.print(table)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    client: Annotated[
        list[int] | None, typer.Option("--client", "-c", help="Which client (repeat).")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All clients.")] = False,
    target: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A .safetensors file for one client, or a folder."),
    ] = None,
    view: Annotated[str | None, typer.Option(help="Which model: personal, global, …")] = None,
) -> None:
    """Write a client's personal model as safetensors, for numpy, PyTorch or anything else that
    reads it.
    """
    from coterie.runs import run as runs

    if bool(client) == all_:
        raise InvalidInput("say whose model to export: --client K (repeat for several) or --all.")
    place = target or folder / "models"
    paths = runs.export(folder, client or None, place, view=view, say=say)
    out.print(
        f"{len(paths)} model{'s' if len(paths) > 1 else ''} written to"
        f" {paths[0] if len(paths) == 1 else place}",
        highlight=False,
    )


@app.command()
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
) -> None:
    """Personalise for clients that were not in training, in the method's own way; the federation
    stays as it is.

    Example: coterie adapt runs/experiment --data my-readings.csv
    """
    from coterie.runs import newcomers

    places, table = newcomers.adapt_into(
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
        f"{len(places)} model{'s' if len(places) > 1 else ''} written to {places[0].parent}",
        highlight=False,
    )


def _mount() -> None:
    from coterie.cli import data, deploy, hub, keys, peer

    app.add_typer(data.app, name="data")
    app.add_typer(keys.keys_app, name="keys")
    app.add_typer(hub.hub_app, name="hub")
    app.add_typer(hub.client_app, name="client")
    app.command()(peer.peer)
    app.command()(deploy.status)
    app.command("deploy-demo")(deploy.deploy_demo)


_mount()


def main() -> None:
    """The entry point: one sentence and a non-zero exit for everything that goes wrong."""
    try:
        use_users_cache()
        print_notices(say)
        code = app(standalone_mode=False)  # of `typer.Exit`, which is not raised here
        if isinstance(code, int) and code:
            sys.exit(code)
    except CoterieError as error:
        err.print(f"coterie: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        err.print("coterie: stopped at once; what the last checkpoint holds is safe.", style="red")
        sys.exit(130)
    except Exception as error:
        if type(error).__module__.startswith(("click", "typer")) and hasattr(
            error, "format_message"
        ):
            err.print(
                f"coterie: {error.format_message()}",
                style="red",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            sys.exit(2)
        raise
