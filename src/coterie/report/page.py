"""The report of a comparison as one HTML file that opens from disk: the answer, the tables, the
figures, and every client by itself.

The figures are drawn by Vega-Lite, which is in the file; docs/design.md says why.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.coupling.graph import Graph
from coterie.report import learnt, parts
from coterie.report.comparison import Comparison
from coterie.report.counted import outcomes_of, which_round
from coterie.report.drawn import drawn
from coterie.report.measures import Sheet
from coterie.report.sites import sites_sheet
from coterie.report.tables import MEANING, filled, partly
from coterie.report.words import how

MOST_ROWS = 2000
"""Clients in the table; sites.csv always has all."""


def page(
    comparison: Comparison,
    config: str = "",
    more: Sequence[Sheet] = (),
    graphs: Mapping[str, Graph] | None = None,
) -> str:
    """The report of a comparison as HTML text; `more` are further tables, `graphs` the client
    graphs that were given, by method.
    """
    e = html.escape
    data = drawn(comparison, graphs)
    first, *rest = comparison.answer().sentences
    columns, lines = filled(comparison)
    sentences = [*comparison.verdict(), *comparison.notes()]
    words = "".join(f"<li>{e(sentence)}</li>" for sentence in sentences)
    sections = {
        "answer": "Answer",
        "table": "Methods side by side",
        "figures": "Figures",
        "one-client": "One client",
        "words": "Method by method",
        **({"experiment": "Experiment"} if config else {}),
    }
    body = (
        f"<p>{e(_facts(comparison))}</p>{parts.jumps(sections)}"
        '<h2 id="answer">Should these clients federate?</h2>'
        f'<div class="lead"><p><strong>{e(first)}</strong></p><p>{e(" ".join(rest))}</p></div>'
        f'<h2 id="table">Methods side by side</h2>{parts.table(columns, lines)}'
        f'<p class="soft">In the table, {e(MEANING + partly(comparison))}.</p>'
        f'<h2 id="figures">Figures</h2>{parts.METHODS}'
        f'<div class="figures">{_figures(comparison, data)}</div>'
        f"{_one_client(comparison)}{_client_table(comparison)}"
        f'<h2 id="words">Method by method</h2><ul>{words}</ul><p>{e(how(comparison.metric))}</p>'
        + "".join(parts.sheet_html(sheet) for sheet in more)
        + parts.experiment_html(config)
    )
    return parts.document(comparison.title, body, data)


def _facts(comparison: Comparison) -> str:
    fed = comparison.federation
    seeds = sorted({o.seed for entry in comparison.entries for o in entry.outcomes})
    return (
        f"{fed.name}: {fed.clients} clients, {len(fed.train):,} training, {len(fed.validation):,}"
        f" validation and {len(fed.test):,} test samples; seed{'s' if len(seeds) > 1 else ''}"
        f" {', '.join(map(str, seeds))}. Scores are of the"
        f" {which_round(outcomes_of(comparison))}, on test data."
    )


def _figures(comparison: Comparison, data: dict[str, Any]) -> str:
    measured = any(m["against"] is not None for m in data["methods"])
    several = any(len(m["seeds"]) > 1 for m in data["methods"])
    shown, every = len(data["clients"]["ids"]), comparison.federation.clients
    some = f" {shown:,} of {every:,} clients are drawn." if shown < every else ""
    made = [
        parts.figure(
            "curves",
            "Score while training",
            "Mean over clients"
            + ("; the band is the standard deviation over seeds." if several else "."),
            parts.choice(
                "over", "Over", {"rounds": "rounds", "bytes": "bytes", "gradients": "gradients"}
            ),
            wide=True,
        ),
        parts.figure(
            "spread",
            "Every client at the end",
            "A point is a client, the bar holds the middle half, the line is the median; the worst"
            f" client of each method is named.{some}",
            parts.choice("what", "Show", {"score": "score", "gain": "gain over Local"})
            if measured
            else "",
        ),
        parts.figure(
            "scatter",
            "Score and fairness",
            "Mean score and how much it varies between clients"
            + ("; small marks are single seeds." if several else "."),
        ),
    ]
    if measured:
        made.append(
            parts.figure(
                "gains",
                "Who gains and who loses",
                "Each client's gain over training alone with equal gradient steps, sorted; below 0"
                f" federating hurts.{some}",
            )
        )
    made.append(
        parts.figure(
            "bill",
            "Byte bill",
            "What all clients together sent (up) and received (down) until the end, mean of seeds.",
        )
    )
    if any(data["graphs"]):
        made.append(parts.figure("graph", "Client graph, by gain", "", _which_graph(data)))
    if data["labels"]:
        kept = len(data["labels"]["of"])
        note = "Training rows by client and label; select a cell to see the client."
        note += f" {kept} of {every:,} clients are drawn." if kept < every else ""
        made.append(parts.figure("labels", "Who has which labels", note))
    pictures = "".join(
        f'<figure class="paper">{svg}<figcaption>{html.escape(text)}</figcaption></figure>'
        for svg, text in learnt.figures(comparison)
    )
    if pictures:
        made.append(
            "<details class=wide><summary>The learnt graphs as matrices</summary>"
            f'<div class="figures">{pictures}</div></details>'
        )
    return "".join(made)


def _which_graph(data: dict[str, Any]) -> str:
    options = "".join(
        f'<option value="{i}">{html.escape(method["label"])}</option>'
        for i, (method, graph) in enumerate(zip(data["methods"], data["graphs"], strict=True))
        if graph
    )
    return f'<p><label>Of the method <select id="graph-of">{options}</select></label></p>'


def _one_client(comparison: Comparison) -> str:
    labels = (
        parts.figure("client-labels", "Its labels", "Training rows of each label, as shares.")
        if comparison.federation.task == "classification"
        else '<figure id="figure-client-labels" hidden><h3></h3><div class="chart"></div></figure>'
    )
    score = parts.figure(
        "client", "Its score while training", "On its own test rows, mean of seeds."
    )
    return (
        '<h2 id="one-client">One client</h2>'
        '<p><label>Client <select id="client"></select></label></p>'
        '<div id="client-found"><p id="client-facts" aria-live="polite"></p>'
        '<div id="client-table" class="scroll" tabindex="0" role="region" aria-label="table"></div>'
        f'<div id="client-near"></div><div class="figures">{score}{labels}</div></div>'
    )


def _client_table(comparison: Comparison) -> str:
    """All clients with a button each; of very many, those that gain or lose most."""
    sheet = sites_sheet(comparison)
    if sheet is None:
        return ""
    lines, note, kept = sheet.lines, sheet.note, list(range(len(sheet.lines)))
    if len(lines) > MOST_ROWS:
        size = lambda k: abs(float(lines[k][5])) if lines[k][5] else -1.0
        kept = sorted(sorted(kept, key=size, reverse=True)[:MOST_ROWS])
        note += f" The {MOST_ROWS:,} clients that gain or lose most; sites.csv has all."
    e = html.escape
    first = {
        i: f'<button class="client" type="button" data-at="{k}">{e(lines[k][0])}</button>'
        for i, k in enumerate(kept)
    }
    made = parts.table(sheet.columns, [lines[k] for k in kept], first, tall=True)
    return f"<h2>{e(sheet.title)}</h2><p>{e(note)}</p>{made}"
