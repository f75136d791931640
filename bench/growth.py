"""How the time of a round grows: over clients N, cohort S, parameters d, dsub and local steps R,
ours and stacked PyTorch, each axis by itself.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from bench.contenders import CONTENDERS
from bench.problems import Problem
from bench.table import milliseconds
from bench.timing import Players, Row, machine, measure, say

FEDAVG = Problem("fedavg", "mlr", 100, 60, cohort=20, samples=40)
PFEDME = dataclasses.replace(FEDAVG, method="pfedme", inner=5)
LP = dataclasses.replace(PFEDME, method="lp-proj-2", dsub=50, features=784)

AXES: dict[str, tuple[str, tuple[int, ...], tuple[Problem, ...]]] = {
    "N, clients (20 of them train)": (
        "clients",
        (100, 1_000, 10_000, 100_000),
        (dataclasses.replace(FEDAVG, samples=4, batch=4),),
    ),
    "S, clients that train (of 1,000)": (
        "cohort",
        (10, 30, 100, 300, 1_000),
        tuple(dataclasses.replace(p, clients=1_000) for p in (FEDAVG, PFEDME)),
    ),
    "d, parameters of a model": (
        "features",
        (30, 100, 300, 1_000, 3_000),
        (FEDAVG, PFEDME),
    ),
    "dsub, numbers of a message": ("dsub", (5, 20, 80, 320), (LP,)),
    "R, mini-batches of a round": ("steps", (1, 4, 16, 64), (FEDAVG, PFEDME)),
}
ASKED = [c for c in CONTENDERS if c.name in ("ours", "stacked", "gram")]


def rival(row: Row) -> tuple[str, Any]:
    """The better of the stacked ones."""
    found = [e for e in (row.best("stacked"), row.best("gram")) if e is not None]
    best = min(found, key=lambda e: e.median)
    return best.contender.title, best


def growth(repeats: int, folder: Path) -> None:
    about, begun = machine(), time.perf_counter()
    lines, curves, loads = [], {}, []
    players = Players()
    try:
        for axis, (field, values, bases) in AXES.items():
            for base in bases:
                for value in values:
                    problem = dataclasses.replace(base, **{field: value})
                    spent = f"{time.perf_counter() - begun:.0f} s"
                    say(f"{base.method}, {field} = {value}, after {spent}")
                    row = measure(players, problem, ASKED, repeats, facts=False)
                    loads.append(row.load)
                    x = problem.parameters if field == "features" else value
                    name, theirs = rival(row)
                    mine = row.entries["ours"].median
                    curves.setdefault(axis, {}).setdefault(base.method, []).append(
                        (x, mine, theirs.median)
                    )
                    lines.append(
                        f"| {axis} | {base.method} | {x:,} | {milliseconds(mine)} |"
                        f" {milliseconds(theirs.median)} ({name}, {theirs.threads}) |"
                        f" {row.ratio(theirs)[0]:.2g} |"
                    )
    finally:
        players.close()
    text = [
        "# How the time of a round grows",
        "",
        f"`python -m bench growth`, {(time.perf_counter() - begun) / 60:.0f} minutes, medians of"
        f" {repeats} repeats in turn; logistic regression, 20 of 100 clients, 60 features, 20"
        " mini-batches of 20 (lp-proj-2: 784 features) where the axis is another:",
        "",
        *(f"- {line}" for line in about),
        f"- load while it ran: {min(loads):.1f} to {max(loads):.1f}",
        "",
        "![Milliseconds a round](growth.svg)",
        "",
        "| axis | method | value | coterie, ms | stacked PyTorch, ms (threads) | ratio |",
        "|---|---|---|---|---|---|",
        *lines,
    ]
    (folder / "growth.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    draw(curves, folder / "growth.svg")
    print("\n".join(text))


def draw(curves: dict[str, dict[str, list[tuple[float, float, float]]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "bench"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(curves), figsize=(3.1 * len(curves), 3.2))
    colours = {"fedavg": "tab:blue", "pfedme": "tab:orange", "lp-proj-2": "tab:green"}
    for panel, (axis, methods) in zip(panels, curves.items(), strict=True):
        for method, points in methods.items():
            x = [p[0] for p in points]
            ours, theirs = ([1e3 * p[i] for p in points] for i in (1, 2))
            panel.loglog(x, ours, "o-", color=colours[method], label=f"{method}, coterie")
            panel.loglog(x, theirs, "s--", color=colours[method], label="stacked PyTorch")
        panel.set_xlabel(axis)
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.legend(fontsize=6)
    panels[0].set_ylabel("ms a round")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
