"""The figures of results: vector graphics, in colours that colour-blind people can tell apart, with
dashes and marks that survive a grey printer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.report.figures import COLOURS, DASHES, MARKS, pyplot, svg
from coterie.runs.reproduce.base import ACCURACY, PERCENT, TRAIN_LOSS, Line, PaperTable, Printed
from coterie.runs.reproduce.sheet import Sheet

WIDE = 4
"""Panels side by side."""
BLACK = COLOURS.index("#000000")


def figure(table: PaperTable, sheets: Sequence[Sheet]) -> str:
    """The figure of a table as SVG."""
    if table.drawn == "dots":
        return _dots(table, sheets)
    kinds: Any = {"curves": _curve, "sweep": _sweep, "plane": _plane, "bytes": _bytes}
    rows = table.measures if table.drawn in ("curves", "sweep") else table.measures[:1]
    rows = tuple(m for m in rows if m in (ACCURACY, TRAIN_LOSS)) or rows[:1]
    made, axes = _grid(len(sheets), len(rows))
    for j, each in enumerate(sheets):
        for i, measure in enumerate(rows):
            axis = axes[i][j]
            kinds[table.drawn](axis, table, each, measure)
            if i == 0:
                axis.set_title(each.block.title, fontsize=8)
            axis.tick_params(which="both", labelsize=7)
    _legend(made, [axis for row in axes for axis in row])
    made.tight_layout()
    return svg(made)


def _grid(panels: int, rows: int) -> tuple[Any, list[list[Any]]]:
    """Axes by row (a measure) and panel; panels go on in the next line after four."""
    plt = pyplot()
    wide, lines = min(panels, WIDE), math.ceil(panels / WIDE)
    size = (2.9 * wide, 2.3 * rows * lines)
    made, axes = plt.subplots(rows * lines, wide, figsize=size, squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    found = [[axes[(j // wide) * rows + i][j % wide] for j in range(panels)] for i in range(rows)]
    for row in found:
        for axis in row:
            axis.set_visible(True)
    return made, found


def _legend(made: Any, axes: Sequence[Any]) -> None:
    """One legend below, with every name once."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        made.legend(
            list(handles.values()),
            list(handles),
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=min(len(handles), 5 if len(axes) > 2 else 3),
            fontsize=7,
            frameon=False,
        )


def looks(lines: Sequence[Line], *, by_column: bool) -> list[dict[str, Any]]:
    """Colour, dash and mark of every line: by method, or, where several points of one sweep are
    curves, colours by point and dashes by method; what is not swept is black then.
    """
    names = list(dict.fromkeys(r.label for r in lines))
    points = list(dict.fromkeys(r.column for r in lines if r.column))
    by_point, found = by_column and len(points) > 1, []
    for r in lines:
        i = names.index(r.label)
        if by_point:
            colour = points.index(r.column) if r.column else BLACK
            mark, dash = (colour if r.column else i), i
        else:
            colour, mark, dash = i, i, i // len(COLOURS)
        found.append(
            {
                "color": COLOURS[colour % len(COLOURS)],
                "linestyle": DASHES[dash % len(DASHES)],
                "marker": MARKS[mark % len(MARKS)],
            }
        )
    return found


def _name_paper(axis: Any, drawn: bool) -> None:
    """One entry of the legend for all that is the paper's."""
    if drawn:
        axis.plot([], [], color="#7F7F7F", marker="o", mfc="white", ls=":", label="paper (open)")


def _axis_text(measure: str) -> str:
    return f"{measure} (%)" if measure in PERCENT else measure


def _curve(axis: Any, table: PaperTable, each: Sheet, measure: str) -> None:
    """Over rounds, mean of seeds, with a band of one deviation."""
    for line, look in zip(each.block.lines, looks(each.block.lines, by_column=True), strict=True):
        found = each.curve(line, measure)
        found = found[1:] if len(found) > 2 else found
        if not found:
            continue
        rounds = [p.round for p in found]
        mean, wide = np.array([p.mean for p in found]), np.array([p.deviation for p in found])
        every = max(1, len(mean) // 6)
        axis.plot(
            rounds, mean, linewidth=1.2, markersize=3, markevery=every, label=line.name, **look
        )
        if wide.any():
            axis.fill_between(
                rounds, mean - wide, mean + wide, color=look["color"], alpha=0.15, linewidth=0
            )
    if measure not in PERCENT:
        axis.set_yscale("log")
    axis.set_xlabel("round", fontsize=7)
    axis.set_ylabel(_axis_text(measure), fontsize=7)


def _sweep(axis: Any, table: PaperTable, each: Sheet, measure: str) -> None:
    """Over the lines' x, ours filled, the paper's open and dashed; a cross at the bottom where
    seeds collapsed: a point above it is the mean of the others.
    """
    lines = each.block.lines
    found = [each.values(line, measure) for line in lines]
    chosen = looks(lines, by_column=False)
    across = axis.get_xaxis_transform()
    for i, name in enumerate(dict.fromkeys(r.label for r in lines)):
        mine = [k for k, r in enumerate(lines) if r.label == name]
        look = chosen[mine[0]]
        without = [k for k in mine if lines[k].x is None]
        for k in without:
            axis.axhline(np.nanmean(found[k]), label=name, linewidth=1.0, color="black", ls="--")
        points = [k for k in mine if lines[k].x is not None]
        if not points:
            continue
        x = [float(lines[k].x or 0.0) for k in points]
        there = [[v for v in found[k] if not math.isnan(v)] for k in points]
        y = [np.mean(v) if v else np.nan for v in there]
        wide = [np.std(v, ddof=1) if len(v) > 1 else 0.0 for v in there]
        axis.errorbar(x, y, yerr=wide, linewidth=1.2, markersize=3.5, label=name, **look)
        gone = [a for a, v, k in zip(x, there, points, strict=True) if len(v) < len(found[k])]
        axis.plot(gone, [0.01 + 0.03 * i] * len(gone), "x", color=look["color"], transform=across)
        paper = [Printed.read(lines[k].printed.get(measure, "")) for k in points]
        drawn = [(a, p.mean) for a, p in zip(x, paper, strict=True) if p is not None]
        if drawn:
            axis.plot(
                *zip(*drawn, strict=True),
                color=look["color"],
                marker=look["marker"],
                mfc="white",
                markersize=3.5,
                linewidth=0.7,
                linestyle=":",
            )
    _name_paper(axis, any(measure in r.printed for r in lines))
    values = [r.x for r in lines if r.x is not None]
    if values and min(values) > 0 and max(values) / min(values) > 30:
        axis.set_xscale("log")
    axis.set_xlabel(table.axis, fontsize=7)
    axis.set_ylabel(_axis_text(measure), fontsize=7)


def _plane(axis: Any, table: PaperTable, each: Sheet, measure: str) -> None:
    """One measure over another: a point for every line, the paper's open."""
    along, up = table.measures[:2]
    lines = each.block.lines
    xs, ys = ([each.values(line, m) for line in lines] for m in (along, up))
    chosen = looks(lines, by_column=False)
    for line, x, y, look in zip(lines, xs, ys, chosen, strict=True):
        look = {"color": look["color"], "marker": look["marker"]}
        if not (np.isnan(x).all() or np.isnan(y).all()):
            axis.errorbar(
                np.nanmean(x),
                np.nanmean(y),
                xerr=np.nanstd(x),
                yerr=np.nanstd(y),
                linestyle="none",
                markersize=5,
                label=line.name,
                **look,
            )
        paper = [Printed.read(line.printed.get(m, "")) for m in (along, up)]
        if paper[0] is not None and paper[1] is not None:
            axis.plot(
                paper[0].mean,
                paper[1].mean,
                linestyle="none",
                mfc="white",
                markersize=5,
                **look,
            )
    _name_paper(axis, any({along, up} <= set(line.printed) for line in lines))
    axis.set_xlabel(_axis_text(along), fontsize=7)
    axis.set_ylabel(_axis_text(up), fontsize=7)


def _bytes(axis: Any, table: PaperTable, each: Sheet, measure: str) -> None:
    """Accuracy over what was sent so far, with the paper's budget and target."""
    for line, look in zip(each.block.lines, looks(each.block.lines, by_column=False), strict=True):
        found = each.curve(line, ACCURACY)
        if not found:
            continue
        if not found[-1].sent:
            axis.axhline(found[-1].mean, label=f"{line.name} (end)", linewidth=1.0, color="black")
            continue
        axis.plot(
            [p.sent for p in found[1:]],
            [p.mean for p in found[1:]],
            linewidth=1.2,
            markersize=3,
            markevery=max(1, len(found) // 6),
            label=line.name,
            **look,
        )
    if each.block.budget:
        axis.axvline(each.block.budget, color="black", linewidth=0.7, linestyle=":")
    if each.block.target:
        axis.axhline(100 * each.block.target, color="black", linewidth=0.7, linestyle=":")
    axis.set_xscale("log")
    axis.set_xlabel("numbers sent by and to all clients (4 bytes each)", fontsize=7)
    axis.set_ylabel(_axis_text(ACCURACY), fontsize=7)


def _dots(table: PaperTable, sheets: Sequence[Sheet]) -> str:
    """A panel for each block: the paper's numbers as open circles, ours as filled ones."""
    plt = pyplot()
    measure = table.measures[0]
    wide, lines = min(len(sheets), WIDE), math.ceil(len(sheets) / WIDE)
    tallest = max(len(each.block.lines) for each in sheets)
    size = (3.4 * wide, (0.32 * tallest + 0.9) * lines)
    made, axes = plt.subplots(lines, wide, figsize=size, squeeze=False)
    for axis in axes.flat[len(sheets) :]:
        axis.axis("off")
    for axis, each in zip(axes.flat, sheets, strict=False):
        for y, line in enumerate(each.block.lines):
            values = each.values(line, measure)
            printed = Printed.read(line.printed.get(measure, ""))
            there = [v for v in values if not math.isnan(v)]
            _dot(axis, printed, there, y)
        names = [line.name for line in each.block.lines]
        axis.set_yticks(range(len(names)), names, fontsize=7)
        axis.invert_yaxis()
        axis.set_title(each.block.title, fontsize=8)
        axis.set_xlabel(_axis_text(measure), fontsize=7)
        axis.tick_params(axis="x", labelsize=7)
    _legend(made, list(axes.flat))
    made.tight_layout()
    return svg(made)


def _dot(axis: Any, printed: Printed | None, there: list[float], y: int) -> None:
    if printed is not None and not math.isnan(printed.mean):
        axis.errorbar(
            printed.mean,
            y - 0.12,
            xerr=printed.spread,
            fmt="o",
            mfc="white",
            color=COLOURS[1],
            label="paper",
        )
    if there:
        wide = np.std(there, ddof=1) if len(there) > 1 else None
        axis.errorbar(np.mean(there), y + 0.12, xerr=wide, fmt="o", color=COLOURS[0], label="ours")
