"""Tables and figures of methods under attack, in the shape of lp-proj's Tables 5–9 and Figure 4."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from coterie.core.metrics import ACCURACY, Metric
from coterie.report.comparison import Spread
from coterie.report.figures import pyplot, svg
from coterie.report.outcome import Outcome
from coterie.report.page import STYLE
from coterie.report.units import score_number, value_text


@dataclasses.dataclass(frozen=True)
class Cell:
    """One method under one attack at one fraction: the honest clients' mean score at each seed,
    None where the run collapsed, and when.

    `changes` are against the same seed's run in which nobody malicious, on the very same clients:
    those that are honest at one fraction are not those of another, and may have easier data.
    """

    scores: tuple[float | None, ...]
    collapsed_at: tuple[int | None, ...]
    changes: tuple[float | None, ...] = ()

    @classmethod
    def of(
        cls,
        outcomes: Sequence[Outcome],
        calm: Sequence[Outcome],
        malicious: Sequence[NDArray[np.bool_]],
    ) -> Cell:
        scores = [_honest(o, lie) for o, lie in zip(outcomes, malicious, strict=True)]
        before = [_honest(o, lie) for o, lie in zip(calm, malicious, strict=True)]
        changes = (
            ()
            if outcomes is calm
            else tuple(
                None if s is None or b is None else s - b
                for s, b in zip(scores, before, strict=True)
            )
        )
        return cls(tuple(scores), tuple(o.collapsed_at for o in outcomes), changes)

    @property
    def change(self) -> float | None:
        """Mean over the seeds where neither run collapsed."""
        kept = [c for c in self.changes if c is not None]
        return float(np.mean(kept)) if kept else None

    @property
    def spread(self) -> Spread | None:
        """Over the seeds that did not collapse; None when all did."""
        kept = [s for s in self.scores if s is not None]
        return Spread.over(kept) if kept else None

    @property
    def collapses(self) -> list[int]:
        return [t for t in self.collapsed_at if t is not None]


def _honest(outcome: Outcome, malicious: NDArray[np.bool_]) -> float | None:
    return (
        None
        if outcome.collapsed
        else float(np.nanmean(np.where(malicious, np.nan, outcome.last())))
    )


@dataclasses.dataclass
class Grid:
    """What `runs.attack` found; `cells[label, attack, fraction]`."""

    title: str
    labels: list[str]
    attacks: list[str]
    fractions: list[float]
    seeds: list[int]
    cells: dict[tuple[str, str, float], Cell]
    metric: Metric = ACCURACY
    which_round: str = "last round"
    """Which round the scores are of."""


BRACKETS = (
    "In brackets: points against the same clients in the run where nobody malicious; who is honest"
    " differs from share to share."
)


def _what(grid: Grid) -> str:
    """'test accuracy in %', and which way is better where that may be asked."""
    metric = grid.metric
    better = "" if metric.name == "accuracy" else f" ({metric.better})"
    return f"test {metric.title}{' in %' if metric.percent else ''}{better}"


def _brackets(grid: Grid) -> str:
    if grid.metric.percent and grid.metric.higher:
        return BRACKETS
    unit = "points" if grid.metric.percent else "the change"
    return BRACKETS.replace("points", f"{unit} (positive: better)", 1)


def cell_text(cell: Cell, metric: Metric = ACCURACY) -> str:
    """`87.10 ± 0.31 (−2.4)`, `collapsed at round 7`, or both when only some seeds collapsed."""
    parts = []
    if cell.spread is not None:
        change = (
            ""
            if cell.change is None
            else f" ({metric.unit * cell.change:+z{'.1f' if metric.percent else '.3g'}})".replace(
                "-", "−"
            ).replace("+0.0)", "0.0)")
        )
        spread = f" ± {score_number(cell.spread.std, metric.unit)}" if cell.spread.count > 1 else ""
        parts.append(value_text(cell.spread.mean, metric) + spread + change)
    if cell.collapses:
        when = sorted(set(cell.collapses))
        rounds = f"round {when[0]}" if len(when) == 1 else f"rounds {when[0]}–{when[-1]}"
        many = f"{len(cell.collapses)} of {len(cell.scores)} " if cell.spread is not None else ""
        parts.append(f"{many}collapsed at {rounds}")
    return "; ".join(parts)


def lines(grid: Grid, attack: str) -> list[list[str]]:
    return [
        [label, *(cell_text(grid.cells[label, attack, f], grid.metric) for f in grid.fractions)]
        for label in grid.labels
    ]


def heads(grid: Grid) -> list[str]:
    return ["method", *(f"{f:.0%} malicious" if f else "nobody malicious" for f in grid.fractions)]


def attack_tables(grid: Grid) -> list[Table]:
    """One table per attack for the terminal."""
    out = []
    for attack in grid.attacks:
        title = (
            f"{grid.title}, {attack}: honest clients' mean {_what(grid)} (points against the"
            " same clients when nobody malicious)"
        )
        table = Table(title=title, title_justify="left")
        for i, name in enumerate(heads(grid)):
            table.add_column(name, justify="right" if i else "left")
        for line in lines(grid, attack):
            table.add_row(*line)
        out.append(table)
    return out


def attack_markdown(grid: Grid) -> str:
    parts = [
        f"# {grid.title}\n\nHonest clients' mean {_what(grid)}, {grid.which_round}; seeds"
        f" {', '.join(map(str, grid.seeds))}. {_brackets(grid)}\n"
    ]
    for attack in grid.attacks:
        rows = [heads(grid), ["---"] * (len(grid.fractions) + 1), *lines(grid, attack)]
        parts.append(
            f"## {attack}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
        )
    return "\n".join(parts)


def attack_figure(grid: Grid) -> str:
    """The metric over the share of malicious clients, a panel per attack; a cross at the bottom
    where all seeds collapsed.
    """
    plt = pyplot()
    unit = grid.metric.sign * grid.metric.unit
    columns = min(2, len(grid.attacks))
    rows = -(-len(grid.attacks) // columns)
    figure, panels = plt.subplots(
        rows, columns, figsize=(5.2 * columns, 3.4 * rows), squeeze=False, sharey=True
    )
    for axes, attack in zip(panels.flat, grid.attacks, strict=False):
        for i, label in enumerate(grid.labels):
            cells = [grid.cells[label, attack, f] for f in grid.fractions]
            y = np.array([unit * c.spread.mean if c.spread else np.nan for c in cells])
            axes.plot(
                grid.fractions,
                y,
                marker="o",
                markersize=3,
                linewidth=1.5,
                color=f"C{i % 10}",
                label=label,
                linestyle="-" if i < 10 else "--",
            )
            gone = [f for f, c in zip(grid.fractions, cells, strict=True) if c.spread is None]
            at = 0.005 + 0.015 * i  # above the lower edge, as a part of the panel's height
            across = axes.get_xaxis_transform()
            axes.plot(
                gone, [at] * len(gone), "x", color=f"C{i % 10}", markersize=5, transform=across
            )
        axes.set(title=attack, xlabel="share of malicious clients")
        if grid.metric.percent:
            axes.set_ylim(0, 101)
        axes.set_ylabel(f"honest clients' {_what(grid).removeprefix('test ')}")
    for axes in list(panels.flat)[len(grid.attacks) :]:
        axes.set_visible(False)
    handles, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="lower center",
        ncols=4,
        frameon=False,
        bbox_to_anchor=(0.5, -0.02 - 0.03 * (len(names) // 4)),
    )
    figure.tight_layout()
    return svg(figure)


def attack_page(grid: Grid, config: str = "") -> str:
    """One self-contained HTML page."""
    e = html.escape
    tables = ""
    for attack in grid.attacks:
        body = "".join(
            "<tr>" + "".join(f"<td>{e(text)}</td>" for text in line) + "</tr>"
            for line in lines(grid, attack)
        )
        head = "".join(f"<th>{e(name)}</th>" for name in heads(grid))
        tables += (
            f"<h2>{e(attack)}</h2><div"
            f' class="scroll"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{e(grid.title)} under'
        " attack · coterie</title>"
        f"<style>{STYLE}</style></head><body><h1>{e(grid.title)} under attack</h1><p>Honest"
        f" clients' mean {_what(grid)}, {grid.which_round}, "
        f"seeds {', '.join(map(str, grid.seeds))}. Local trains alone with equal gradient steps. A"
        f" cross marks runs that collapsed. {_brackets(grid)}</p>"
        f"<figure>{attack_figure(grid)}</figure>{tables}"
        + (f"<h2>Experiment</h2><pre>{e(config)}</pre>" if config else "")
        + "</body></html>\n"
    )
