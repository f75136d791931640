"""Looking at a federation before training on it: its sizes, how unlike its clients are, and
pictures of both.
"""

from __future__ import annotations

import base64
import dataclasses
import html
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.data.federation import SPLITS, Federation, warn_without_test
from coterie.data.pictures import Drawn, client_names, graph_drawing, heat_map


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
    folder: Path, stem: str, federation: Federation, graph: Drawn | None = None
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


def sizes_and_labels(federation: Federation) -> dict[str, list[Any]]:
    """Columns with a row per client and split: samples, and samples of each label; or the mean and
    the standard deviation of the target.
    """
    labels = [str(n) for n in federation.facts.get("labels") or range(federation.classes)]
    fixed = ["client", "split", "samples"]
    measured = ["mean", "standard deviation"]
    extra = labels if federation.task == "classification" else measured
    titles = [f"label {name}" if name in fixed else name for name in extra]
    made: dict[str, list[Any]] = {key: [] for key in (*fixed, *titles)}
    for k, name in enumerate(federation.names()):
        for split in SPLITS:
            y = getattr(federation, split).client(k)[1]
            if federation.task == "classification":
                values: list[Any] = np.bincount(y, minlength=federation.classes).tolist()
            else:
                values = [float(y.mean()), float(y.std())] if len(y) else [np.nan, np.nan]
            for key, value in zip(made, [name, split, len(y), *values], strict=True):
                made[key].append(value)
    return made
