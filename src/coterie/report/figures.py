"""Figures as SVG text, for the HTML page."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from coterie.report.budget import mean_scores
from coterie.report.comparison import Comparison


def svg(figure: Any) -> str:
    import matplotlib.pyplot as plt

    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg", force=False)
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "svg.hashsalt": "coterie",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
        }
    )
    return plt


def _unit(comparison: Comparison) -> tuple[float, str]:
    """What scores are multiplied by to be the values that people know, and what these are."""
    metric = comparison.metric
    percent = " (%)" if metric.percent else ""
    better = "" if metric.higher else ", smaller is better"
    return metric.sign * metric.unit, f"test {metric.title}{percent}{better}"


def over_rounds_and_bytes(comparison: Comparison) -> tuple[str, str]:
    """Clients' mean score over rounds, and over the bytes that a client has sent and received."""
    plt = pyplot()
    unit, label = _unit(comparison)
    n = comparison.federation.clients
    svgs = []
    for what in ("rounds", "bytes"):
        figure, axes = plt.subplots(figsize=(6.2, 3.8))
        for i, entry in enumerate(comparison.entries):
            whole = [o for o in entry.outcomes if not o.collapsed]
            if not whole:
                continue
            curves = np.array([mean_scores(o, comparison.members) for o in whole])
            x = (
                whole[0].rounds
                if what == "rounds"
                else np.mean([(o.up + o.down) / n for o in whole], axis=0)
            )
            colour = f"C{i % 10}"
            if what == "bytes" and x[-1] == 0:
                axes.axhline(
                    unit * curves[:, -1].mean(),
                    color=colour,
                    linestyle=":",
                    label=f"{entry.label} (0 bytes, end)",
                )
                continue
            keep = slice(None) if what == "rounds" else slice(1, None)
            mean, std = unit * curves.mean(0), abs(unit) * curves.std(0)
            axes.plot(x[keep], mean[keep], color=colour, label=entry.label, linewidth=1.6)
            if len(curves) > 1:
                axes.fill_between(
                    x[keep],
                    (mean - std)[keep],
                    (mean + std)[keep],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
        if what == "bytes":
            axes.set_xscale("log")
        else:  # the untrained models would squeeze everything else
            low = min(
                (
                    mean_scores(o, comparison.members)[1:].min()
                    for e in comparison.entries
                    for o in e.outcomes
                    if len(o.rounds) > 1
                ),
                default=0,
            )
            near, far = unit * low, axes.get_ylim()[unit > 0]
            end = near - 0.05 * (far - near)
            axes.set_ylim(**{"bottom" if unit > 0 else "top": end})
        axes.set_xlabel("round" if what == "rounds" else "bytes per client so far, up and down")
        axes.set_ylabel(label)
        axes.legend(fontsize=8, frameon=False)
        svgs.append(svg(figure))
    return svgs[0], svgs[1]


def accuracy_and_fairness(comparison: Comparison) -> str:
    """Each method as a point: the clients' mean score against how much it varies between them
    (further left is fairer).
    """
    plt = pyplot()
    unit, label = _unit(comparison)
    figure, axes = plt.subplots(figsize=(6.2, 3.8))
    for i, entry in enumerate(e for e in comparison.entries if not e.collapsed):
        x = [abs(unit) * float(np.nanstd(o.last())) for o in entry.outcomes]
        y = [unit * float(np.nanmean(o.last())) for o in entry.outcomes]
        axes.scatter(x, y, color=f"C{i % 10}", s=18, alpha=0.5)
        axes.scatter(
            [np.mean(x)], [np.mean(y)], color=f"C{i % 10}", s=50, marker="D", label=entry.label
        )
    axes.set(
        xlabel=f"standard deviation between clients ({'points' if abs(unit) == 100 else 'value'})",
        ylabel=label,
    )
    axes.legend(frameon=False, fontsize=7)
    return svg(figure)


def spread_over_clients(comparison: Comparison) -> str:
    """Every client's score at the end, method by method (mean over seeds), with the quartiles."""
    plt = pyplot()
    unit, label = _unit(comparison)
    entries = [e for e in comparison.entries if not e.collapsed]
    figure, axes = plt.subplots(figsize=(max(6.2, 0.9 * len(entries)), 3.8))
    rng = np.random.default_rng(0)
    for i, entry in enumerate(entries):
        values = unit * np.mean([o.last() for o in entry.outcomes], axis=0)
        values = values[~np.isnan(values)]
        axes.boxplot(
            [values], positions=[i], widths=0.5, showfliers=False, medianprops={"color": "black"}
        )
        axes.scatter(
            i + rng.uniform(-0.16, 0.16, len(values)),
            values,
            s=9,
            color=f"C{i % 10}",
            alpha=0.7,
            linewidth=0,
            zorder=3,
        )
    axes.set_xticks(range(len(entries)), [e.label for e in entries], rotation=20, ha="right")
    axes.set_ylabel(label)
    return svg(figure)


def gain_over_local(comparison: Comparison) -> str:
    """Each client's gain over training alone, sorted: above zero federating helps, below it
    hurts.
    """
    plt = pyplot()
    unit = comparison.metric.unit
    figure, axes = plt.subplots(figsize=(6.2, 3.8))
    for i, entry in enumerate(comparison.entries):
        if entry.local is None or entry.collapsed or entry.outcomes is entry.local:
            continue
        gains = unit * np.mean(
            [o.last() - lo.last() for o, lo in zip(entry.outcomes, entry.local, strict=True)],
            axis=0,
        )
        gains = np.sort(gains[~np.isnan(gains)])
        axes.plot(
            np.linspace(0, 100, len(gains)),
            gains,
            color=f"C{i % 10}",
            label=entry.label,
            linewidth=1.6,
        )
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("clients, sorted by gain (%)")
    axes.set_ylabel("gain over Local (points)" if unit == 100 else "gain over Local")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, frameon=False)
    return svg(figure)
