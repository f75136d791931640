"""The figure of README: accuracy of the data-poor clients over bytes.

python experiments/bytes/figure/figure.py            # reads ../*/result.md, writes figure.csv,
                                                     # draws docs/images/bytes.png
python experiments/bytes/figure/figure.py --drawn    # draws from figure.csv alone
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
IMAGE = HERE.parents[2] / "docs" / "images" / "bytes.png"
PANELS = {
    "har": ("HAR, 30 clients, logistic regression", 30),
    "mnist-mlr": ("MNIST, 100 clients, logistic regression", 100),
    "mnist-mlp": ("MNIST, 100 clients, perceptron", 100),
}
FEWER = {
    "har": "245× (tuned 519×) fewer bytes of payload\nwire: Zenoh 51× (58×), Flower 2× (2×)",
    "mnist-mlr": "730× fewer bytes of payload\nwire: Zenoh 126×, Flower 4×",
    "mnist-mlp": "547× (tuned 398×) fewer bytes of payload\n"
    "wire: Zenoh 404× (318×), Flower 32× (28×)",
}
"""Of the messages' exact sizes (result.md has them with two digits), and as bench/wire.result.md
has them on the wire; the smaller one where there are two.
"""
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
# Okabe and Ito's colours, told apart by shape too.
BLUE, ORANGE, GREEN, PURPLE, GREY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#777777",
    "#000000",
)


def amount(text: str) -> float:
    """Bytes from "888 kB"."""
    number, unit = text.split()
    return float(number) * UNITS[unit]


def read(name: str, clients: int) -> list[dict[str, str]]:
    """The rows of a result's first table: label, accuracy of the data-poor with its spread, bytes
    per client up and down.
    """
    lines = (HERE.parent / name / "result.md").read_text(encoding="utf-8").splitlines()
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith("|")) :]
    head = [c.strip() for c in lines[0].strip("|").split("|")]
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        cell = dict(zip(head, (c.strip() for c in line.strip("|").split("|")), strict=True))
        if "±" not in cell["data-poor"] or "(global)" in cell["method"]:
            continue
        poor, spread = cell["data-poor"].split(" ± ")
        up, down = (f"{amount(cell[way]) / clients:.0f}" for way in ("up", "down"))
        rows.append(
            {
                "panel": name,
                "method": cell["method"],
                "poor": poor,
                "std": spread,
                "up": up,
                "down": down,
            }
        )
    return rows


def series(rows: list[dict[str, str]], pattern: str) -> list[tuple[float, float, float]]:
    """(bytes, accuracy, share) of the methods whose label matches, from few to many bytes; the
    pattern's group is the share.
    """
    found = []
    for row in rows:
        if match := re.fullmatch(pattern, row["method"]):
            share = float(match.group(1)) if match.groups() else 0.0
            found.append((float(row["up"]) + float(row["down"]), float(row["poor"]), share))
    return sorted(found)


def draw(rows: list[dict[str, str]]) -> None:
    plt.rcParams.update(
        {
            "font.size": 11,
            "font.family": "DejaVu Sans",
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    panels = [
        name for name in PANELS if any(row["panel"] == name for row in rows)
    ]  # "tuned-…" goes into its panel
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.6 * len(panels), 4.4), squeeze=False, constrained_layout=True
    )
    for axis, name in zip(axes[0], panels, strict=True):
        tuned(axis, [row for row in rows if row["panel"] == f"tuned-{name}"])
        panel(axis, name, [row for row in rows if row["panel"] == name])
    axes[0][0].set_ylabel("accuracy of the data-poor clients, %")
    IMAGE.parent.mkdir(exist_ok=True)
    figure.savefig(IMAGE, dpi=130)


def panel(axis: plt.Axes, name: str, rows: list[dict[str, str]]) -> None:
    fedu, local = (
        series(rows, "FedU")[0],
        series(rows, r"Local(?: \(20 steps, lr 0\.03, sampled\))?")[0][1],
    )  # FedU's steps
    span = fedu[1] - local
    axis.set_title(PANELS[name][0], fontsize=12)
    axis.set_xscale("log")
    axis.set_xlim(fedu[0] / 8000, fedu[0] * 4)
    axis.set_ylim(local - 0.4 * span, fedu[1] + 0.55 * span)
    axis.set_xlabel("bytes of payload per client in the whole run, sent + received")
    axis.xaxis.set_major_formatter(
        lambda v, _: f"{v / 1e6:g} MB" if v >= 1e6 else f"{v / 1e3:g} kB"
    )
    axis.axhspan(fedu[1] - 0.3, fedu[1] + 0.3, color=GREY, alpha=0.18, lw=0)
    axis.axhline(local, color=BLACK, ls="--", lw=1)
    note(
        axis,
        "Local: nothing sent",
        (0.02, local),
        (0, -5),
        BLACK,
        "left",
        "top",
        coordinates=("axes fraction", "data"),
    )
    note(
        axis,
        "FedU ± 0.3",
        (0.02, fedu[1]),
        (0, 0),
        GREY,
        "left",
        "center",
        coordinates=("axes fraction", "data"),
    )
    largest = series(rows, r"FedU \+ delta \(share=([\d.]+)\)")
    turns = series(rows, r"FedU \+ delta \(share=([\d.]+), values=int4, pick=turns\)")
    line(axis, largest, BLUE, "o", "largest changes", (10, -4), "left", 1)
    line(axis, turns, ORANGE, "s", "all in turn,\n4 bits each", (-9, 0), "right", 0)
    axis.plot(*fedu[:2], color=BLACK, marker="*", ms=15, ls="", zorder=5)
    note(axis, "FedU", fedu[:2], (10, 0), BLACK, "left", "center", weight="bold")
    if fewer := fewer_bytes(fedu, turns):
        best = (fedu[0] / fewer, 0)
        above, middle = fedu[1] + 0.3 + 0.05 * span, (best[0] * fedu[0]) ** 0.5
        axis.annotate(
            "",
            (best[0] * 1.15, above),
            (fedu[0], above),
            arrowprops={"arrowstyle": "->", "color": ORANGE, "lw": 2},
        )
        note(
            axis,
            FEWER[name],
            (middle, above),
            (0, 4),
            ORANGE,
            "center",
            "bottom",
            weight="bold",
            size=10,
        )
    others = [
        (r"lp-proj-2", "lp-proj, graph-proj", GREEN, "^", (9, 4), "left"),
        (r"graph-proj", "", GREEN, "v", (0, 0), "left"),
        (
            r"pFedMe(?: \(beta=[\d.]+\))?(?: \+ delta \(share=[\d.]+\))? \(personal\)",
            "pFedMe",
            PURPLE,
            "D",
            (0, -14),
            "center",
        ),
        (
            r"Per-FedAvg(?: \(.*\))? \+ (?:qsgd|dgc|sketch) \(personal\)",
            "Per-FedAvg over\nQSGD, DGC, sketch",
            GREY,
            "X",
            (-9, -10),
            "right",
        ),
    ]
    for pattern, label, colour, marker, shift, side in others:
        points = [
            p for p in series(rows, pattern) if marker == "D" or p[1] > local - 0.3 * span
        ]  # a curve may leave the panel
        for point in points:
            axis.plot(*point[:2], color=colour, marker=marker, ms=8 if marker != "D" else 6, ls="")
        if marker == "D" and points:
            axis.plot(*zip(*[p[:2] for p in points], strict=True), color=colour, lw=1)
        if points:
            note(
                axis,
                label,
                max(points, key=lambda p: -p[1] if marker == "X" else p[0])[:2],
                shift,
                colour,
                side,
            )


def fewer_bytes(
    whole: tuple[float, float, float], turns: list[tuple[float, float, float]]
) -> float:
    """How many times fewer bytes give the accuracy of the whole within 0.3 points; 0 if none do."""
    return max((whole[0] / p[0] for p in turns if p[1] >= whole[1] - 0.3), default=0.0)


def tuned(axis: plt.Axes, rows: list[dict[str, str]]) -> None:
    """FedU whole and in turn with settings of their own."""
    if rows:
        whole, turns = (
            series(rows, r"FedU \(eta=[\d.]+\)"),
            series(rows, r"FedU \(eta=[\d.]+\) \+ delta \(share=([\d.]+)\)"),
        )
        axis.plot(
            *zip(*[p[:2] for p in turns], strict=True),
            color=ORANGE,
            marker="s",
            mfc="white",
            ls=":",
            lw=1.5,
            ms=7,
            zorder=4,
        )
        axis.plot(*whole[0][:2], color=BLACK, marker="*", mfc="white", ms=15, ls="", zorder=4)
        note(
            axis,
            "hollow: step size and η tuned, each for itself",
            (0.98, 0.02),
            (0, 0),
            BLACK,
            "right",
            "bottom",
            coordinates="axes fraction",
            size=9,
        )


def line(
    axis: plt.Axes,
    points: list[tuple[float, float, float]],
    colour: str,
    marker: str,
    label: str,
    shift: tuple[int, int],
    side: str,
    at: int,
) -> None:
    """A curve over the share with its name beside one of its points."""
    if points:
        axis.plot(
            *zip(*[p[:2] for p in points], strict=True), color=colour, marker=marker, lw=2.2, ms=7
        )
        note(
            axis,
            label,
            points[min(at, len(points) - 1)][:2],
            shift,
            colour,
            side,
            "center",
            weight="bold",
        )


def note(
    axis: plt.Axes,
    text: str,
    place: tuple[float, float],
    shift: tuple[int, int],
    colour: str,
    side: str,
    height: str = "baseline",
    coordinates: Any = "data",
    weight: str = "normal",
    size: float = 10.5,
) -> None:
    axis.annotate(
        text,
        place,
        xycoords=coordinates,
        xytext=shift,
        textcoords="offset points",
        ha=side,
        va=height,
        color=colour,
        weight=weight,
        fontsize=size,
    )


def main() -> None:
    table = HERE / "figure.csv"
    if "--drawn" in sys.argv:
        with table.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    else:
        sources = [
            (name, clients)
            for panel, (_, clients) in PANELS.items()
            for name in (panel, f"tuned-{panel}")
        ]
        rows = [
            row
            for name, clients in sources
            if (HERE.parent / name / "result.md").exists()
            for row in read(name, clients)
        ]
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    draw(rows)


if __name__ == "__main__":
    main()
