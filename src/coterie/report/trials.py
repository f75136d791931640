"""The trials of tuning as tables and a figure."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.core.metrics import Metric
from coterie.report.figures import pyplot, svg

COLUMNS = ("method", "trial", "state", "score", "round", "steps", "seconds")


@dataclasses.dataclass(frozen=True)
class Trial:
    """One set of values that was tried."""

    number: int
    params: dict[str, Any]
    state: str
    """"complete", "pruned", "cut" (time was up) or "failed"."""
    score: float
    """Mean validation score; NaN if it failed."""
    rounds: tuple[int, ...]
    """The round that counted, of every run of the trial."""
    steps: float
    """Gradient steps per client."""
    seconds: float
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class TrialsOf:
    """The trials of one method, which of them is the best, and the scale of each option."""

    label: str
    trials: list[Trial]
    best: int
    logarithmic: dict[str, bool]


def value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def params_text(params: dict[str, Any]) -> str:
    """`lr = 0.05, eta = 0.01`."""
    return ", ".join(f"{key} = {value_text(value)}" for key, value in params.items())


def _cells(label: str, trial: Trial, metric: Metric | None = None) -> list[str]:
    """Of a trial; its score, or the value of the metric."""
    value = trial.score if metric is None else metric.value(trial.score)
    score = "" if np.isnan(value) else f"{value:z.6f}"
    rounds = " ".join(map(str, trial.rounds))
    return [
        label,
        str(trial.number),
        trial.state,
        score,
        rounds,
        f"{trial.steps:.1f}",
        f"{trial.seconds:.2f}",
    ]


def trials_csv(found: Sequence[TrialsOf]) -> str:
    """All trials, a column for every option that was searched. Of scores larger is better: errors
    are negated.
    """
    options = list(dict.fromkeys(key for f in found for t in f.trials for key in t.params))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *options, "reason"])
    for f in found:
        for trial in f.trials:
            values = [trial.params.get(key, "") for key in options]
            writer.writerow([*_cells(f.label, trial), *values, trial.reason])
    return out.getvalue()


def trials_markdown(found: Sequence[TrialsOf], head: str, metric: Metric) -> str:
    """A table per method, in values of the metric; the best trial is set in bold."""
    parts = [head]
    for f in found:
        names = ["trial", "state", f"validation {metric.title}", "round", "steps", "values", ""]
        lines = [names, ["---"] * len(names)]
        for trial in f.trials:
            _, number, state, score, rounds, steps, _ = _cells(f.label, trial, metric)
            mark = "**" if trial.number == f.best else ""
            values = params_text(trial.params)
            line = [number, state, score, rounds, steps, values]
            lines.append([*(f"{mark}{cell}{mark}" if cell else "" for cell in line), trial.reason])
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"## {f.label}\n\n{table}\n")
    return "\n".join(parts)


def trials_figure(found: Sequence[TrialsOf], metric: Metric) -> str:
    """For every method: the metric trial by trial with the best so far, and over each option, as
    SVG.
    """
    plt = pyplot()
    most = max((len(_searched(f)) for f in found), default=0)
    figure, axes = plt.subplots(
        max(1, len(found)),
        1 + most,
        figsize=(3.0 * (1 + most), 2.3 * max(1, len(found))),
        squeeze=False,
        layout="constrained",
    )
    for row, f in zip(axes, found, strict=True):
        there = [t for t in f.trials if not np.isnan(t.score)]
        scores = metric.value(np.array([t.score for t in there]))
        colours = ["C0" if t.state == "complete" else "0.65" for t in there]
        best = next((t for t in there if t.number == f.best), None)
        row[0].scatter([t.number for t in there], scores, c=colours, s=14)
        ended = [t for t in there if t.state == "complete"]
        if ended:
            row[0].step(
                [t.number for t in ended],
                metric.value(np.maximum.accumulate([t.score for t in ended])),
                where="post",
                color="C1",
                linewidth=1.2,
            )
        row[0].set_xlabel("trial")
        row[0].set_ylabel(f"{f.label}\nvalidation {metric.title}")
        searched = _searched(f)
        for axis, name in zip(row[1:], searched, strict=False):
            values = [t.params[name] for t in there]
            plain = all(isinstance(v, (int, float)) for v in values)
            axis.scatter(values if plain else [str(v) for v in values], scores, c=colours, s=14)
            if best is not None:
                value = best.params[name]
                at = metric.value(best.score)
                axis.scatter([value if plain else str(value)], [at], c="C1", s=40, zorder=3)
            if plain and f.logarithmic.get(name):
                axis.set_xscale("log")
            axis.set_xlabel(name)
        for axis in row[1 + len(searched) :]:
            axis.axis("off")
    return svg(figure)


def _searched(f: TrialsOf) -> list[str]:
    return list(f.trials[0].params) if f.trials else []
