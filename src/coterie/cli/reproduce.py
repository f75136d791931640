"""`coterie reproduce`: the papers' tables, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from coterie.cli.console import Cluster, ClusterKeys, Insecure, Jobs, cluster_of, out, say
from coterie.core.errors import InvalidInput


def reproduce(
    name: Annotated[
        str, typer.Argument(help="A table, e.g. fedu/table-3; `list` names them; `all` does all.")
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
    jobs: Jobs = 1,
    cluster: Cluster = None,
    cluster_keys: ClusterKeys = None,
    insecure: Insecure = False,
    folder: Annotated[
        Path, typer.Option("--out", "-o", help="Where results go, as PAPER/TABLE.")
    ] = Path("experiments"),
    work: Annotated[Path, typer.Option(help="Where runs go.")] = Path("runs/reproduce"),
) -> None:
    """Run what stands behind a table of one of the three papers, and put the paper's numbers beside
    ours. Values that a paper leaves open are tuned first, with the same budget for everybody.

    It can be killed and repeated. Writes result.md, result.csv, figure.svg and the experiments.

    Examples: coterie reproduce list

    coterie reproduce fedu/table-3 --block har-convex --jobs 2
    """
    where = cluster_of(cluster, cluster_keys, insecure, jobs)
    from coterie.cli.progress import bars
    from coterie.runs.reproduce.base import all_tables, table_of
    from coterie.runs.reproduce.carry_out import Wish, carry_out
    from coterie.runs.reproduce.result import write

    if name == "list":
        shown = Table("table", "what it shows", "blocks", "seeds")
        for table in all_tables():
            names = ", ".join(block.name for block in table.blocks)
            shown.add_row(table.key, table.title, names, str(table.seeds))
        out.print(shown)
        return
    if name == "all" and blocks:
        raise InvalidInput(f"--block is {blocks[0]!r}, but `all` does all blocks; name a table.")
    tables = all_tables() if name == "all" else [table_of(name)]
    command = " ".join(
        [
            f"coterie reproduce {name}",
            *([f"--seeds {seeds}"] if seeds else []),
            *(["--quick"] if quick else []),
            *(f"--block {block}" for block in blocks or []),
        ]
    )
    place = folder / "quick" if quick else folder
    with bars(out) as begin:
        wish = Wish(
            work / "quick" if quick else work,
            seeds,
            quick,
            jobs,
            begin,
            say,
            tuple(blocks or ()),
            where,
        )
        for table, done in carry_out(tables, wish):
            if done:
                written = write(table, done, place, command)
                out.print(f"{table.key}: {written / 'result.md'}", highlight=False)
