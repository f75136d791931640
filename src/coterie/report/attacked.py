"""Tables of methods under attack, in the shape of lp-proj's Tables 5–9."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from coterie.core.metrics import ACCURACY, Metric
from coterie.report.comparison import Spread
from coterie.report.outcome import Outcome
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
    unsent: tuple[int, ...] = ()
    """Lies at each seed that were not finite and counted as not sent."""

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
        collapsed_at = tuple(o.collapsed_at for o in outcomes)
        return cls(tuple(scores), collapsed_at, changes, tuple(o.unsent for o in outcomes))

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

UNSENT = (
    "Lies not sent: a lie that holds NaN or infinity counts as not sent, as a hub refuses it; the"
    " least and the most of all seeds."
)


def judged(grid: Grid) -> str:
    """'test accuracy in %', and which way is better where that may be asked."""
    metric = grid.metric
    better = "" if metric.name == "accuracy" else f" ({metric.better})"
    return f"test {metric.title}{' in %' if metric.percent else ''}{better}"


def brackets(grid: Grid) -> str:
    told = BRACKETS
    if not (grid.metric.percent and grid.metric.higher):
        unit = "points" if grid.metric.percent else "the change"
        told = BRACKETS.replace("points", f"{unit} (positive: better)", 1)
    return f"{told} {UNSENT}" if any(any(c.unsent) for c in grid.cells.values()) else told


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
    if any(cell.unsent):
        parts.append(f"{unsent_text(cell.unsent)} lies not sent")
    return "; ".join(parts)


def unsent_text(counts: Sequence[float]) -> str:
    """Over the seeds.

    >>> unsent_text([20, 4, 27]), unsent_text([3, 3])
    ('4–27', '3')
    """
    least, most = int(min(counts)), int(max(counts))
    return f"{least}" if least == most else f"{least}–{most}"


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
            f"{grid.title}, {attack}: honest clients' mean {judged(grid)} (points against the"
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
        f"# {grid.title}\n\nHonest clients' mean {judged(grid)}, {grid.which_round}; seeds"
        f" {', '.join(map(str, grid.seeds))}. {brackets(grid)}\n"
    ]
    for attack in grid.attacks:
        rows = [heads(grid), ["---"] * (len(grid.fractions) + 1), *lines(grid, attack)]
        parts.append(
            f"## {attack}\n\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
        )
    return "\n".join(parts)
