"""The report of methods under attack as one HTML file."""

from __future__ import annotations

import html
from typing import Any

from coterie.report import parts
from coterie.report.attacked import Cell, Grid, brackets, cell_text, heads, judged, lines
from coterie.report.drawn import on_one_line, plain


def attack_page(grid: Grid, config: str = "") -> str:
    """One self-contained HTML page: a figure and a table for each attack."""
    e = html.escape
    about = (
        f"Honest clients' mean {judged(grid)}, {grid.which_round}, seeds"
        f" {', '.join(map(str, grid.seeds))}. Local trains alone with equal gradient steps. A cross"
        f" marks runs that collapsed. {brackets(grid)}"
    )
    note = "Honest clients' mean" + (
        "; the band is the standard deviation over seeds." if len(grid.seeds) > 1 else "."
    )
    figures = "".join(
        parts.figure(f"attack-{i}", attack, note) for i, attack in enumerate(grid.attacks)
    )
    tables = "".join(
        f"<h2>{e(attack)}</h2>{parts.table(heads(grid), lines(grid, attack))}"
        for attack in grid.attacks
    )
    body = (
        f'<p>{e(about)}</p><h2 id="figures">Figures</h2>{parts.METHODS}'
        f'<div class="figures">{figures}</div>{tables}{parts.experiment_html(config)}'
    )
    return parts.document(f"{grid.title} under attack", body, attacks_drawn(grid))


def attacks_drawn(grid: Grid) -> dict[str, Any]:
    """What the page's scripts draw."""
    metric = grid.metric
    alone = {label for label in grid.labels if _unharmed(grid, label)}
    return {
        "metric": {
            "title": on_one_line(metric.title),
            "label": on_one_line(f"honest clients' {judged(grid).removeprefix('test ')}"),
            "higher": metric.higher,
            "percent": metric.percent,
        },
        "methods": [
            {"label": label, "alone": label in alone, "collapsed": None} for label in grid.labels
        ],
        "fractions": grid.fractions,
        "attacks": [
            {
                "name": attack,
                "cells": [
                    [_drawn(grid, grid.cells[label, attack, f]) for f in grid.fractions]
                    for label in grid.labels
                ],
            }
            for attack in grid.attacks
        ],
    }


def _unharmed(grid: Grid, label: str) -> bool:
    """Whether no attack reaches a method, as nobody sends anything."""
    return all(not grid.cells[label, a, f].changes for a in grid.attacks for f in grid.fractions)


def _drawn(grid: Grid, cell: Cell) -> dict[str, Any]:
    unit, found = grid.metric.sign * grid.metric.unit, cell.spread
    return {
        "mean": None if found is None else plain(unit * found.mean),
        "std": None if found is None or found.count < 2 else plain(abs(unit) * found.std),
        "told": cell_text(cell, grid.metric),
    }
