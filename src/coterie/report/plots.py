"""Figures for papers: `coterie plot` writes them as vector graphics, one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import writing
from coterie.coupling.graph import Graph
from coterie.report.attacked import Grid, judged
from coterie.report.comparison import Comparison, Entry
from coterie.report.drawn import curve_of
from coterie.report.figures import look, pyplot
from coterie.report.layout import places
from coterie.report.units import bytes_text

OVER = ("rounds", "bytes", "gradients")
FORMATS = ("pdf", "svg", "png", "eps")


@dataclasses.dataclass(frozen=True)
class Wanted:
    """How a figure is wanted."""

    width: float = 5.2
    """Inches; 3.3 is a column of most papers."""
    over: str = "rounds"
    method: str | None = None
    """Of which method the graph is; None: the first that has one."""

    def __post_init__(self) -> None:
        if self.over not in OVER:
            raise unknown("the axis", self.over, OVER)
        if not 1 <= self.width <= 50:
            raise InvalidInput(f"the width is {self.width:g} inches, but must be between 1 and 50.")


Plot = Callable[[Comparison, Wanted, Mapping[str, Graph]], Any]
PLOTS: dict[str, Plot] = {}


def _plot(name: str) -> Callable[[Plot], Plot]:
    def add(function: Plot) -> Plot:
        PLOTS[name] = function
        return function

    return add


def plot(
    comparison: Comparison, name: str, wanted: Wanted, graphs: Mapping[str, Graph] | None = None
) -> Any:
    """A figure of a comparison by its name."""
    if name not in PLOTS:
        raise unknown("the figure", name, [*PLOTS, "attack"])
    return PLOTS[name](comparison, wanted, graphs or {})


def check_file(path: Path) -> None:
    """Refuse what is not a kind of figure, before anything is read."""
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise InvalidInput(
            f"the figure is {str(path)!r}, but must end with one of"
            f" {', '.join('.' + name for name in FORMATS)}."
        )


def save(figure: Any, path: Path) -> None:
    """Write a figure; the same numbers give the same file."""
    import matplotlib.pyplot as plt

    kind = path.suffix.lower().removeprefix(".")
    undated: dict[str, Any] = {
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }.get(kind, {})
    with writing(path) as temporary:
        figure.savefig(temporary, format=kind, bbox_inches="tight", dpi=300, metadata=undated)
    plt.close(figure)


def unit_and_label(comparison: Comparison) -> tuple[float, str]:
    """What scores are multiplied by to be the values that people know, and what these are."""
    metric = comparison.metric
    percent = " (%)" if metric.percent else ""
    better = "" if metric.higher else ", smaller is better"
    return metric.sign * metric.unit, f"test {metric.title}{percent}{better}"


def _axes(wanted: Wanted, tall: float = 0.62) -> tuple[Any, Any]:
    plt = pyplot()
    return plt.subplots(figsize=(wanted.width, tall * wanted.width))


def _whole(comparison: Comparison) -> list[tuple[int, Entry]]:
    return [(i, e) for i, e in enumerate(comparison.entries) if not e.collapsed]


@_plot("curves")
def curves(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """Clients' mean score over rounds, or over what a client has sent and received or computed;
    the band is the standard deviation over seeds.
    """
    unit, label = unit_and_label(comparison)
    n = comparison.federation.clients
    figure, axes = _axes(wanted)
    ends = []
    for i, entry in enumerate(comparison.entries):
        found = curve_of(entry.outcomes, comparison.members)
        if found is None:
            continue
        rounds, scores = found
        whole = [o for o in entry.outcomes if not o.collapsed]
        spent = {
            "rounds": lambda o: o.rounds,
            "bytes": lambda o: (o.up + o.down) / n,
            "gradients": lambda o: o.gradients / n,
        }[wanted.over]
        x = np.mean([spent(o)[: len(rounds)] for o in whole], axis=0)
        mean, std = unit * scores.mean(0), abs(unit) * scores.std(0, ddof=min(1, len(scores) - 1))
        style = {k: v for k, v in look(i).items() if k != "marker"}
        if wanted.over == "bytes" and x[-1] == 0:
            end = float(mean[-1])
            axes.axhline(end, **{**style, "linestyle": ":"}, label=f"{entry.label} (0 bytes, end)")
            ends.append(np.array([end]))
            continue
        keep = x >= 0 if wanted.over == "rounds" else x > 0  # who has sent nothing yet is nowhere
        axes.plot(x[keep], mean[keep], **style, label=entry.label, linewidth=1.5)
        ends += [(mean - std)[1:], (mean + std)[1:]] if len(mean) > 1 else [mean]
        if len(scores) > 1:
            low, high = (mean - std)[keep], (mean + std)[keep]
            axes.fill_between(x[keep], low, high, color=style["color"], alpha=0.15, linewidth=0)
    if wanted.over == "bytes":
        axes.set_xscale("log")
    if ends:  # the untrained models would squeeze everything else
        every = np.concatenate(ends)
        room = 0.05 * float(every.max() - every.min()) or 1.0
        axes.set_ylim(float(every.min()) - room, float(every.max()) + room)
    names = {
        "rounds": "round",
        "bytes": "bytes per client so far, up and down",
        "gradients": "gradients per client so far",
    }
    axes.set(xlabel=names[wanted.over], ylabel=label)
    axes.legend(fontsize=7, frameon=False)
    return figure


@_plot("spread")
def spread(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """Every client's score at the end, method by method (mean over seeds), with the quartiles."""
    unit, label = unit_and_label(comparison)
    figure, axes = _axes(wanted)
    rng, whole = np.random.default_rng(0), _whole(comparison)
    for place, (i, entry) in enumerate(whole):
        values = unit * np.mean([o.last() for o in entry.outcomes], axis=0)
        values = values[~np.isnan(values)]
        black = {"medianprops": {"color": "black"}}
        axes.boxplot([values], positions=[place], widths=0.5, showfliers=False, **black)
        aside = place + rng.uniform(-0.16, 0.16, len(values))
        axes.scatter(aside, values, s=7, color=look(i)["color"], alpha=0.7, linewidth=0, zorder=3)
    names = [e.label for _, e in whole]
    axes.set_xticks(range(len(whole)), names, rotation=25, ha="right", fontsize=8)
    axes.set_ylabel(label)
    return figure


@_plot("fairness")
def fairness(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """Each method as a point: the clients' mean score against how much it varies between them
    (further left is fairer); small marks are single seeds.
    """
    unit, label = unit_and_label(comparison)
    figure, axes = _axes(wanted)
    for i, entry in _whole(comparison):
        x = [abs(unit) * float(np.nanstd(o.last())) for o in entry.outcomes]
        y = [unit * float(np.nanmean(o.last())) for o in entry.outcomes]
        style = {k: v for k, v in look(i).items() if k != "linestyle"}
        axes.scatter(x, y, **style, s=14, alpha=0.4)
        axes.scatter([np.mean(x)], [np.mean(y)], **style, s=45, label=entry.label)
    points = "points" if abs(unit) == 100 else "value"
    axes.set(xlabel=f"standard deviation between clients ({points})", ylabel=label)
    axes.legend(frameon=False, fontsize=7)
    return figure


@_plot("gain")
def gain(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """Each client's gain over training alone, sorted: above zero federating helps, below it
    hurts.
    """
    unit = comparison.metric.unit
    figure, axes = _axes(wanted)
    for i, entry in enumerate(comparison.entries):
        gains = gains_of(entry)
        if gains is None:
            continue
        gains = np.sort(unit * gains[~np.isnan(gains)])
        style = {k: v for k, v in look(i).items() if k != "marker"}
        axes.plot(np.linspace(0, 100, len(gains)), gains, **style, label=entry.label, linewidth=1.5)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("clients, sorted by gain (%)")
    axes.set_ylabel("gain over Local (points)" if unit == 100 else "gain over Local")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)
    return figure


def gains_of(entry: Entry) -> Any:
    """Every client's gain over training alone, mean over seeds; None where there is no Local."""
    if entry.local is None or not entry.measured:
        return None
    pairs = zip(entry.outcomes, entry.local, strict=True)
    return np.mean([o.last() - alone.last() for o, alone in pairs], axis=0)


@_plot("bytes")
def bill(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """What all clients together sent and received, method by method."""
    figure, axes = _axes(wanted, 0.12 + 0.08 * len(comparison.entries))
    names = [e.label for e in comparison.entries]
    of = lambda way: np.array(
        [np.mean([getattr(o, way)[-1] for o in e.outcomes]) for e in comparison.entries]
    )
    up, down = of("up"), of("down")
    rows = np.arange(len(names))
    axes.barh(rows, up, color=look(0)["color"], label="up")
    axes.barh(rows, down, left=up, color=look(4)["color"], label="down", hatch="//", alpha=0.9)
    for row, total in zip(rows, up + down, strict=True):
        axes.annotate(f" {bytes_text(float(total))}", (float(total), row), va="center", fontsize=7)
    axes.set_yticks(rows, names)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("bytes of all clients together")
    axes.xaxis.set_major_formatter(lambda value, _position: bytes_text(max(0.0, value)))
    axes.legend(frameon=False, fontsize=7)
    return figure


@_plot("graph")
def graph(comparison: Comparison, wanted: Wanted, graphs: Mapping[str, Graph]) -> Any:
    """The client graph of a method; clients are coloured by their gain over training alone."""
    learnt = {e.label: e.outcomes[0].learnt for e in comparison.entries}
    known = {**graphs, **{label: found.graph for label, found in learnt.items() if found}}
    if not known:
        raise InvalidInput("none of these runs has a client graph to draw.")
    label = wanted.method if wanted.method is not None else next(iter(known))
    if label not in known:
        raise unknown("the method with a graph", label, known)
    drawn, at = known[label], places(known[label])
    entry = next(e for e in comparison.entries if e.label == label)
    gains = gains_of(entry)
    figure, axes = _axes(wanted, 0.8)
    from matplotlib.collections import LineCollection

    weights = drawn.weights.tocoo()
    a, b = weights.coords
    top = float(weights.data.max(initial=0.0)) or 1.0
    alpha = np.clip(weights.data / top, 0.05, 0.8)
    lines = list(np.stack([at[a], at[b]], 1))
    axes.add_collection(LineCollection(lines, colors="#5b6b85", alpha=alpha, linewidths=0.7))
    colours = None if gains is None else comparison.metric.unit * gains
    most = 1.0 if colours is None else float(np.nanmax(np.abs(colours), initial=1e-9))
    given = {"c": "#7F7F7F"} if colours is None else {"c": colours, "cmap": "PuOr"}
    if colours is not None:
        given |= {"vmin": -most, "vmax": most}
    points = axes.scatter(*at.T, s=60, edgecolor="black", linewidth=0.6, zorder=3, **given)
    if colours is not None:
        title = "gain over Local" + (" (points)" if comparison.metric.percent else "")
        figure.colorbar(points, ax=axes, label=title)
    axes.set_axis_off()
    return figure


@_plot("labels")
def labels(comparison: Comparison, wanted: Wanted, _: Mapping[str, Graph]) -> Any:
    """How many training rows of each label the clients have, as shares of each client's own."""
    federation = comparison.federation
    if federation.task != "classification":
        raise InvalidInput(f"{federation.name!r} has no labels to draw: it is for regression.")
    counts = federation.label_counts()
    figure, axes = _axes(wanted, 0.8)
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    drawn = axes.imshow(shares, cmap="cividis", aspect="auto", interpolation="nearest", vmin=0)
    axes.grid(visible=False)
    axes.set(xlabel="labels", ylabel="clients")
    figure.colorbar(drawn, ax=axes, label="share of a client's rows")
    return figure


def attack_curves(grid: Grid, wanted: Wanted) -> Any:
    """The metric over the share of malicious clients, a panel per attack; a cross at the bottom
    where all seeds collapsed.
    """
    plt = pyplot()
    unit = grid.metric.sign * grid.metric.unit
    columns = min(2, len(grid.attacks))
    rows = -(-len(grid.attacks) // columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(wanted.width * columns, 0.65 * wanted.width * rows),
        squeeze=False,
        sharey=True,
    )
    for axes, attack in zip(panels.flat, grid.attacks, strict=False):
        for i, label in enumerate(grid.labels):
            cells = [grid.cells[label, attack, f] for f in grid.fractions]
            y = np.array([unit * c.spread.mean if c.spread else np.nan for c in cells])
            axes.plot(
                grid.fractions,
                y,
                markersize=3,
                linewidth=1.5,
                label=label,
                **look(i),
            )
            gone = [f for f, c in zip(grid.fractions, cells, strict=True) if c.spread is None]
            at = 0.005 + 0.015 * i  # above the lower edge, as a part of the panel's height
            across = axes.get_xaxis_transform()
            colour = look(i)["color"]
            axes.plot(gone, [at] * len(gone), "x", color=colour, markersize=5, transform=across)
        axes.set(title=attack, xlabel="share of malicious clients")
        if grid.metric.percent:
            axes.set_ylim(0, 101)
        axes.set_ylabel(f"honest clients' {judged(grid).removeprefix('test ')}")
    for axes in list(panels.flat)[len(grid.attacks) :]:
        axes.set_visible(False)
    handles, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="lower center",
        ncols=4,
        frameon=False,
        bbox_to_anchor=(0.5, -0.02 - 0.03 * (len(names) // 4)),
    )
    figure.tight_layout()
    return figure
