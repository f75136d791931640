"""`coterie reproduce`: the papers' tables and figures, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from coterie.cli.as_json import Json, beside, print_json
from coterie.cli.console import Cluster, ClusterKeys, Insecure, Jobs, cluster_of, out, say
from coterie.core.errors import InvalidInput, unknown

if TYPE_CHECKING:
    from coterie.runs.reproduce.base import PaperTable


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="A table or figure, e.g. fedu/table-3; `list` names them; `all` does all;"
            " `summary` writes one table over all results."
        ),
    ],
    seeds: Annotated[
        int | None, typer.Option(help="Seeds per cell (default: as the table says).", min=1)
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One seed, 40 times fewer rounds, nothing tuned: to see that it works."
        ),
    ] = False,
    blocks: Annotated[
        list[str] | None, typer.Option("--block", help="A part of the table (repeat).")
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="honest; paper: data, measures and steps as the authors had them, where that"
            " differs; both."
        ),
    ] = "honest",
    long: Annotated[
        bool,
        typer.Option(
            "--long", help="Also what takes hours (`list` marks it); else name it with --block."
        ),
    ] = False,
    only_missing: Annotated[
        bool, typer.Option("--missing", help="Leave out blocks that have a result in OUT.")
    ] = False,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    cluster_keys: ClusterKeys = None,
    insecure: Insecure = False,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where results go, as PAPER/TABLE.")
    ] = Path("experiments"),
    work: Annotated[Path, typer.Option(help="Where runs go.")] = Path("runs/reproduce"),
    again: Annotated[
        bool,
        typer.Option("--tune-again", help="Tune also what has values in OUT/tuned."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run what stands behind a table or figure of one of the three papers, and put the paper's
    numbers beside ours. Values that a paper leaves open are tuned first, with the same budget for
    everybody.

    It can be killed and repeated. Writes result.md, result.csv, figure.svg and the experiments, and
    brings the summary in README.md up to date. Blocks of an earlier command stay in the result.
    What was tuned before is taken from OUT/tuned.

    Examples: coterie reproduce list

    coterie reproduce fedu/table-3 --block har-convex --jobs 2
    """
    where = cluster_of(cluster, cluster_keys, insecure, jobs)
    from coterie.cli.progress import bars
    from coterie.runs.reproduce.base import PROTOCOLS, all_tables, table_of
    from coterie.runs.reproduce.carry_out import Wish, carry_out
    from coterie.runs.reproduce.cost import note_costs
    from coterie.runs.reproduce.result import missing, write
    from coterie.runs.reproduce.summary import write_summary
    from coterie.runs.reproduce.tuned import FOLDER

    if protocol not in PROTOCOLS:
        raise unknown("--protocol", protocol, PROTOCOLS)
    if name == "list":
        _list(folder, as_json)
        return
    if name == "summary":
        path, cells = write_summary(folder)
        if as_json:
            print_json({"summary": path, "cells": cells})
            return
        out.print(f"{path}: {cells} cells", highlight=False)
        return
    if name == "all" and blocks:
        raise InvalidInput(f"--block is {blocks[0]!r}, but `all` does all blocks; name a table.")
    if name == "all":
        tables = all_tables(protocol)
    else:
        wanted = ("honest", "paper") if protocol == "both" else (protocol,)
        tables = [table_of(name, each) for each in wanted]
    if not long and not blocks:
        tables = _without_long(name, tables)
    if only_missing and not quick:
        tables = [found for table in tables if (found := missing(table, folder)).blocks]
        if not tables:
            out.print(f"{name}: every block has a result in {folder}", highlight=False)
            return
    asked = [*([f"--seeds {seeds}"] if seeds else []), *(["--quick"] if quick else [])]
    place = folder / "quick" if quick else folder
    results = []
    with bars(beside(as_json)) as begin:
        wish = Wish(
            work / "quick" if quick else work,
            seeds=seeds,
            quick=quick,
            jobs=jobs,
            begin=begin,
            say=say,
            blocks=tuple(blocks or ()),
            cluster=where,
            tuned=folder / FOLDER,
            again=again,
        )
        for table, done in carry_out(tables, wish):
            if done:
                written = write(table_of(table.key, table.protocol), done, place, asked)
                note_costs(folder, table, done, quick=quick)
                if not quick:
                    write_summary(folder)
                results.append({"table": table.key, "result": written / "result.md"})
                beside(as_json).print(f"{table.key}: {written / 'result.md'}", highlight=False)
    if as_json:
        print_json(results)


def _without_long(name: str, tables: list[PaperTable]) -> list[PaperTable]:
    """What does not take hours; of a table that is named, what is left out is said."""
    short = [found for table in tables if (found := table.without_long()).blocks]
    hours = dict.fromkeys(b.name for table in tables for b in table.blocks if b.long)
    if not short:
        raise InvalidInput(
            f"{name} has only blocks that take hours ({', '.join(hours)}); add --long, or name one"
            " with --block."
        )
    if hours and name != "all":
        say(f"left out, since they take hours: {', '.join(hours)}; --long does them too.")
    return short


def _seeds(table: PaperTable) -> str:
    return " or ".join(map(str, sorted({block.seeds or table.seeds for block in table.blocks})))


def _list(folder: Path, as_json: bool) -> None:
    """All that can be done, and what it takes."""
    from coterie.runs.reproduce.base import all_tables
    from coterie.runs.reproduce.cost import read_costs, told, told_of_all

    costs = read_costs(folder)
    if as_json:
        print_json(
            [
                {
                    "table": table.key,
                    "shows": table.title,
                    "blocks": [{"name": b.name, "long": b.long} for b in table.blocks],
                    "seeds": _seeds(table),
                    "protocol": table.protocol,
                    "takes": told(table, costs),
                }
                for table in all_tables("both")
            ]
        )
        return
    shown = Table("table", "what it shows", "blocks (* takes hours)", "seeds", "protocol", "takes")
    for table in all_tables("both"):
        names = ", ".join(block.name + "*" * block.long for block in table.blocks)
        shown.add_row(
            table.key, table.title, names, _seeds(table), table.protocol, told(table, costs)
        )
    out.print(shown)
    out.print(told_of_all(all_tables("honest"), costs), highlight=False)
