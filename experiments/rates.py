"""Shared by the experiments on convergence rates: slopes on log-log scales, tables, figures.

Each of them follows coterie's own methods round by round (`coterie.engine.iterates`), many seeds
from one first model, in float64.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables_to_csv import as_csv

Floats = NDArray[np.float64]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")


def slope(x: Any, y: Any) -> float:
    """Of log y over log x, least squares."""
    return float(np.polyfit(np.log(np.asarray(x, float)), np.log(np.asarray(y, float)), 1)[0])


@dataclasses.dataclass(frozen=True)
class Sweep:
    """One quantity measured while one number grows."""

    name: str
    over: str
    """What grows."""
    x: Sequence[float]
    runs: Floats
    """Measured: (values of x, seeds)."""
    said: str
    """The exponent that the theorem gives."""
    bound: Sequence[float] | None = None
    """The theorem's bound with all its constants, where it has been worked out."""

    @property
    def mean(self) -> Floats:
        return np.asarray(self.runs.mean(1))

    @property
    def error(self) -> Floats:
        """Standard error of the mean over seeds; 0 where nothing is random."""
        count = self.runs.shape[1]
        return np.asarray(self.runs.std(1, ddof=1) / np.sqrt(count) if count > 1 else 0 * self.mean)

    def fitted(self) -> str:
        """The slope of the mean, ± the standard deviation over 400 draws of seeds."""
        found, count = slope(self.x, self.mean), self.runs.shape[1]
        if count == 1:
            return f"{found:.2f}"
        rng = np.random.default_rng(0)
        drawn = [
            slope(self.x, self.runs[:, rng.integers(0, count, count)].mean(1)) for _ in range(400)
        ]
        return f"{found:.2f} ± {np.std(drawn):.2f}"

    def row(self) -> str:
        bound = "–" if self.bound is None else f"{slope(self.x, self.bound):.2f}"
        span = f"{self.x[0]:g} … {self.x[-1]:g}"
        values = f"{self.mean[0]:.3g} → {self.mean[-1]:.3g}"
        return (
            f"| {self.name} | {self.over} = {span} | {values} | {self.fitted()} | {self.said} |"
            f" {bound} |"
        )


HEAD = [
    "| what | over | measured | slope | theorem | slope of its bound here |",
    "|---|---|---|---|---|---|",
]


def write(folder: Path, title: str, lines: Sequence[str], sweeps: Sequence[Sweep]) -> None:
    """result.md, result.csv (its table), points.csv and figure.svg; {table} in the lines is where
    the slopes stand.
    """
    command = f"`python {folder.relative_to(folder.parents[2])}/experiment.py`"
    rows = [*HEAD, *(s.row() for s in sweeps)]
    body = "\n".join(lines).replace("{table}", "\n".join(rows))
    text = f"# {title}\n\n{command}; every point is in points.csv, figure.svg draws them.\n\n{body}"
    page = folder / "result.md"
    page.write_text(text.rstrip() + "\n", encoding="utf-8")
    page.with_suffix(".csv").write_text(as_csv(page), encoding="utf-8")
    with (folder / "points.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["what", "over", "x", "mean", "standard_error", "bound"])
        for s in sweeps:
            bound = s.bound if s.bound is not None else [None] * len(s.x)
            for x, mean, error, most in zip(s.x, s.mean, s.error, bound, strict=True):
                told = "" if most is None else f"{most:.6g}"
                table.writerow([s.name, s.over, f"{x:g}", f"{mean:.6g}", f"{error:.3g}", told])
    _figure(folder / "figure.svg", sweeps)
    print(text)


def _figure(path: Path, sweeps: Sequence[Sweep]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rates"
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(s.over for s in sweeps))
    made, axes = plt.subplots(1, len(kinds), figsize=(3.8 * len(kinds), 3.4), squeeze=False)
    for axis, kind in zip(axes[0], kinds, strict=True):
        for colour, s in zip(COLOURS, (s for s in sweeps if s.over == kind), strict=False):
            label = f"{s.name} ({slope(s.x, s.mean):.2f})"
            axis.errorbar(s.x, s.mean, s.error, fmt="o-", ms=3, lw=1, color=colour, label=label)
        axis.set(xscale="log", yscale="log", xlabel=kind)
        axis.legend(fontsize=6)
    axes[0][0].set_ylabel("error (slope in brackets)")
    made.tight_layout()
    made.savefig(path, metadata={"Date": None})
