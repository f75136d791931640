"""Cells of a table: what came out beside what a paper printed, and the file that has them."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.runs.reproduce.base import PERCENT, TO_TARGET, Printed

FAR = 5.0
"""Points that are called far; of other measures it is half of the paper's number."""
HEAD = ("block", "method", "column", "measure", "seed", "paper", "ours")


class Row(NamedTuple):
    """A cell: a measure of a line at all seeds; NaN where there is none."""

    block: str
    method: str
    column: str
    measure: str
    paper: str
    ours: list[float]
    collapsed: str | None = None

    @property
    def there(self) -> list[float]:
        return [v for v in self.ours if not math.isnan(v)]

    @property
    def lost(self) -> str:
        """Said where some seeds have no value, but not all."""
        there = len(self.there)
        if there in (0, len(self.ours)):
            return ""
        return self.collapsed or f"{len(self.ours) - there} of {len(self.ours)} seeds never"

    @property
    def mean(self) -> float:
        """By which methods come in an order: behind all others where a seed has no value."""
        return -math.inf if self.lost else float(np.mean(self.there))

    @property
    def entry(self) -> tuple[str, str]:
        """The method of the paper: several lines may be readings of one, FedU (all neighbours) and
        FedU (neighbours sampled), which then have its number.
        """
        return re.split(r" \(|, ", self.method)[0], self.paper

    @property
    def verdict(self) -> str:
        """Whether ours is within two deviations of the paper's (those of both, as of independent
        numbers) and half a unit of its last digit; nothing where the paper has no number. Open: it
        is, but far away, and only because seeds differ so much. With a seed that has no value it
        is outside.
        """
        printed = Printed.read(self.paper)
        if printed is None or not self.ours:
            return ""
        if math.isnan(printed.mean):
            return "none, as in the paper" if not self.there else "outside, the paper has none"
        if not self.there:
            return f"outside, {self.collapsed or 'never'}"
        if self.lost:
            return f"outside, {self.lost}"
        away = float(np.mean(self.there)) - printed.mean
        ours = float(np.std(self.there, ddof=1)) if len(self.there) > 1 else 0.0
        room = 2 * math.hypot(ours, printed.spread or 0.0) + printed.half
        share = self.measure in PERCENT
        far = abs(away) > (FAR if share else max(printed.half, abs(printed.mean) / 2))
        if abs(away) <= room and not far:
            return "within 2 std"
        if self.measure == TO_TARGET:
            text = f"{np.mean(self.there) / printed.mean:.2g} times"
        else:
            text = f"{away:+.2f}" if share else f"{away:+.2g}"
        return f"outside, {text}" if abs(away) > room else f"open, {text} but within 2 std"


def table_csv(rows: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEAD)
    for r in rows:
        for seed, value in enumerate(r.ours):
            ours = f"{value:.6g}" if not math.isnan(value) else (r.collapsed or "")
            writer.writerow((r.block, r.method, r.column, r.measure, seed, r.paper, ours))
    return out.getvalue()


def read_csv(text: str) -> list[Row]:
    """The inverse of `table_csv`."""
    found: dict[tuple[str, ...], Row] = {}
    for given in csv.DictReader(io.StringIO(text)):
        block, method, column, measure, _, paper, ours = (given[name] for name in HEAD)
        key = (block, method, column, measure)
        row = found.setdefault(key, Row(*key, paper, []))
        try:
            row.ours.append(float(ours))
        except ValueError:
            row.ours.append(float("nan"))
            found[key] = row._replace(collapsed=ours or None)
    return list(found.values())
