"""Looking at a federation before training on it: its sizes, how unlike its clients are, and
pictures of both.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import SPLITS, Federation, warn_without_test

if TYPE_CHECKING:
    from coterie.coupling.graph import Graph

BINS = 10
"""Regression: the target's range is shown in so many parts with as many samples each."""


@dataclasses.dataclass(frozen=True)
class Description:
    """What is worth knowing of a federation, in numbers.

    Means leave out clients without test data.
    """

    name: str
    task: str
    clients: int
    input_shape: tuple[int, ...]
    sizes: dict[str, NDArray[np.int64]]
    """Samples per client, by split."""
    labels: NDArray[np.int64] | None
    """Different labels in each client's training data (classification)."""
    classes: int
    majority: float | None
    """Mean over clients of the test accuracy of always answering the client's most frequent
    training label; None where there is none.
    """
    majority_weighted: float | None
    """The same over all test samples."""
    heterogeneity: float
    """0: all clients alike.

    Classification: mean total-variation distance between a client's label distribution and
    everybody's; 1 is as unlike as can be. Regression: the share of the target's variance that lies
    between clients.
    """
    warning: str

    @property
    def totals(self) -> NDArray[np.int64]:
        """Samples per client over all splits."""
        return np.asarray(np.sum([self.sizes[s] for s in SPLITS], axis=0))

    def rows(self) -> list[tuple[str, str]]:
        """(what, value) lines for people."""
        total = self.totals
        lines = [
            ("data", self.name),
            (
                "task",
                f"{self.task}, {self.classes} classes" if self.labels is not None else self.task,
            ),
            ("clients N", f"{self.clients:,}"),
            ("input", " × ".join(map(str, self.input_shape))),
            (
                "samples",
                (
                    f"{int(total.sum()):,}"
                    f" ({', '.join(f'{s} {int(self.sizes[s].sum()):,}' for s in SPLITS)})"
                ),
            ),
            ("samples per client", _spread(total)),
            ("training samples per client", _spread(self.sizes["train"])),
        ]
        if self.labels is not None:
            lines.append(("labels per client", _spread(self.labels)))
            score = (
                "no client has test data"
                if self.majority is None
                else f"{self.majority:.1%} (weighted by test samples {self.majority_weighted:.1%})"
            )
            lines.append(("majority-class score", score))
            lines.append(
                (
                    "heterogeneity",
                    (
                        f"{self.heterogeneity:.3f} (mean total-variation distance of labels; 0"
                        " alike, 1 disjoint)"
                    ),
                )
            )
        else:
            lines.append(
                (
                    "heterogeneity",
                    (
                        f"{self.heterogeneity:.3f} (share of the target's variance that lies"
                        " between clients)"
                    ),
                )
            )
        return lines


def _spread(values: NDArray[Any]) -> str:
    if values.min() == values.max():
        return f"{int(values[0]):,} each"
    return (
        f"{int(values.min()):,} to {int(values.max()):,}, mean {values.mean():,.2f}, standard"
        f" deviation {values.std():,.1f}"
    )


def label_distance(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Per client, the total-variation distance ½ Σ_c |p_k(c) − p(c)| between its label distribution
    and that of all samples.
    """
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    overall = counts.sum(0) / max(int(counts.sum()), 1)
    return np.asarray(np.abs(share - overall).sum(1) / 2)


def variance_between(federation: Federation) -> float:
    """Regression: how much of the training target's variance is explained by knowing the client
    (η²).
    """
    y = federation.train.y.reshape(len(federation.train), -1).astype(np.float64)
    means = (
        np.add.reduceat(y, federation.train.offsets[:-1], axis=0) / federation.train.sizes[:, None]
    )
    total = ((y - y.mean(0)) ** 2).sum()
    between = (federation.train.sizes[:, None] * (means - y.mean(0)) ** 2).sum()
    return float(between / total) if total > 0 else 0.0


def describe(federation: Federation) -> Description:
    """The numbers of a federation. Nothing in it is NaN, whoever lacks test data."""
    labels = majority = weighted = None
    if federation.task == "classification":
        counts = federation.label_counts()
        labels = (counts > 0).sum(1)
        distance = float(label_distance(counts).mean())
        tested = federation.test.sizes > 0
        if tested.any():
            scores = federation.majority_score()[tested]
            majority = float(scores.mean())
            weighted = float(scores @ federation.test.sizes[tested] / federation.test.sizes.sum())
    else:
        distance = variance_between(federation)
    return Description(
        name=federation.name,
        task=federation.task,
        clients=federation.clients,
        input_shape=federation.input_shape,
        sizes={name: getattr(federation, name).sizes for name in SPLITS},
        labels=labels,
        classes=federation.classes,
        majority=majority,
        majority_weighted=weighted,
        heterogeneity=distance,
        warning=warn_without_test(federation),
    )


def client_names(federation: Federation) -> list[str]:
    names = federation.facts.get("clients")
    return [str(n) for n in names] if names else [str(k) for k in range(federation.clients)]


# ---- pictures ------------------------------------------------------------------------------------


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
    places = range(0, len(names), step)
    axis.set_ticks(
        list(places), [names[i] if len(names[i]) <= 18 else names[i][:17] + "…" for i in places]
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


def graph_drawing(federation: Federation, graph: Graph) -> bytes:
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


def page(description: Description, pictures: dict[str, bytes]) -> str:
    """One self-contained HTML page: the numbers and the pictures (title → PNG)."""
    rows = "".join(
        f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>"
        for k, v in description.rows()
    )
    shown = "".join(
        f'<h2>{html.escape(title)}</h2><img alt="{html.escape(title)}"'
        f' src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        for title, png in pictures.items()
    )
    warning = (
        f"<p><strong>{html.escape(description.warning)}</strong></p>" if description.warning else ""
    )
    style = (
        "body{font-family:sans-serif;margin:2em;max-width:80em}"
        "th{text-align:left;padding-right:1.5em;font-weight:600}img{max-width:100%}"
    )
    title = html.escape(description.name)
    head = (
        '<!doctype html><html lang="en"><meta'
        f' charset="utf-8"><title>{title}</title><style>{style}</style>'
    )
    return f"{head}<h1>{title}</h1><table>{rows}</table>{warning}{shown}</html>\n"


def write(
    folder: Path, stem: str, federation: Federation, graph: Graph | None = None
) -> list[Path]:
    """Write `stem`.png, with a graph `stem`-graph.png, and `stem`.html that holds them all; the
    paths written.
    """
    pictures = {"clients and labels": (f"{stem}.png", heat_map(federation))}
    if graph is not None:
        pictures[f"{graph.name} graph"] = (f"{stem}-graph.png", graph_drawing(federation, graph))
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, png in pictures.values():
        (folder / name).write_bytes(png)
        written.append(folder / name)
    file = folder / f"{stem}.html"
    file.write_text(
        page(describe(federation), {title: png for title, (_, png) in pictures.items()}),
        encoding="utf-8",
    )
    return [*written, file]


def client_rows(
    federation: Federation, description: Description, most: int
) -> list[tuple[str, list[int], str]]:
    """Per client (at most so many): its name, its samples by split, and its labels with their
    training samples.
    """
    names = client_names(federation)
    labels = [str(n) for n in federation.facts.get("labels") or range(federation.classes)]
    counts = federation.label_counts() if federation.task == "classification" else None
    rows = []
    for k in range(min(most, federation.clients)):
        held = (
            ""
            if counts is None
            else ", ".join(f"{labels[c]}: {counts[k, c]}" for c in np.flatnonzero(counts[k]))
        )
        rows.append((names[k], [int(description.sizes[s][k]) for s in SPLITS], held))
    if federation.clients > most:
        rows.append((f"… {federation.clients - most} more", [], ""))
    return rows
