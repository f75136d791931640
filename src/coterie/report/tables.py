"""Tables for the terminal."""

from __future__ import annotations

from rich.table import Table

from coterie.core.metrics import Metric
from coterie.report.comparison import Comparison, ReportRow, Spread
from coterie.report.counted import PAPER, outcomes_of, which_round
from coterie.report.units import bytes_text, gain_text, score_number, seconds_text, value_text
from coterie.report.words import how


def score_text(value: Spread, metric: Metric) -> str:
    text = value_text(value.mean, metric)
    return f"{text} ± {score_number(value.std, metric.unit)}" if value.count > 1 else text


def variance_text(value: Spread, metric: Metric) -> str:
    unit, digits = metric.unit, ".1f" if metric.percent else ".2g"
    text = f"{unit**2 * value.mean:{digits}}"
    return f"{text} ± {unit**2 * value.std:{digits}}" if value.count > 1 else text


COLUMNS = (
    "method",
    "mean",
    "by samples",
    "worst 10%",
    "variance",
    "gain over Local",
    "these clients",
    "another client",
    "helped / hurt",
    "largest loss",
    "data-poor",
    "newcomers",
    "best test round",
    "up",
    "down",
    "seconds",
    "predicted time",
)
DROP_FIRST = (
    "variance",
    "seconds",
    "by samples",
    "largest loss",
    "down",
    "worst 10%",
    "another client",
    "up",
    "helped / hurt",
    "these clients",
)
"""Columns that a narrow terminal goes without, in this order; the HTML page always has all."""
SHORT = {
    "helps": "helps",
    "hurts": "hurts",
    "no clear difference": "not clear",
    "cannot be answered": "no answer",
}
MEANING = (
    "mean: over clients; gain: client by client against Local with equal gradient steps, with the"
    " 95% interval of the test of these clients; these clients, another client: do they, would it,"
    " gain (p ≤ 5%, Holm over methods); helped / hurt: clients that clearly are; bytes: all clients"
)


def cells(row: ReportRow, metric: Metric) -> list[str]:
    """The texts of one row, in the order of COLUMNS."""
    if row.collapsed:
        return [row.label, f"collapsed at round {row.collapsed_at}", *[""] * (len(COLUMNS) - 2)]
    gain = [""] * 5
    if row.gain is not None:
        g = row.gain
        number = lambda v: gain_text(v, metric)
        interval = (
            f" [{number(g.low)}, {number(g.high)}]"
            if g.low is not None and g.high is not None
            else ""
        )
        gain = [
            number(g.mean) + interval,
            SHORT[g.these.word] if g.these else "",
            SHORT[g.others.word] if g.others else "",
            f"{len(g.clients.helped)} / {len(g.clients.hurt)} of {g.count}" if g.clients else "",
            number(g.largest_loss),
        ]
    return [
        row.label,
        score_text(row.mean, metric),
        score_text(row.weighted, metric),
        score_text(row.worst, metric),
        variance_text(row.variance, metric),
        *gain,
        score_text(row.poor, metric) if row.poor else "",
        score_text(row.newcomers, metric) if row.newcomers else "",
        score_text(row.best_test, metric) if row.best_test else "",
        bytes_text(row.up),
        bytes_text(row.down),
        f"{row.seconds:.1f}",
        seconds_text(row.predicted.mean) if row.predicted else "",
    ]


def filled(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Names and texts of the columns that have something in them."""
    metric = comparison.metric
    lines = [cells(row, metric) for row in comparison.rows()]
    majority = comparison.majority()
    if majority is not None:
        lines.append(["(majority class)", value_text(majority, metric), *[""] * (len(COLUMNS) - 2)])
    there = [i for i, _ in enumerate(COLUMNS) if any(line[i] for line in lines)]
    return [COLUMNS[i] for i in there], [[line[i] for i in there] for line in lines]


def partly(comparison: Comparison) -> str:
    """Which way is better, who is in no mean, having no test rows at some seed; and what is beside
    the protocol.
    """
    metric = comparison.metric
    gain = "" if metric.higher else ", a gain is positive where it got smaller"
    better = f"; {metric.title}: {metric.better}{gain}"
    paper = f"; {PAPER}" if comparison.protocol == "paper" else ""
    names = comparison.left_out()
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    missing = f"; not in the means, without test rows at some seed: {shown}" if names else ""
    return better + paper + missing


def markdown(comparison: Comparison) -> str:
    """The whole table and the answer in words, as Markdown."""
    columns, lines = filled(comparison)
    table = "\n".join(
        "| " + " | ".join(line) + " |" for line in [columns, ["---"] * len(columns), *lines]
    )
    told = [*comparison.verdict(), *comparison.notes()]
    sentences = "\n".join(f"- {sentence}" for sentence in told)
    return (
        f"{table}\n\nIn the table, {MEANING}{partly(comparison)}.\n\n{comparison.answer()}\n\n"
        f"{sentences}\n\n{how(comparison.metric)}\n"
    )


def comparison_table(comparison: Comparison, width: int = 160) -> Table:
    """The comparison for a terminal of the given width; columns that do not fit are left out and
    named in the caption.
    """
    columns, lines = filled(comparison)
    widths = {
        name: max(len(name), *(len(line[i]) for line in lines)) + 3
        for i, name in enumerate(columns)
    }
    shown = list(columns)
    for name in DROP_FIRST:
        if name in shown and sum(widths[c] for c in shown) + 1 > width:
            shown.remove(name)
    percent = " in %" if comparison.metric.percent else ""
    what = f"test {comparison.metric.title}{percent}, {which_round(outcomes_of(comparison))}"
    left_out = [c for c in columns if c not in shown]
    table = Table(title=f"{comparison.title}: {what}", title_justify="left", caption_justify="left")
    table.caption = (
        MEANING
        + (f"; in the report only: {', '.join(left_out)}" if left_out else "")
        + partly(comparison)
    )
    for name in shown:
        table.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for line in lines:
        muted = line[0].startswith("(")
        table.add_row(*(line[columns.index(c)] for c in shown), style="dim" if muted else None)
    return table
