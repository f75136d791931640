"""Tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from coterie.report.comparison import Comparison, Row, Spread
from coterie.report.units import bytes_text


def score_text(value: Spread, unit: float, digits: int = 2) -> str:
    text = f"{unit * value.mean:.{digits}f}"
    return f"{text} ± {unit * value.std:.{digits}f}" if value.count > 1 else text


COLUMNS = ("method", "mean", "by samples", "worst 10%", "variance", "gain over Local", "gaining", "largest loss", "up", "down", "seconds")
DROP_FIRST = ("variance", "seconds", "by samples", "largest loss", "down", "gaining", "worst 10%", "up")
"""Columns that a narrow terminal goes without, in this order; the HTML page always has all."""


def cells(row: Row, unit: float) -> list[str]:
    """The texts of one row, in the order of COLUMNS."""
    if row.collapsed:
        return [row.label, "collapsed", *[""] * (len(COLUMNS) - 2)]
    gain = ["", "", ""]
    if row.gain is not None:
        g = row.gain
        gain = [f"{unit * g.mean:+.2f} [{unit * g.low:+.2f}, {unit * g.high:+.2f}]", f"{g.share_gaining:.0%}", f"{unit * g.largest_loss:+.2f}"]
    return [
        row.label,
        score_text(row.mean, unit),
        score_text(row.weighted, unit),
        score_text(row.worst, unit),
        score_text(row.variance, unit**2, 1),
        *gain,
        bytes_text(row.up),
        bytes_text(row.down),
        f"{row.seconds:.1f}",
    ]


def _lines(comparison: Comparison, unit: float) -> list[list[str]]:
    lines = [cells(row, unit) for row in comparison.rows()]
    majority = comparison.majority()
    if majority is not None:
        lines.append(["(majority class)", f"{unit * majority:.2f}", *[""] * (len(COLUMNS) - 2)])
    return lines


def markdown(comparison: Comparison) -> str:
    """The whole table and the answer in words, as Markdown."""
    unit = 100.0 if comparison.score_name == "accuracy" else 1.0
    lines = [list(COLUMNS), ["---"] * len(COLUMNS), *_lines(comparison, unit)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    words = "\n".join(f"- {sentence}" for sentence in comparison.verdict())
    return f"{table}\n\n{comparison.answer()}\n\n{words}\n"


def comparison_table(comparison: Comparison, width: int = 160) -> Table:
    """The comparison for a terminal of the given width; columns that do not fit are left out and named in the caption."""
    accuracy = comparison.score_name == "accuracy"
    unit = 100.0 if accuracy else 1.0
    lines = _lines(comparison, unit)
    widths = {name: max(len(name), *(len(line[i]) for line in lines)) + 3 for i, name in enumerate(COLUMNS)}
    shown = list(COLUMNS)
    for name in DROP_FIRST:
        if sum(widths[c] for c in shown) + 1 > width:
            shown.remove(name)
    what = "test accuracy in %, last round" if accuracy else "negated mean squared error on test data, last round"
    left_out = [c for c in COLUMNS if c not in shown]
    table = Table(title=f"{comparison.title}: {what}", title_justify="left", caption_justify="left")
    table.caption = "mean: over clients; gain: client by client against Local with equal gradient steps, 95% paired bootstrap; bytes: all clients" + (
        f"; in the report only: {', '.join(left_out)}" if left_out else ""
    )
    for name in shown:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for line in lines:
        muted = line[0].startswith("(")
        table.add_row(*(line[COLUMNS.index(c)] for c in shown), style="dim" if muted else None)
    return table
