"""A block as it is shown: its cells, its curves, and its part of result.md.

A command carries out some blocks of a table. The others stay as an earlier command left them, maybe
on another day and machine, where nothing of their runs is left: so all that a table or a figure
shows is made of sheets, and sheets can be read from the files of a result. A block whose experiment
has been defined anew since is not kept.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.core.errors import InvalidInput
from coterie.report.budget import spent
from coterie.runs.experiment import Experiment
from coterie.runs.reproduce.base import ACCURACY, TRAIN_LOSS, Block, Line, PaperTable
from coterie.runs.reproduce.carry_out import Done
from coterie.runs.reproduce.measures import NUMBER, Ran, mean_curve
from coterie.runs.reproduce.plan import study_of
from coterie.runs.reproduce.rows import Row, read_csv

CELLS, CURVES, TEXT = "result.csv", "curves.csv", "result.md"
POINTS = 60
"""A curve has about so many points in the file, more of them where it begins."""


class Point(NamedTuple):
    """A measure of a line at an evaluation: mean and deviation over seeds that did not collapse."""

    block: str
    method: str
    column: str
    measure: str
    round: int
    sent: float
    """Numbers sent by and to all clients so far."""
    mean: float
    deviation: float


class Sheet(NamedTuple):
    """A block with what came out."""

    block: Block
    rows: list[Row]
    points: list[Point]
    text: str
    """Markdown, with its heading."""

    def values(self, line: Line, measure: str) -> list[float]:
        """A measure of a line at every seed."""
        key = (line.label, line.column, measure)
        return next((r.ours for r in self.rows if (r.method, r.column, r.measure) == key), [])

    def curve(self, line: Line, measure: str) -> list[Point]:
        key = (line.label, line.column, measure)
        return [p for p in self.points if (p.method, p.column, p.measure) == key]

    @property
    def seeds(self) -> int:
        return max((len(r.ours) for r in self.rows), default=0)


def heading(block: Block) -> str:
    return f"## {block.title}"


def curves_of(table: PaperTable, each: Done) -> Iterator[Point]:
    """What a figure of curves is drawn from."""
    if table.drawn not in ("curves", "bytes"):
        return
    wanted = [m for m in table.measures if m in (ACCURACY, TRAIN_LOSS)] or [ACCURACY]
    for run in each.lines:
        whole = [i for i, o in enumerate(run.outcomes) if not o.collapsed]
        if not whole:
            continue
        first = run.outcomes[whole[0]]
        sent = np.mean([spent(run.outcomes[i]) / NUMBER for i in whole], axis=0)
        for measure in wanted:
            found = [c for i in whole if (c := _over(run, i, measure)) is not None]
            if not found:
                continue
            mean, wide = np.mean(found, axis=0), np.std(found, axis=0)
            for at in _thinned(len(first.rounds)):
                yield Point(
                    *(each.block.name, run.line.label, run.line.column, measure),
                    *(int(first.rounds[at]), float(sent[at]), float(mean[at]), float(wide[at])),
                )


def _over(run: Ran, seed: int, measure: str) -> Any:
    """A measure at every evaluation; None if there is none."""
    outcome, counts = run.outcomes[seed], run.counts[seed]
    if measure == ACCURACY:
        return mean_curve(outcome, run.view, counts)
    losses = outcome.train_losses.get(run.view)
    return None if losses is None else np.nanmean(losses[:, counts], axis=1)


def _thinned(count: int) -> list[int]:
    """
    >>> _thinned(4)
    [0, 1, 2, 3]
    >>> some = _thinned(201)
    >>> some[:4], some[-1], len(some) <= POINTS
    ([0, 1, 2, 3], 200, True)
    """
    if count <= POINTS:
        return list(range(count))
    early = range(POINTS // 3)
    late = np.linspace(POINTS // 3, count - 1, POINTS - POINTS // 3)
    return [*early, *dict.fromkeys(round(x) for x in late)]


def curves_csv(points: Sequence[Point]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(Point._fields)
    for p in points:
        numbers = (f"{p.sent:.6g}", f"{p.mean:.6g}", f"{p.deviation:.3g}")
        writer.writerow((*p[:5], *numbers))
    return out.getvalue()


def read_curves(text: str) -> list[Point]:
    """The inverse of `curves_csv`."""
    found = []
    for given in csv.reader(io.StringIO(text)):
        if tuple(given) != Point._fields:
            block, method, column, measure, at, sent, mean, deviation = given
            numbers = (int(at), float(sent), float(mean), float(deviation))
            found.append(Point(block, method, column, measure, *numbers))
    return found


def kept(table: PaperTable, folder: Path, without: Sequence[str], quick: bool) -> list[Sheet]:
    """Blocks that an earlier command carried out, from the files of its result."""
    if not (folder / CELLS).is_file() or not (folder / TEXT).is_file():
        return []
    rows = read_csv((folder / CELLS).read_text(encoding="utf-8"))
    path = folder / CURVES
    points = read_curves(path.read_text(encoding="utf-8")) if path.is_file() else []
    texts = _parts((folder / TEXT).read_text(encoding="utf-8"))
    found = []
    for block in table.blocks:
        text = texts.get(heading(block))
        mine = [r for r in rows if r.block == block.name]
        if block.name in without or text is None or not mine or not _same(block, folder, quick):
            continue
        found.append(Sheet(block, mine, [p for p in points if p.block == block.name], text))
    return found


def _parts(text: str) -> dict[str, str]:
    """A page's sections, by heading."""
    parts = text.split("\n## ")[1:]
    return {f"## {part.splitlines()[0]}": f"## {part.rstrip()}\n" for part in parts}


def _same(block: Block, folder: Path, quick: bool) -> bool:
    """Whether a block is still defined as it was when it was carried out."""
    path = folder / f"{block.name}.toml"
    if not path.is_file():
        return False
    written = path.read_text(encoding="utf-8")
    if not quick and _tuned_anew(block, written):
        return False
    before = Experiment.from_config(tomllib.loads(written))
    now = Experiment.from_config({**block.settings(1, quick=quick), "methods": block.methods()})
    alike = ("data", "model", "graph", "training", "resplit")
    if any(getattr(before, name) != getattr(now, name) for name in alike):
        return False
    then = [c.to_config() for c in before.contenders]
    for line in block.lines:
        given = {k: v for k, v in line.method.items() if k not in block.searched(line)}
        if not any(_has(method, given | line.changes) for method in then):
            return False
    return True


def _tuned_anew(block: Block, written: str) -> bool:
    """Whether something else is searched now, or with another budget, than the file says."""
    named = re.search(r"^# tuned: (?:\S*/)?(\S+)\.json$", written, re.MULTILINE)
    if named is None:
        return False
    try:
        study = study_of(block, Path())
    except InvalidInput:  # its data are not here
        return False
    return study is not None and study.folder.name != named[1]


def _has(method: Any, options: Any) -> bool:
    """Whether a method has these options, tables within tables."""
    if not isinstance(options, dict):
        return bool(method == options)
    return isinstance(method, dict) and all(
        k in method and _has(method[k], v) for k, v in options.items()
    )
