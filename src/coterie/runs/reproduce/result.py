"""What came out beside what a paper printed: rows, verdicts, and the files of a result."""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.core.files import make_folder, write_text
from coterie.methods.base import Method
from coterie.report.units import bytes_text
from coterie.runs.reproduce.base import (
    ACCURACY,
    PERCENT,
    TO_TARGET,
    PaperTable,
    Printed,
)
from coterie.runs.reproduce.carry_out import Done
from coterie.runs.reproduce.draw import figure
from coterie.runs.reproduce.measures import TOLD, Ran, measured

LAST = "accuracy, last round"
ALONE = "Local, same gradients"
GRADIENTS = "gradients a client and round"
BYTES = "bytes a client and round"
SHOWN = ("lr", "personal_lr", "hub_lr", "lam", "eta", "adapt_lr", "mu", "beta")
"""Options whose values a reader wants to see."""
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
    def verdict(self) -> str:
        """Whether ours is within two deviations of the paper's, both added, and the paper's known
        to its last digit; nothing where the paper has no number.
        """
        printed = Printed.read(self.paper)
        if printed is None or not self.ours:
            return ""
        if math.isnan(printed.mean):
            return "none, as in the paper" if not self.there else "outside, the paper has none"
        if not self.there:
            return f"outside, {self.collapsed or 'never'}"
        away = float(np.mean(self.there)) - printed.mean
        ours = float(np.std(self.there, ddof=1)) if len(self.there) > 1 else 0.0
        room = 2 * math.hypot(ours, printed.spread or 0.0) + printed.half
        if abs(away) <= room:
            return "within 2 std"
        if self.measure == TO_TARGET:
            return f"outside, {np.mean(self.there) / printed.mean:.2g} times"
        return f"outside, {away:+.2f}" if self.measure in PERCENT else f"outside, {away:+.2g}"


def rows_of(table: PaperTable, done: Sequence[Done]) -> Iterator[Row]:
    """Every cell of a table, and what helps to judge it."""
    for each in done:
        for measure in table.measures:
            found = measured(each.lines, measure, table.measured)
            for run, ours in zip(each.lines, found, strict=True):
                yield _row(each, run, measure, ours)
        for run in each.lines:
            if table.measured != "last" and ACCURACY in table.measures:
                yield _row(each, run, LAST, run.values(ACCURACY, "last"))
            if run.local and run.local != run.outcomes:
                yield _row(each, run, ALONE, run.alone())
            yield _row(each, run, GRADIENTS, [_per_round(run, "gradients")])
            yield _row(each, run, BYTES, [_per_round(run, "up") + _per_round(run, "down")])


def _row(each: Done, run: Ran, measure: str, ours: list[float]) -> Row:
    line = run.line
    paper = line.printed.get(measure, "")
    return Row(each.block.name, line.label, line.column, measure, paper, ours, run.collapsed)


def _per_round(run: Ran, what: str) -> float:
    clients, rounds = len(run.outcomes[0].samples), max(1, int(run.outcomes[0].rounds[-1]))
    return float(np.mean([getattr(o, what)[-1] for o in run.outcomes])) / clients / rounds


def spread(values: Sequence[float], measure: str = ACCURACY) -> str:
    """`93.10 ± 0.21`; nothing where there are no values."""
    there = [v for v in values if not math.isnan(v)]
    if not there:
        return ""
    text = "{:.2f}" if measure in (*PERCENT, LAST, ALONE) else "{:.3g}"
    if measure == TO_TARGET:
        text = "{:.0f}"
    mean = text.format(np.mean(there))
    return f"{mean} ± {text.format(np.std(there, ddof=1))}" if len(there) > 1 else mean


def values_text(method: Method) -> str:
    """The step sizes and strengths of a method."""
    options = method.to_config()
    numbers = {k: v for k, v in options.items() if k in SHOWN and isinstance(v, float) and v != 0}
    return ", ".join(f"{k} {v:.3g}" for k, v in numbers.items())


def order(rows: Sequence[Row]) -> str:
    """Whether methods come in the paper's order; rows of one measure and column."""
    there = [r for r in rows if r.there and (p := Printed.read(r.paper)) and not math.isnan(p.mean)]
    if len(there) < 2:
        return ""
    mean = {r.method: (Printed.read(r.paper) or Printed(0.0)).mean for r in there}
    theirs = sorted(there, key=lambda r: -mean[r.method])
    ours = sorted(there, key=lambda r: -float(np.mean(r.there)))
    names = lambda given: " > ".join(r.method for r in given)
    pairs = [
        (a, b) for a, b in itertools.combinations(theirs, 2) if mean[a.method] > mean[b.method]
    ]
    changed = [(a, b) for a, b in pairs if np.mean(a.there) < np.mean(b.there)]
    if not changed:
        return f"The order of methods is the paper's: {names(ours)}."
    clear = [f"{b.method} is before {a.method}" for a, b in changed if _clearly(b, a)]
    told = (
        f", {len(clear)} of them by more than 2 deviations: {'; '.join(clear)}"
        if clear
        else (", none of them by more than 2 deviations")
    )
    return (
        f"The order has changed: {names(ours)}; in the paper {names(theirs)}. Of {len(pairs)} pairs"
        f" {len(changed)} changed places{told}."
    )


def _clearly(first: Row, second: Row) -> bool:
    """Whether one is before the other by more than two deviations of the difference, both together
    at each seed.
    """
    ahead = np.array(first.ours) - np.array(second.ours)
    ahead = ahead[~np.isnan(ahead)]
    return len(ahead) > 1 and bool(np.mean(ahead) > 2 * np.std(ahead, ddof=1))


def markdown(table: PaperTable, done: Sequence[Done], command: str) -> str:
    counts = sorted({len(each.lines[0].outcomes) for each in done})
    seeds = " or ".join(map(str, counts)) + (" seed" if counts == [1] else " seeds")
    lines = [
        f"# {table.title}",
        "",
        f"`{command}`: {seeds}, accuracy on test data in %, ±"
        f" deviation over seeds; protocol {table.protocol}. Measured: {TOLD[table.measured]}.",
        "",
        f"![{table.title}](figure.svg)",
        "",
    ]
    quick = "--quick" in command
    if quick:
        lines += ["Few rounds and nothing tuned: these numbers say that it runs, no more.", ""]
    for each in done:
        lines += [f"## {each.block.title}", ""]
        if each.block.differs:
            lines += [f"Not as in the paper: {each.block.differs}.", ""]
        lines += _sheet(table, each, quick)
    return "\n".join(lines)


def _sheet(table: PaperTable, each: Done, quick: bool) -> list[str]:
    """A block's table in Markdown."""
    rows = list(rows_of(table, [each]))
    several = any(run.line.column for run in each.lines)
    columns = ["method", *([table.axis or "case"] if several else [])]
    cells = [[run.line.label, *([run.line.column] if several else [])] for run in each.lines]
    for measure in table.measures:
        mine = [r for r in rows if r.measure == measure]
        paper = any(r.paper for r in mine)
        columns += [f"{measure}, paper", measure, "verdict"] if paper else [measure]
        for cell, r in zip(cells, mine, strict=True):
            ours = spread(r.ours, measure) or (r.collapsed or "never" if r.ours else "")
            ours = f"{ours} ({r.collapsed})" if r.there and r.collapsed else ours
            cell += [r.paper, ours, "" if quick else r.verdict] if paper else [ours]
    for measure in (LAST, ALONE):
        mine = [r for r in rows if r.measure == measure]
        if mine:
            columns.append(measure)
            by_line = {(r.method, r.column): spread(r.ours) for r in mine}
            for run, cell in zip(each.lines, cells, strict=True):
                cell.append(by_line.get((run.line.label, run.line.column), ""))
    columns += [GRADIENTS, BYTES, "values"]
    for run, cell in zip(each.lines, cells, strict=True):
        sent = _per_round(run, "up") + _per_round(run, "down")
        cell += [f"{_per_round(run, 'gradients'):.1f}", bytes_text(sent)]
        cell.append(values_text(run.contender.method))
    text = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    text += ["| " + " | ".join(cell) + " |" for cell in cells]
    said = [] if quick else _orders(table, rows)
    return [*text, "", *said]


def _orders(table: PaperTable, rows: Sequence[Row]) -> list[str]:
    """What is to say of the order of methods, column by column."""
    if ACCURACY not in table.measures:
        return []
    found = []
    for column in dict.fromkeys(r.column for r in rows):
        said = order([r for r in rows if r.measure == ACCURACY and r.column == column])
        found += [f"{column}: {said}" if column else said, ""] if said else []
    return found


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


def write(table: PaperTable, done: Sequence[Done], out: Path, command: str) -> Path:
    """Experiment files, result.md, result.csv and figure.svg of a table."""
    folder = out / table.paper / table.folder
    make_folder(folder, force=True)
    for each in done:
        which = f" --protocol {table.protocol}" if table.protocol != "honest" else ""
        heads = [f"coterie reproduce {table.key} --block {each.block.name}{which}"]
        heads += variations(each)
        text = "".join(f"# {told}\n" for told in heads) + each.plan.experiment.to_toml()
        write_text(folder / f"{each.block.name}.toml", text)
    write_text(folder / "result.md", markdown(table, done, command))
    write_text(folder / "result.csv", table_csv(list(rows_of(table, done))))
    write_text(folder / "figure.svg", figure(table, done) + "\n")
    return folder


def variations(each: Done) -> list[str]:
    """What a line has that the experiment's file cannot say: training of its own, an attack."""
    found = []
    for line in each.block.lines:
        options = {f"training.{k}": v for k, v in line.training.items()}
        options |= {f"attack.{k}": v for k, v in (line.attack or {}).items()}
        told = ", ".join(f"{k} = {v!r}" for k, v in options.items())
        found += [f"{line.name}: {told}"] if told else []
    return found
