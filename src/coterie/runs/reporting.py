"""The files of a report: what a command found, for people, for tables and for other programs; and a
recipe, so that the report can be made again from the runs alone (`remake`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.core.files import write_json, write_text
from coterie.coupling.graph import Graph
from coterie.report.attack_page import attack_page
from coterie.report.attacked import Grid, attack_markdown
from coterie.report.comparison import Comparison
from coterie.report.drawn import MOST_TIED
from coterie.report.measures import sheets
from coterie.report.page import page
from coterie.report.sites import sites_csv, sites_sheet
from coterie.report.tables import markdown
from coterie.runs.experiment import Experiment
from coterie.runs.labels import label_of

RECIPE = "recipe.json"


def write_report(
    comparison: Comparison,
    experiment: Experiment,
    folder: Path,
    targets: Sequence[float] = (),
    budgets: Sequence[float] = (),
    recipe: dict[str, Any] | None = None,
) -> None:
    """report.html, table.md, sites.csv and answer.json of a comparison; `recipe` has what else a
    report needs to know besides the runs.
    """
    clients = sites_sheet(comparison)
    more = sheets(comparison, targets, budgets)
    tables = [clients, *more] if clients is not None else more
    text = "\n".join([markdown(comparison), *(sheet.markdown() for sheet in tables)])
    write_text(folder / "table.md", text)
    write_text(folder / "sites.csv", sites_csv(comparison))
    write_json(folder / "answer.json", comparison.answer().to_config())
    wishes = {"targets": list(targets), "budgets": list(budgets)}
    write_json(folder / RECIPE, {"kind": "compare", **wishes, **(recipe or {})})
    html = comparison_html(comparison, experiment, targets, budgets)
    write_text(folder / "report.html", html)


def write_attack_report(grid: Grid, experiment: Experiment, folder: Path, recipe: Any) -> None:
    """report.html and table.md of a grid of attacks."""
    write_text(folder / "table.md", attack_markdown(grid))
    write_json(folder / RECIPE, {"kind": "attack", **recipe})
    write_text(folder / "report.html", attack_page(grid, experiment.to_toml()))


def comparison_html(
    comparison: Comparison,
    experiment: Experiment,
    targets: Sequence[float] = (),
    budgets: Sequence[float] = (),
) -> str:
    more = sheets(comparison, targets, budgets)
    return page(comparison, experiment.to_toml(), more, graphs_of(comparison, experiment))


def graphs_of(comparison: Comparison, experiment: Experiment) -> dict[str, Graph]:
    """The client graphs that were given, by method, where they can be drawn."""
    federation = comparison.federation
    if federation.clients > MOST_TIED:
        return {}
    found = {}
    for contender in experiment.contenders:
        if contender.method.couples:
            graph = experiment.graph_of(contender).build(federation)
            if isinstance(graph, Graph):
                found[label_of(contender, experiment.contenders)] = graph
    return found


def read_recipe(folder: Path) -> dict[str, Any]:
    """What `write_report` noted; a plain comparison where there is nothing."""
    try:
        found = json.loads((folder / RECIPE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"kind": "compare"}
    return found if isinstance(found, dict) else {"kind": "compare"}
