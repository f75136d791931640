"""`coterie doctor`: what this machine has, and what is wrong with it."""

from __future__ import annotations

import typer
from rich.table import Table

from coterie.cli.as_json import Json, print_json
from coterie.cli.console import Import, load_plugins, out

PORTS = {"ui": 8730, "hub": 9092, "run --processes": 9370}


def doctor(as_json: Json = False, imports: Import = None) -> None:
    """What this machine has: versions, devices, extras, caches, data sets that are found, ports.

    Trains nothing and downloads nothing. Exit code 1 if something is wrong, each in a sentence that
    says what to do.

    Example: coterie doctor --json
    """
    load_plugins(imports)
    from coterie.runs.doctor import as_plain, examine

    found = examine(PORTS)
    problems = as_plain(found)["problems"]
    if as_json:
        print_json(as_plain(found))
    else:
        for section, lines in found.items():
            table = Table(title=section, title_justify="left", show_header=False, box=None)
            table.add_column(min_width=18, no_wrap=True)
            table.add_column(overflow="fold")
            for one in lines:
                table.add_row(one.what, one.found)
            out.print(table, markup=False)
        for problem in problems:
            out.print(f"Problem: {problem}", style="red", highlight=False, markup=False)
        if not problems:
            out.print("Nothing is wrong.", style="green")
    if problems:
        raise typer.Exit(1)
