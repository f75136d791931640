"""`coterie list` and `coterie show`: what there is, and what it takes."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Annotated, Any

import typer
from rich.table import Table

from coterie.cli import complete
from coterie.cli.as_json import Json, print_json
from coterie.cli.console import Import, load_plugins, out
from coterie.core.errors import InvalidInput, unknown

KINDS = (
    "methods",
    "channels",
    "attacks",
    "data",
    "models",
    "metrics",
    "optimizers",
    "graphs",
    "rules",
)


def registries() -> dict[str, dict[str, Any]]:
    """By the plural that `list` takes; `show` takes the singular."""
    from coterie.adversary import ATTACKS
    from coterie.channel import CHANNELS
    from coterie.core.metrics import METRICS
    from coterie.coupling.kinds import GRAPHS
    from coterie.coupling.learnt import RULES
    from coterie.data import SOURCES
    from coterie.methods import METHODS
    from coterie.methods.server import SERVER_OPTIMIZERS
    from coterie.models import MODELS

    groups: tuple[Any, ...] = (METHODS, CHANNELS, ATTACKS, SOURCES, MODELS, METRICS)
    groups += (SERVER_OPTIMIZERS, GRAPHS, RULES)
    return {kind: dict(group) for kind, group in zip(KINDS, groups, strict=True)}


def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            help="methods, channels, attacks, data, models, metrics, optimizers, graphs or rules"
            " (that learn a graph); nothing: all.",
            autocompletion=complete.kinds,
        ),
    ] = None,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """What there is: methods, channels, attacks, data sets, models, metrics, optimizers, client
    graphs and rules that learn one, a line each.
    """
    load_plugins(imports)
    groups = registries()
    if what is not None and what not in groups:
        raise unknown("the list", what, groups)
    if as_json:
        print_json(
            {
                title: [{"name": name, "summary": cls.summary} for name, cls in group.items()]
                for title, group in groups.items()
                if what in (None, title)
            }
        )
        return
    for title, group in groups.items():
        if what in (None, title):
            table = Table(
                title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
            )
            for name, cls in group.items():
                table.add_row(f"[b]{name}[/b]", cls.summary)
            out.print(table)


def show(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[KIND] NAME",
            help="A method, channel, attack, data set, model, metric, optimizer, graph or rule; "
            "where several have one name, first its kind: method, channel, attack, data, model,"
            " metric, optimizer, graph or rule.",
            autocompletion=complete.names_of(),
        ),
    ],
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """The equation, arguments, defaults and paper of a method; the options of a channel, attack,
    data set, model, optimizer or rule that learns a graph; what a metric or a graph is.

    Examples: coterie show fedu

    coterie show model linear
    """
    load_plugins(imports)
    kinds = {title.removesuffix("s"): group for title, group in registries().items()}
    if len(words) > 2:
        raise InvalidInput(
            f"show takes a name, or a kind and a name, but got {len(words)} words:"
            f" {' '.join(words)}."
        )
    *kind, name = words
    if kind and kind[0] not in kinds:
        raise unknown("the kind", kind[0], kinds)
    chosen = {k: group for k, group in kinds.items() if not kind or k == kind[0]}
    found = {k: group[name] for k, group in chosen.items() if name in group}
    if not found:
        *first, last = [k.replace("data", "data set") for k in chosen]
        what = f"{', '.join(first)} or {last}" if first else last
        raise unknown(f"the {what}", name, {n for group in chosen.values() for n in group})
    if as_json:
        print_json([_plain(k, name, cls) for k, cls in found.items()])
        return
    if len(found) > 1:
        ways = " and ".join(f"`coterie show {k} {name}`" for k in found)
        out.print(f"Several have this name; {ways} show one.\n", highlight=False)
    for k, cls in found.items():
        _show(k, name, cls, titled=len(found) > 1)


def _plain(kind: str, name: str, cls: Any) -> dict[str, Any]:
    """What `_show` prints, for scripts."""
    made: dict[str, Any] = {"kind": kind, "name": name, "summary": cls.summary}
    if kind == "metric":
        return made | {"title": cls.title, "better": cls.better, "task": cls.task}
    if kind == "graph":
        return made
    if kind in ("method", "rule"):
        made |= {"title": cls.title, "paper": cls.paper}
    options = [
        {
            "option": d.name,
            "symbol": d.symbol,
            "default": d.default if isinstance(d.default, (int, float, str, bool)) else None,
            "required": d.default is dataclasses.MISSING,
            "allowed": d.allowed,
            "schedule": d.schedulable,
            "tuned_over": None if d.search is None else str(d.search),
            "meaning": d.help,
        }
        for d in cls.public().values()
    ]
    return made | {"text": inspect.cleandoc(cls.__doc__ or ""), "options": options}


def _show(kind: str, name: str, cls: Any, *, titled: bool) -> None:
    if kind in ("method", "rule"):
        out.print(f"[b]{cls.title}[/b]  ({name})\n{cls.paper}\n", highlight=False)
    elif titled:
        out.print(f"[b]{name}[/b]  ({kind})\n", highlight=False)
    if kind == "metric":
        task = f"for {cls.task}" if cls.task else "for classification and regression"
        about = inspect.getdoc(cls.function) or ""
        out.print(f"{cls.title}: {cls.summary}; {cls.better}; {task}", highlight=False)
        if about:
            out.print(f"\n{about}", markup=False, highlight=False)
        return
    if kind == "graph":
        out.print(cls.summary, highlight=False)
        return
    out.print(inspect.cleandoc(cls.__doc__ or ""), markup=False, highlight=False)
    table = Table(title="\noptions", title_justify="left")
    tuned = any(d.search is not None for d in cls.public().values())
    for column in ("option", "symbol", "default", "allowed", *["tuned over"] * tuned, "meaning"):
        table.add_column(column)
    for d in cls.public().values():
        plain = isinstance(d.default, (int, float, str, bool))
        default = "–" if d.default is None else str(d.default) if plain else "(required)"
        allowed = d.allowed + (", or a schedule" if d.schedulable else "")
        space = ["" if d.search is None else str(d.search)] * tuned
        table.add_row(d.name, d.symbol, default, allowed, *space, d.help)
    out.print(table)
