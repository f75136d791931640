"""Pictures of a federation: who has which labels, and which graph couples the clients."""

from __future__ import annotations

import io
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import SPLITS, Federation

BINS = 10
"""Regression: the target's range is shown in so many parts with as many samples each."""


class Drawn(Protocol):
    """What a drawing asks of a graph: its name, its weights (a sparse matrix) and a line about
    it.
    """

    @property
    def name(self) -> str: ...
    @property
    def weights(self) -> Any: ...
    def describe(self) -> str: ...


def client_names(federation: Federation) -> list[str]:
    names = federation.facts.get("clients")
    return [str(n) for n in names] if names else [str(k) for k in range(federation.clients)]


def _cells(federation: Federation) -> tuple[NDArray[np.int64], list[str], str]:
    """Training samples per client and label; in regression per client and tenth of the target's
    values.
    """
    if federation.task == "classification":
        names = federation.facts.get("labels") or range(federation.classes)
        return federation.label_counts(), [str(n) for n in names], "label"
    y = federation.train.y.reshape(len(federation.train), -1)[:, 0]
    edges = np.quantile(y, np.linspace(0, 1, BINS + 1))
    part = np.clip(np.searchsorted(edges, y, "right") - 1, 0, BINS - 1)
    counts = np.zeros((federation.clients, BINS), np.int64)
    np.add.at(counts, (np.repeat(np.arange(federation.clients), federation.train.sizes), part), 1)
    return counts, [f"≤ {edge:.3g}" for edge in edges[1:]], "target"


def _ticks(axis: Any, names: list[str], most: int) -> None:
    """At most so many names on an axis, evenly chosen."""
    step = -(-len(names) // most)
    shown = range(0, len(names), step)
    axis.set_ticks(
        list(shown), [names[i] if len(names[i]) <= 18 else names[i][:17] + "…" for i in shown]
    )


def heat_map(federation: Federation) -> bytes:
    """A PNG: how many training samples of each label each client has (darker is more, white is
    none), and how many in all.
    """
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    counts, columns, what = _cells(federation)
    names = client_names(federation)
    n, c = counts.shape
    figure = Figure(
        figsize=(min(14, 5.5 + 0.28 * c), min(16, max(3.2, 1.6 + 0.2 * n))), layout="constrained"
    )
    grid, bars = figure.subplots(1, 2, sharey=True, width_ratios=[3, 1])
    most, least = int(counts.max()), int(counts[counts > 0].min())
    # Counts that differ by orders of magnitude need a logarithmic scale; where they do not, it
    # would hide what differs.
    norm = LogNorm(least, most) if most > 20 * least else Normalize(0, most)
    shown = np.ma.masked_equal(counts, 0)  # white
    picture = grid.imshow(
        shown, aspect="auto", interpolation="nearest", cmap="viridis_r", norm=norm
    )
    _ticks(grid.yaxis, names, 40)
    _ticks(grid.xaxis, columns, 32)
    grid.tick_params(axis="x", rotation=90 if max(map(len, columns)) > 3 else 0, labelsize=8)
    grid.tick_params(axis="y", labelsize=8)
    grid.set_xlabel(what)
    grid.set_ylabel("client")
    grid.set_title(f"{federation.name}: training samples per client and {what}", fontsize=10)
    bar = figure.colorbar(picture, ax=grid, pad=0.01, aspect=40)
    if isinstance(norm, LogNorm):
        ticks = [
            base * 10**power
            for power in range(7)
            for base in (1, 2, 5)
            if least <= base * 10**power <= most
        ]
        bar.ax.yaxis.minorticks_off()
        bar.set_ticks(ticks, labels=[f"{t:,}" for t in ticks])
    left = np.zeros(n)
    for split, colour in zip(SPLITS, ("#31688e", "#8fbf8f", "#d0a848"), strict=True):
        sizes = getattr(federation, split).sizes
        if sizes.any():
            bars.barh(np.arange(n), sizes, left=left, color=colour, label=split, height=0.85)
            left += sizes
    bars.set_xlabel("samples")
    bars.tick_params(axis="y", labelleft=False)
    bars.tick_params(axis="x", labelsize=8)
    bars.legend(
        fontsize=7,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
        handlelength=1,
        columnspacing=0.8,
    )
    return _png(figure)


def graph_drawing(federation: Federation, graph: Drawn) -> bytes:
    """A PNG: clients on a circle, beside those they resemble (by most frequent label); lines are
    couplings, thicker where stronger.
    """
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    n = federation.clients
    main = (
        federation.label_counts().argmax(1)
        if federation.task == "classification"
        else np.zeros(n, np.int64)
    )
    order = np.argsort(main, kind="stable")
    angle = np.empty(n)
    angle[order] = 2 * np.pi * np.arange(n) / n
    points = np.stack([np.cos(angle), np.sin(angle)], 1)
    figure = Figure(figsize=(8, 7.2), layout="constrained")
    axes = figure.subplots()
    edges = graph.weights.tocoo()
    keep = edges.coords[0] < edges.coords[1]
    rows, columns, weight = edges.coords[0][keep], edges.coords[1][keep], edges.data[keep]
    if len(weight):
        relative = weight / weight.max()
        # The more lines, the fainter: a full graph of 100 clients has 4,950.
        strength = min(0.9, max(0.05, 250 / len(weight)))
        colours = np.tile([0.25, 0.25, 0.3, 1.0], (len(weight), 1))
        colours[:, 3] = strength * relative
        axes.add_collection(
            LineCollection(
                list(np.stack([points[rows], points[columns]], 1)),
                colors=colours,
                linewidths=0.4 + 1.2 * relative,
            )
        )
    palette = colormaps["tab20"]
    size = 30 + 170 * federation.train.sizes / federation.train.sizes.max()
    axes.scatter(
        points[:, 0],
        points[:, 1],
        s=size,
        c=[palette(int(m) % 20) for m in main],
        zorder=3,
        edgecolors="white",
        linewidths=0.6,
    )
    if n <= 60:
        for k, name in enumerate(client_names(federation)):
            flip = np.cos(angle[k]) < 0
            axes.annotate(
                name[:14],
                1.06 * points[k],
                rotation=np.degrees(angle[k]) + (180 if flip else 0),
                rotation_mode="anchor",
                ha="right" if flip else "left",
                va="center",
                fontsize=7,
            )
    labels = federation.facts.get("labels") or range(federation.classes)
    if federation.task == "classification" and federation.classes <= 20:
        handles = [
            Line2D([], [], marker="o", linestyle="", color=palette(i), label=str(name)[:18])
            for i, name in enumerate(labels)
            if (main == i).any()
        ]
        axes.legend(
            handles=handles,
            title="most frequent label",
            fontsize=8,
            title_fontsize=8,
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
            frameon=False,
        )
    axes.set_title(f"{federation.name}: {graph.describe()}", fontsize=9)
    axes.set_xlim(-1.3, 1.3)
    axes.set_ylim(-1.3, 1.3)
    axes.set_aspect("equal")
    axes.axis("off")
    return _png(figure)


def _png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    return out.getvalue()
