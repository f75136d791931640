"""What came out beside what a paper printed: tables, verdicts and a figure."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from coterie.core.files import make_folder, write_text
from coterie.methods.base import Method
from coterie.methods.local import Local, equal_compute
from coterie.report.figures import pyplot, svg
from coterie.report.outcome import Outcome
from coterie.report.units import bytes_text
from coterie.runs.reproduce.base import PaperTable, Printed
from coterie.runs.reproduce.carry_out import Done

COLUMNS = (
    *("method", "paper", "ours, as the paper measures", "ours, last round, mean over clients"),
    *("verdict", "Local, same gradients", "gradients a client and round"),
    *("bytes a client and round", "values"),
)
MEASURED = {
    "best": "the best round on test data, clients counted by their test samples",
    "last": "the last round, mean over clients",
}


class Measured(NamedTuple):
    """A line with all its numbers; scores in per cent, one for every seed."""

    label: str
    paper: Printed | None
    as_paper: list[float]
    honest: list[float]
    local: list[float]
    gradients: float
    bytes: float
    values: str
    collapsed: str | None

    @property
    def verdict(self) -> str:
        """Whether ours is within two deviations of the paper's, both added."""
        if self.collapsed:
            return "collapsed"
        if self.paper is None:
            return ""
        away = float(np.mean(self.as_paper)) - self.paper.mean
        ours = float(np.std(self.as_paper, ddof=1)) if len(self.as_paper) > 1 else 0.0
        room = 2 * math.hypot(ours, self.paper.spread or 0.0)
        return "within 2 std" if abs(away) <= room else f"outside, {away:+.2f}"


def scores(outcome: Outcome, view: str | None, how: str) -> float:
    """One number of a run, in per cent."""
    every = outcome.scores[view or outcome.view]
    if how == "last":
        return 100 * float(np.nanmean(every[-1]))
    there = ~np.isnan(every[-1])
    means = every[:, there] @ outcome.samples[there] / outcome.samples[there].sum()
    return 100 * float(means.max())


def measured(table: PaperTable, done: Done) -> list[Measured]:
    """Every line of a block."""
    found, entries = [], done.comparison.entries
    clients = done.comparison.federation.clients
    cohort = done.experiment.training.cohort_size(done.comparison.federation)
    everybody = cohort == clients
    for line, place in zip(done.block.lines, done.places, strict=True):
        entry = entries[place]
        outcomes, method = entry.outcomes, entry.outcomes[0].method
        whole = [o for o in outcomes if not o.collapsed]
        work = _work(method, everybody)
        alone = [e.outcomes for e in entries if isinstance(e.outcomes[0].method, Local)]
        same = next((o for o in alone if _work(o[0].method, everybody) == work), [])
        rounds = max(1, int(outcomes[0].rounds[-1]))
        options = method.to_config()
        shown = [f"{k} {v:.3g}" for k, v in options.items() if isinstance(v, float) and v != 0]
        wanted = {k for k in options if k in ("lr", "personal_lr", "lam", "eta", "adapt_lr", "mu")}
        found.append(
            Measured(
                line.label,
                Printed.read(line.paper),
                [scores(o, line.view, table.measured) for o in whole],
                [scores(o, line.view, "last") for o in whole],
                [scores(o, None, "last") for o in same if not o.collapsed],
                float(np.mean([o.gradients[-1] for o in outcomes])) / clients / rounds,
                float(np.mean([o.up[-1] + o.down[-1] for o in outcomes])) / clients / rounds,
                ", ".join(s for s in shown if s.split()[0] in wanted),
                entry.collapsed,
            )
        )
    return found


def _work(method: Method, everybody: bool) -> tuple[Any, ...]:
    """Gradient steps, and who takes them where that is not everybody."""
    work = equal_compute(method).work()
    return work.steps, work.epochs, None if everybody else work.trains


def spread(values: list[float]) -> str:
    if not values:
        return ""
    text = f"{np.mean(values):.2f}"
    return f"{text} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else text


def order(lines: list[Measured]) -> str:
    """Whether methods come in the paper's order."""
    there = [m for m in lines if m.paper is not None and m.as_paper]
    if len(there) < 2:
        return ""
    theirs = sorted(there, key=lambda m: -m.paper.mean if m.paper else 0.0)
    ours = sorted(there, key=lambda m: -float(np.mean(m.as_paper)))
    names = lambda given: " > ".join(m.label for m in given)
    if [m.label for m in theirs] == [m.label for m in ours]:
        return f"The order of methods is the paper's: {names(ours)}."
    first = "" if theirs[0] is ours[0] else f" The paper's first, {theirs[0].label}, is not ours."
    return f"The order has changed: {names(ours)}; in the paper {names(theirs)}.{first}"


def cells(line: Measured, printed: str, *, quick: bool = False) -> list[str]:
    return [
        line.label,
        printed,
        spread(line.as_paper),
        spread(line.honest),
        "" if quick else line.verdict,
        spread(line.local),
        f"{line.gradients:.1f}",
        bytes_text(line.bytes),
        line.values,
    ]


def markdown(table: PaperTable, done: list[Done], command: str) -> str:
    seeds = len(done[0].comparison.entries[0].outcomes) if done else 0
    lines = [
        f"# {table.title}",
        "",
        f"`{command}`: {seeds} seed{'s' if seeds != 1 else ''}, test accuracy in %, ± deviation"
        f" over seeds. The paper measures {MEASURED[table.measured]}.",
        "",
    ]
    quick = "--quick" in command
    if quick:
        lines += ["Few rounds and nothing tuned: these numbers say that it runs, no more.", ""]
    for each in done:
        found = measured(table, each)
        lines += [f"## {each.block.title}", ""]
        if each.block.differs:
            lines += [f"Not as in the paper: {each.block.differs}.", ""]
        lines += ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
        for line, m in zip(each.block.lines, found, strict=True):
            lines.append("| " + " | ".join(cells(m, line.paper, quick=quick)) + " |")
        said = "" if quick else order(found)
        lines += ["", *([said, ""] if said else [])]
    return "\n".join(lines)


def table_csv(table: PaperTable, done: list[Done]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("block", "method", "seed", "paper", "as the paper measures", "last round"))
    for each in done:
        for line, m in zip(each.block.lines, measured(table, each), strict=True):
            for seed, (a, b) in enumerate(zip(m.as_paper, m.honest, strict=True)):
                writer.writerow(
                    (each.block.name, m.label, seed, line.paper, f"{a:.4f}", f"{b:.4f}")
                )
    return out.getvalue()


def figure(table: PaperTable, done: list[Done]) -> str:
    """A panel for each block: the paper's numbers as open circles, ours as filled ones."""
    plt = pyplot()
    tallest = max(len(each.block.lines) for each in done)
    size = (3.4 * min(len(done), 4), (0.32 * tallest + 0.9) * math.ceil(len(done) / 4))
    made, axes = plt.subplots(
        math.ceil(len(done) / 4), min(len(done), 4), figsize=size, squeeze=False
    )
    for axis in axes.flat[len(done) :]:
        axis.axis("off")
    for axis, each in zip(axes.flat, done, strict=False):
        found = measured(table, each)
        for y, m in enumerate(found):
            if m.paper is not None:
                axis.errorbar(
                    m.paper.mean,
                    y - 0.12,
                    xerr=m.paper.spread,
                    fmt="o",
                    mfc="white",
                    color="#D55E00",
                    label="paper" if y == 0 else None,
                )
            if m.as_paper:
                wide = np.std(m.as_paper, ddof=1) if len(m.as_paper) > 1 else None
                axis.errorbar(
                    np.mean(m.as_paper),
                    y + 0.12,
                    xerr=wide,
                    fmt="o",
                    color="#0072B2",
                    label="ours" if y == 0 else None,
                )
        axis.set_yticks(range(len(found)), [m.label for m in found], fontsize=7)
        axis.invert_yaxis()
        axis.set_title(each.block.title, fontsize=8)
        axis.set_xlabel("test accuracy (%)", fontsize=7)
    axes.flat[0].legend(fontsize=7)
    made.tight_layout()
    return svg(made)


def write(table: PaperTable, done: list[Done], out: Path, command: str) -> Path:
    """experiment files, result.md, result.csv and figure.svg of a table."""
    folder = out / table.paper / table.name
    make_folder(folder, force=True)
    for each in done:
        write_text(folder / f"{each.block.name}.toml", each.experiment.to_toml())
    write_text(folder / "result.md", markdown(table, done, command))
    write_text(folder / "result.csv", table_csv(table, done))
    write_text(folder / "figure.svg", figure(table, done) + "\n")
    return folder
