"""One self-contained HTML page: the table, what it says in words, and the figures.

No scripts, nothing loaded from elsewhere.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from coterie.report import figures, learnt
from coterie.report.comparison import Comparison
from coterie.report.counted import outcomes_of, which_round
from coterie.report.measures import Sheet
from coterie.report.sites import sites_sheet
from coterie.report.tables import MEANING, filled, partly
from coterie.report.words import how

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2330; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.85rem; }
th, td { padding: 0.35rem 0.6rem; border-bottom: 1px solid #d9dee7; }
th, td { text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.muted { color: #7a8496; }
.scroll { overflow-x: auto; } .figures { display: grid; gap: 1rem; }
.figures { grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); }
figure { margin: 0; } figure svg { width: 100%; height: auto; }
figcaption { color: #4b5565; font-size: 0.85rem; }
pre { background: #f4f6f9; padding: 0.8rem; overflow-x: auto; font-size: 0.8rem; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""


def _sheet(sheet: Sheet) -> str:
    e = html.escape
    head = "".join(f"<th>{e(c)}</th>" for c in sheet.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{e(c)}</td>" for c in line) + "</tr>" for line in sheet.lines
    )
    table = (
        "<div"
        f' class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    return f"<h2>{e(sheet.title)}</h2><p>{e(sheet.note)}</p>{table}"


def _client_table(comparison: Comparison) -> str:
    sheet = sites_sheet(comparison)
    return "" if sheet is None else _sheet(sheet)


def page(comparison: Comparison, config: str = "", more: Sequence[Sheet] = ()) -> str:
    """The report of a comparison as HTML text; `more` are further tables."""
    fed = comparison.federation
    e = html.escape
    columns, lines = filled(comparison)
    muted = lambda line: ' class="muted"' if line[0].startswith("(") else ""
    body = "".join(
        f"<tr{muted(line)}>" + "".join(f"<td>{e(c)}</td>" for c in line) + "</tr>" for line in lines
    )
    first, *rest = comparison.answer().sentences
    answer = f"<p><strong>{e(first)}</strong></p><p>{e(' '.join(rest))}</p>"
    sentences = [*comparison.verdict(), *comparison.notes()]
    words = (
        "<ul>"
        + "".join(f"<li>{e(sentence)}</li>" for sentence in sentences)
        + f"</ul><p>{e(how(comparison.metric))}</p>"
    )
    rounds_svg, bytes_svg = figures.over_rounds_and_bytes(comparison)
    drawn = [
        (rounds_svg, "Clients' mean score over rounds (band: standard deviation over seeds)."),
        (bytes_svg, "The same over the bytes a client has sent and received."),
        (
            figures.spread_over_clients(comparison),
            "Every client's score at the end; box: quartiles.",
        ),
        (
            figures.accuracy_and_fairness(comparison),
            "Mean score and how much it varies between clients; diamonds: mean of seeds.",
        ),
        (
            figures.gain_over_local(comparison),
            "Each client's gain over training alone with equal gradient steps, sorted.",
        ),
    ]
    drawn += learnt.figures(comparison)
    pictures = "".join(
        f"<figure>{svg}<figcaption>{e(text)}</figcaption></figure>" for svg, text in drawn
    )
    seeds = sorted({o.seed for entry in comparison.entries for o in entry.outcomes})
    facts = (
        f"{fed.name}: {fed.clients} clients, {len(fed.train):,} training, {len(fed.validation):,}"
        f" validation and {len(fed.test):,} test samples; seed{'s' if len(seeds) > 1 else ''}"
        f" {', '.join(map(str, seeds))}. Scores are of the"
        f" {which_round(outcomes_of(comparison))}, on test data."
    )
    head = (
        '<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{e(comparison.title)} · coterie</title><style>{STYLE}</style></head>"
    )
    names = "".join(f"<th>{e(c)}</th>" for c in columns)
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
    meaning = f"<p>In the table, {e(MEANING + partly(comparison))}.</p>"
    return (
        f'<!doctype html><html lang="en">{head}<body><h1>{e(comparison.title)}</h1>'
        f"<p>{e(facts)}</p>"
        f"<h2>Should these clients federate?</h2>{answer}{_client_table(comparison)}"
        f'<h2>Methods side by side</h2><div class="scroll">{table}</div>{meaning}'
        f"<h2>Method by method</h2>{words}"
        + "".join(_sheet(sheet) for sheet in more)
        + f'<h2>Figures</h2><div class="figures">{pictures}</div>'
        + (f"<h2>Experiment</h2><pre>{e(config)}</pre>" if config else "")
        + "</body></html>\n"
    )
