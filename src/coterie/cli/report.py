"""`coterie report` and `coterie plot`: what runs came to, again, from their folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coterie.cli.as_json import Json, print_json
from coterie.cli.console import Import, load_plugins, out
from coterie.core.errors import InvalidInput

Folders = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN...",
        help="A folder of `coterie compare`, `attack` or `demo`, or one or more of `coterie run`.",
    ),
]


def report(
    folders: Folders,
    file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The page: a file that ends in .html, or a folder for its report.html (default:"
            " the folder of the runs, or here for several).",
        ),
    ] = None,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """Make the HTML report again from the folders of runs; nothing is trained.

    Runs of `coterie run` on the same data are put side by side: those that differ in the seed only
    are one method, and a Local with equal gradient steps among them is what the others are measured
    against.

    Examples: coterie report coterie-demo

    coterie report runs/fedu runs/local -o both.html
    """
    load_plugins(imports)
    from coterie.core.files import write_text
    from coterie.runs.remake import gather

    place = _page(file) or (folders[0] if len(folders) == 1 else Path()) / "report.html"
    found = gather(folders)
    write_text(place, found.html())
    if not as_json:
        out.print(f"Report: {place}", highlight=False)
        return
    from coterie.report.plain import comparison_plain, grid_plain

    if found.grid is not None:
        told = grid_plain(found.grid)
    else:
        assert found.comparison is not None
        told = comparison_plain(found.comparison)
    print_json(told | {"report": place})


def _page(file: Path | None) -> Path | None:
    """The page that --out names: a file that ends in .html, or report.html in a folder."""
    if file is None or file.suffix in (".html", ".htm"):
        return file
    if file.is_dir():
        return file / "report.html"
    raise InvalidInput(
        f"--out is {str(file)!r}, but must be a file that ends in .html, or a folder that is there"
        f" (for {file}/report.html make it first); did you mean {str(file) + '.html'!r}?"
    )


def plot(
    folders: Folders,
    file: Annotated[
        Path, typer.Option("--out", "-o", help="The figure: .pdf, .svg, .eps or .png (300 dpi).")
    ],
    figure: Annotated[
        str,
        typer.Option(
            "--figure",
            "-f",
            help="curves, spread, fairness, gain, bytes, graph, labels; of attacks: attack.",
        ),
    ] = "",
    over: Annotated[
        str, typer.Option(help="What curves are drawn over: rounds, bytes or gradients.")
    ] = "rounds",
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="Of which method the graph is.")
    ] = None,
    width: Annotated[float, typer.Option(help="Inches; 3.3 is a column of most papers.")] = 5.2,
    as_json: Json = False,
    imports: Import = None,
) -> None:
    """A figure for a paper from the folders of runs: vector graphics, in colours that colour-blind
    people can tell apart.

    Examples: coterie plot coterie-demo -o curves.pdf

    coterie plot coterie-demo -f curves --over bytes --width 3.3 -o bytes.svg
    """
    load_plugins(imports)
    from coterie.report import plots
    from coterie.runs.remake import gather

    plots.check_file(file)
    wanted = plots.Wanted(width, over, method)
    found = gather(folders)
    if found.grid is not None:
        if figure not in ("", "attack"):
            raise InvalidInput(f"the figure is {figure!r}, but attacks have 'attack' only.")
        made = plots.attack_curves(found.grid, wanted)
    else:
        assert found.comparison is not None
        made = plots.plot(found.comparison, figure or "curves", wanted, found.graphs)
    plots.save(made, file)
    if as_json:
        print_json({"figure": file})
        return
    out.print(f"Figure: {file}", highlight=False)
