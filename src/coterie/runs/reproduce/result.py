"""What came out beside what a paper printed: rows, verdicts, and the files of a result."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from coterie.core.files import make_folder, write_text
from coterie.methods.base import Method
from coterie.report.attacked import unsent_text
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
from coterie.runs.reproduce.plan import study_of
from coterie.runs.reproduce.rows import Row, table_csv
from coterie.runs.reproduce.sheet import (
    CELLS,
    CURVES,
    TEXT,
    Sheet,
    curves_csv,
    curves_of,
    heading,
    kept,
)
from coterie.runs.reproduce.tuned import FOLDER

LAST = "accuracy, last round"
ALONE = "Local, same gradients"
GRADIENTS = "gradients a client and round"
BYTES = "bytes a client and round"
UNSENT = "lies not sent"
"""They held NaN or infinity."""
SHOWN = ("lr", "personal_lr", "hub_lr", "lam", "eta", "adapt_lr", "mu", "beta")
"""Options whose values a reader wants to see."""


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
            if any(o.unsent for o in run.outcomes):
                yield _row(each, run, UNSENT, [float(o.unsent) for o in run.outcomes])
            yield _row(each, run, GRADIENTS, [per_round(run, "gradients")])
            yield _row(each, run, BYTES, [per_round(run, "up") + per_round(run, "down")])


def _row(each: Done, run: Ran, measure: str, ours: list[float]) -> Row:
    line = run.line
    paper = line.printed.get(measure, "")
    return Row(each.block.name, line.label, line.column, measure, paper, ours, run.collapsed)


def per_round(run: Ran, what: str) -> float:
    """The mean over seeds; a run that collapsed counts with the rounds that it had."""
    clients = len(run.outcomes[0].samples)
    went = [o for o in run.outcomes if o.rounds[-1] > 0]
    found = [float(getattr(o, what)[-1]) / int(o.rounds[-1]) / clients for o in went]
    return float(np.mean(found)) if found else 0.0


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
    ours = sorted(there, key=lambda r: -r.mean)
    names = lambda given: " > ".join(r.method for r in given)
    entries = " > ".join(dict.fromkeys(_entry_name(r, theirs) for r in theirs))
    pairs = [
        (a, b) for a, b in itertools.combinations(theirs, 2) if mean[a.method] > mean[b.method]
    ]
    changed = [(a, b) for a, b in pairs if a.mean < b.mean]
    if not changed:
        return f"The order of methods is the paper's: {names(ours)}."
    clear = [f"{b.method} is before {a.method}" for a, b in changed if _clearly(b, a)]
    told = (
        f", {len(clear)} of them by more than 2 deviations: {'; '.join(clear)}"
        if clear
        else (", none of them by more than 2 deviations")
    )
    return (
        f"The order has changed: {names(ours)}; in the paper {entries}. Of {len(pairs)} pairs"
        f" {len(changed)} changed places{told}."
    )


def _entry_name(row: Row, rows: Sequence[Row]) -> str:
    """What the paper calls the method of this line."""
    same = [r for r in rows if r.entry == row.entry]
    alone = len({r.entry for r in rows if r.entry[0] == row.entry[0]}) == 1
    return row.entry[0] if alone and len(same) > 1 else same[0].method


def _clearly(first: Row, second: Row) -> bool:
    """Whether one is before the other by more than two deviations of the difference, both together
    at each seed.
    """
    ahead = np.array(first.ours) - np.array(second.ours)
    ahead = ahead[~np.isnan(ahead)]
    return len(ahead) > 1 and bool(np.mean(ahead) > 2 * np.std(ahead, ddof=1))


def sheet_of(table: PaperTable, each: Done, *, quick: bool = False) -> Sheet:
    """A block that was carried out, as it is shown."""
    lines = [heading(each.block), ""]
    if each.block.differs:
        lines += [f"Not as in the paper: {each.block.differs}.", ""]
    rows = list(rows_of(table, [each]))
    text = "\n".join([*lines, *_cells(table, each, rows, quick)]).rstrip()
    return Sheet(each.block, rows, list(curves_of(table, each)), f"{text}\n")


def markdown(table: PaperTable, sheets: Sequence[Sheet], command: str) -> str:
    counts = sorted({sheet.seeds for sheet in sheets})
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
    if "--quick" in command:
        lines += ["Few rounds and nothing tuned: these numbers say that it runs, no more.", ""]
    return "\n".join([*lines, *(sheet.text for sheet in sheets)])


def _cells(table: PaperTable, each: Done, rows: Sequence[Row], quick: bool) -> list[str]:
    """A block's table in Markdown."""
    several = any(run.line.column for run in each.lines)
    columns = ["method", *([table.axis or "case"] if several else [])]
    cells = [[run.line.label, *([run.line.column] if several else [])] for run in each.lines]
    for measure in table.measures:
        mine = [r for r in rows if r.measure == measure]
        paper = any(r.paper for r in mine)
        columns += [f"{measure}, paper", measure, "verdict"] if paper else [measure]
        for cell, r in zip(cells, mine, strict=True):
            ours = spread(r.ours, measure) or (r.collapsed or "never" if r.ours else "")
            ours = f"{ours} ({r.lost})" if r.lost else ours
            cell += [r.paper, ours, "" if quick else r.verdict] if paper else [ours]
    for measure, text_of in ((LAST, spread), (ALONE, spread), (UNSENT, unsent_text)):
        mine = [r for r in rows if r.measure == measure]
        if mine:
            columns.append(measure)
            by_line = {(r.method, r.column): text_of(r.ours) for r in mine}
            for run, cell in zip(each.lines, cells, strict=True):
                cell.append(by_line.get((run.line.label, run.line.column), ""))
    columns += [GRADIENTS, BYTES, "values"]
    for run, cell in zip(each.lines, cells, strict=True):
        sent = per_round(run, "up") + per_round(run, "down")
        cell += [f"{per_round(run, 'gradients'):.1f}", bytes_text(sent)]
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


def missing(table: PaperTable, out: Path) -> PaperTable:
    """A table without the blocks that have a result."""
    there = [sheet.block.name for sheet in kept(table, out / table.paper / table.folder, (), False)]
    blocks = tuple(block for block in table.blocks if block.name not in there)
    return dataclasses.replace(table, blocks=blocks)


def write(table: PaperTable, done: Sequence[Done], out: Path, asked: Sequence[str] = ()) -> Path:
    """Experiment files, result.md, result.csv, figure.svg and, where the figure has curves,
    curves.csv of a table. Blocks of an earlier command stay. `asked`: options to name beside the
    blocks.
    """
    folder = out / table.paper / table.folder
    make_folder(folder, force=True)
    which = [f"--protocol {table.protocol}"] if table.protocol != "honest" else []
    quick = "--quick" in asked
    for each in done:
        heads = [" ".join([f"coterie reproduce {table.key} --block {each.block.name}", *which])]
        heads += variations(each)
        if not quick and (study := study_of(each.block, Path())) is not None:
            heads.append(f"tuned: {FOLDER}/{study.folder.name}.json")
        text = "".join(f"# {told}\n" for told in heads) + each.plan.experiment.to_toml()
        write_text(folder / f"{each.block.name}.toml", text)
    fresh = [sheet_of(table, each, quick=quick) for each in done]
    names = [sheet.block.name for sheet in fresh]
    places = [block.name for block in table.blocks]
    sheets = sorted(
        [*fresh, *kept(table, folder, names, quick)],
        key=lambda sheet: places.index(sheet.block.name),
    )
    there = [sheet.block.name for sheet in sheets]
    whole = all(block.name in there for block in table.blocks if not block.long)
    blocks = [] if whole else [f"--block {name}" for name in there]
    command = " ".join([f"coterie reproduce {table.key}", *blocks, *which, *asked])
    points = [point for sheet in sheets for point in sheet.points]
    if points:
        write_text(folder / CURVES, curves_csv(points))
    write_text(folder / "figure.svg", figure(table, sheets) + "\n")
    write_text(folder / TEXT, markdown(table, sheets, command))
    write_text(folder / CELLS, table_csv([row for sheet in sheets for row in sheet.rows]))
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
