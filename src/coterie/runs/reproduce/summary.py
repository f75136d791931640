"""One table over all results: what papers printed, what came out here, and whether that agrees.

It stands between two marks in the README of the experiments, and is made of the result.csv files
alone, so that nobody edits it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from coterie.core.files import write_text
from coterie.runs.reproduce.base import ACCURACY, AT_BUDGET, PaperTable, Printed, all_tables
from coterie.runs.reproduce.result import spread
from coterie.runs.reproduce.rows import Row, read_csv

BEGIN = "<!-- reproduce: begin; written by `coterie reproduce summary`, not by hand -->"
END = "<!-- reproduce: end -->"
TITLE = "## The papers' tables, cell by cell"
COLUMNS = ("table", "block", "method", "measure", "paper", "ours", "verdict")
OVERVIEW = ("table", "blocks", "numbers that agree", "accuracies that agree", "at another place")
RANKED = (ACCURACY, AT_BUDGET)
"""Measures by which methods come in an order."""


def write_summary(out: Path) -> tuple[Path, int]:
    """Put the summary into README.md; the file, and how many cells it has."""
    found = [
        (table, read_csv(path.read_text(encoding="utf-8")))
        for table in all_tables("both")
        if (path := out / table.paper / table.folder / "result.csv").is_file()
    ]
    path = out / "README.md"
    before = path.read_text(encoding="utf-8") if path.is_file() else "# Experiments\n"
    if BEGIN not in before:
        before = f"{before.rstrip()}\n\n{TITLE}\n\n{BEGIN}\n{END}\n"
    head, rest = before.split(BEGIN, 1)
    after = rest.split(END, 1)[1] if END in rest else "\n"
    lines = summary(found)
    write_text(path, f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")
    return path, sum(bool(row.paper) for _, rows in found for row in rows)


def summary(found: Sequence[tuple[PaperTable, Sequence[Row]]]) -> list[str]:
    """Sentences, and the table in Markdown."""
    cells = [
        (table, row, _verdict(row, rows)) for table, rows in found for row in rows if row.paper
    ]
    if not cells:
        return ["Nothing was run yet."]
    counted = Counter(_kind(verdict) for _, _, verdict in cells)
    changed = sum("place" in verdict for _, _, verdict in cells)
    lines = [
        f"{len(cells)} cells: {counted['within']} within 2 standard deviations of the paper (of"
        f" both, and half a unit of its last digit), {counted['outside']} outside,"
        f" {counted['open']} open (far away, and within 2 deviations only because seeds differ so"
        f" much), {counted['none']} without a solution as in the paper. In {changed} the method has"
        " another place among those of its block than in the paper.",
        "",
        *_head(OVERVIEW),
        *(_overview(table, cells) for table, _ in found if any(c[0] is table for c in cells)),
        "",
        *_head(COLUMNS),
    ]
    for table, row, verdict in cells:
        name = f"{table.paper}/{table.folder}"
        method = f"{row.method}, {row.column}" if row.column else row.method
        ours = spread(row.ours, row.measure) or row.collapsed or "never"
        ours = f"{ours} ({row.lost})" if row.lost else ours
        texts = (f"[{name}]({name}/result.md)", row.block, method, row.measure, row.paper)
        lines.append("| " + " | ".join((*texts, ours, verdict)) + " |")
    return lines


def _head(columns: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]


def _overview(table: PaperTable, cells: Sequence[tuple[PaperTable, Row, str]]) -> str:
    """A table in a line: how many of its numbers agree, and which blocks were run."""
    mine = [(row, verdict) for of, row, verdict in cells if of is table]
    agree = [(row, _kind(verdict) in ("within", "none")) for row, verdict in mine]
    told = [
        f"{sum(ok for row, ok in agree if row.measure in measures)} of {count}"
        if (count := sum(row.measure in measures for row, _ in agree))
        else ""
        for measures in ({row.measure for row, _ in mine}, {ACCURACY})
    ]
    name = f"{table.paper}/{table.folder}"
    blocks = ", ".join(dict.fromkeys(row.block for row, _ in mine))
    moved = str(sum("place" in verdict for _, verdict in mine))
    return "| " + " | ".join((f"[{name}]({name}/result.md)", blocks, *told, moved)) + " |"


def _kind(verdict: str) -> str:
    return verdict.split(",")[0].split(" ")[0]


def _verdict(row: Row, rows: Sequence[Row]) -> str:
    """Within or outside; and the method's place, where that is not the paper's."""
    if row.measure not in RANKED or not row.there:
        return row.verdict
    alike = [
        r
        for r in rows
        if (r.block, r.column, r.measure) == (row.block, row.column, row.measure) and r.there
    ]
    alike = [r for r in alike if not math.isnan(_printed(r))]
    if row not in alike or len(alike) < 2:
        return row.verdict
    others = {r.entry: _printed(r) for r in alike if r.entry != row.entry}
    theirs = 1 + sum(printed > _printed(row) for printed in others.values())
    tied = sum(printed == _printed(row) for printed in others.values())
    ours = 1 + len({r.entry for r in alike if r.entry != row.entry and r.mean > row.mean})
    if theirs <= ours <= theirs + tied:
        return row.verdict
    return f"{row.verdict}; place {theirs} in the paper, {ours} here"


def _printed(row: Row) -> float:
    found = Printed.read(row.paper)
    return float("nan") if found is None else found.mean
