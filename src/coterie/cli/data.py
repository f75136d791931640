"""`coterie data`: look at a federation before training on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from coterie.cli.as_json import Json, print_json
from coterie.cli.complete import names_of
from coterie.core.errors import InvalidInput

if TYPE_CHECKING:
    from coterie.data import describe

app = typer.Typer(help="Data sets, splits and your own tables.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Data sets, splits and your own tables."""


@app.command("list")
def list_sources(as_json: Json = False) -> None:
    """The data sets that are known, one line each."""
    from coterie.data import SOURCES

    if as_json:
        print_json([{"name": n, "summary": made.summary} for n, made in sorted(SOURCES.items())])
        return
    table = Table("name", "what it is")
    for name, made in sorted(SOURCES.items()):
        table.add_row(name, made.summary)
    Console().print(table)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A data set (see `coterie data list`), or the path of your own table or folder.",
            autocompletion=names_of("data"),
        ),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Its options, e.g. clients=20 split=labels."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    graph: Annotated[
        str | None,
        typer.Option(help="Draw this client graph too, e.g. complete, nearest or random-graph."),
    ] = None,
    weight: Annotated[float, typer.Option(help="Weight of the graph's edges.")] = 1.0,
    neighbours: Annotated[int, typer.Option(help="Graph 'nearest': neighbours per client.")] = 2,
    probability: Annotated[
        float, typer.Option(help="Graph 'random-graph': probability of an edge.")
    ] = 0.5,
    out: Annotated[Path, typer.Option(help="Folder for the pictures and the page.")] = Path(),
    rows: Annotated[int, typer.Option(help="Clients listed one by one (0: none).", min=0)] = 20,
    explain: Annotated[
        bool, typer.Option("--explain", help="Your own table: what was done to each column.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print a data set's sizes, labels and heterogeneity, and draw its clients (PNG and HTML).

    With --json nothing is drawn.
    """
    from coterie.coupling import graph as graphs
    from coterie.data import describe
    from coterie.data.given import load_named

    federation = load_named(name, options or [], seed)
    description = describe.describe(federation)
    coupling: Any = None
    if graph is not None:
        coupling = graphs.build(
            graph,
            federation,
            weight=weight,
            neighbours=neighbours,
            probability=probability,
            seed=seed,
        )
    if as_json:
        print_json(_plain(federation, description, coupling, explain))
        return
    console = Console()
    summary = Table(show_header=False, title=federation.name)
    for what, value in description.rows():
        summary.add_row(what, value)
    if coupling is not None:
        summary.add_row("graph", coupling.describe())
    console.print(summary)
    if explain:
        console.print(explained(federation))
    if rows:
        console.print(_clients(federation, description, rows))
    if description.warning:
        console.print(description.warning, style="yellow")
    try:
        written = describe.write(out, Path(name).name.split(".")[0], federation, coupling)
    except OSError as error:
        raise InvalidInput(
            f"the pictures cannot be written to {str(out)!r}: {error.strerror or error}."
        ) from None
    console.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)


@app.command("map")
def map_arrays(
    name: Annotated[
        str, typer.Argument(help="A data set, or the path of your own table or folder.")
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Its options, e.g. clients=20 split=labels."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("mapped"),
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a federation as files of arrays that runs map and do not read: for many clients.

    Then, in an experiment: \\[data] name = "mapped", path = "FOLDER"; with \\[training] store =
    "file" a run holds its cohort's rows only.

    Example: coterie data map synthetic clients=100000 -o many
    """
    from coterie.data.given import load_named
    from coterie.data.mapped import save_mapped

    federation = load_named(name, options or [], seed)
    save_mapped(federation, out)
    if as_json:
        print_json({"folder": out, "clients": federation.clients})
        return
    Console().print(
        f"Written: {out}, {federation.clients:,} clients. In an experiment:"
        f' \\[data] name = "mapped", path = "{escape(str(out))}".',
        soft_wrap=True,
    )


@app.command("explain")
def explain_columns(
    path: Annotated[Path, typer.Argument(help="Your own table, or a folder of tables.")],
    client: Annotated[
        str | None, typer.Option(help="A table: the column that says whose row it is.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="Other options, e.g. -s missing=refuse."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    as_json: Json = False,
) -> None:
    """Say what is done to each column of your own table, one line each."""
    from coterie.data.given import load_named

    if not path.expanduser().exists():
        raise InvalidInput(f"the table {str(path)!r} does not exist.")
    named = [f"{k}={v}" for k, v in (("client", client), ("target", target)) if v is not None]
    given = [pair.removeprefix("data.") for pair in options or []]
    federation = load_named(str(path), [*named, *given], seed)
    if as_json:
        print_json(_columns(federation))
        return
    Console(width=None if Console().is_terminal else 160).print(explained(federation))


def explained(federation: Any) -> Table:
    """What was done to each column, as a table for the terminal."""
    from coterie.data.explain import explain

    table = Table("column", "taken for", "what is done", title="columns", title_justify="left")
    for line in explain(federation):
        table.add_row(*(escape(cell) for cell in line))
    return table


def _columns(federation: Any) -> list[dict[str, str]]:
    from coterie.data.explain import explain

    return [line._asdict() for line in explain(federation)]


def _plain(
    federation: Any, description: describe.Description, coupling: Any, explain: bool
) -> dict[str, Any]:
    """What `show` prints, for scripts."""
    made = {
        "name": federation.name,
        "task": description.task,
        "clients": federation.names(),
        "input_shape": description.input_shape,
        "classes": description.classes,
        "samples": description.sizes,
        "labels_per_client": description.labels,
        "majority_class": description.majority,
        "heterogeneity": description.heterogeneity,
        "warning": description.warning,
    }
    if coupling is not None:
        made["graph"] = coupling.describe()
    return made | ({"columns": _columns(federation)} if explain else {})


def _clients(federation: Any, description: describe.Description, rows: int) -> Table:
    from coterie.data import describe

    table = Table(
        "client", "train", "validation", "test", "labels: training samples", title="clients"
    )
    for name, sizes, labels in describe.client_rows(federation, description, rows):
        table.add_row(name, *map(str, sizes), labels)
    return table
