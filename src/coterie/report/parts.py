"""Pieces of HTML pages that stand alone: nothing is loaded from elsewhere.

All text that comes from users goes through `html.escape`, and numbers for the scripts through
`embedded`. The page's own policy names its scripts by their hashes, so no other script runs.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from coterie.report.measures import Sheet
from coterie.report.units import leading

LIBRARIES = ("vega.min.js", "vega-lite.min.js")


@cache
def asset(name: str) -> str:
    """A file that is shipped beside this one."""
    return files("coterie.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _script(name: str) -> str:
    """A script; a library with its licences, which travel with every copy."""
    text = asset(name)
    if name == LIBRARIES[0]:
        licences = asset("LICENSES.txt")
        text = f"/*\nVega, Vega-Lite and what they are built from:\n\n{licences}*/\n{text}"
    return text.replace("</script", "<\\/script")


def policy(scripts: Sequence[str], connect: str = "'none'") -> str:
    """What the page may do: run these very scripts, and load nothing. Vega makes functions of the
    expressions in its specifications, which needs 'unsafe-eval'.
    """
    digests = (hashlib.sha256(_script(name).encode()).digest() for name in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(d).decode()}'" for d in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline';"
        f" img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def embedded(value: Any) -> str:
    """JSON that can stand inside a page: nothing in it ends a script or begins a tag.

    >>> embedded({"name": "</script><b>&"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e\\\\u0026"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def document(
    title: str,
    body: str,
    data: Any,
    scripts: Sequence[str] = (*LIBRARIES, "charts.js", "page.js", "report.js"),
    connect: str = "'none'",
) -> str:
    """A whole page; the scripts find `data` in the element of that name."""
    e = html.escape
    run = "".join(f"<script>{_script(name)}</script>" for name in scripts)
    return (
        '<!doctype html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{e(policy(scripts, connect))}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{e(title)} · coterie</title><style>{asset('report.css')}</style></head><body>"
        f'<header><h1>{e(title)}</h1><button id="theme" type="button"'
        ' title="Light or dark">Dark</button></header>'
        f'<main>{body}</main><div id="tip" role="tooltip" hidden></div>'
        "<noscript><p>The figures need JavaScript; the tables do not.</p></noscript>"
        f'<script type="application/json" id="data">{embedded(data)}</script>{run}</body></html>\n'
    )


def cell(text: str, shown: str | None = None) -> str:
    """A cell; the number that it begins with is what its column is sorted by."""
    number = leading(text)
    key = "" if number is None else f' data-v="{number:.12g}"'
    return f"<td{key}>{html.escape(text) if shown is None else shown}</td>"


def table(
    columns: Sequence[str],
    lines: Sequence[Sequence[str]],
    first: Mapping[int, str] | None = None,
    *,
    tall: bool = False,
) -> str:
    """A table that can be sorted; lines that begin with a bracket stand apart. `first` has the HTML
    of first cells, by line, where it is not their text.
    """
    head = "".join(f'<th scope="col">{html.escape(c)}</th>' for c in columns)
    body = ""
    for i, line in enumerate(lines):
        muted = ' class="muted"' if line and line[0].startswith("(") else ""
        own = (first or {}).get(i)
        cells = "".join(cell(text, own if j == 0 else None) for j, text in enumerate(line))
        body += f"<tr{muted}>{cells}</tr>"
    return (
        f'<div class="scroll{" tall" if tall else ""}" tabindex="0" role="region"'
        ' aria-label="table"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def sheet_html(sheet: Sheet) -> str:
    e = html.escape
    return f"<h2>{e(sheet.title)}</h2><p>{e(sheet.note)}</p>{table(sheet.columns, sheet.lines)}"


def figure(name: str, title: str, note: str, controls: str = "", *, wide: bool = False) -> str:
    """A frame that the scripts draw into, with what is drawn as a table below."""
    e = html.escape
    return (
        f'<figure id="figure-{name}"{" class=wide" if wide else ""}><h3>{e(title)}</h3>{controls}'
        f'<div class="chart"></div><figcaption class="note">{e(note)}</figcaption>'
        '<details><summary>As a table</summary><div class="scroll tall" tabindex="0" role="region"'
        ' aria-label="table"></div></details></figure>'
    )


def choice(name: str, title: str, options: Mapping[str, str]) -> str:
    """Radio buttons; the first is chosen."""
    e = html.escape
    boxes = "".join(
        f'<label class="chip"><input type="radio" name="{e(name)}" value="{e(value)}"'
        f"{' checked' if i == 0 else ''}>{e(text)}</label>"
        for i, (value, text) in enumerate(options.items())
    )
    return f"<fieldset><legend>{e(title)}</legend>{boxes}</fieldset>"


METHODS = '<fieldset id="methods"><legend>Methods in the figures</legend></fieldset>'


def jumps(targets: Mapping[str, str]) -> str:
    """Links to the sections of a page."""
    links = "".join(
        f'<li><a href="#{html.escape(i)}">{html.escape(t)}</a></li>' for i, t in targets.items()
    )
    return f'<nav aria-label="Sections"><ul>{links}</ul></nav>'


def experiment_html(config: str) -> str:
    if not config:
        return ""
    return (
        '<h2 id="experiment">Experiment</h2><details><summary>The whole of it, as a file'
        f"</summary><pre>{html.escape(config)}</pre></details>"
    )
