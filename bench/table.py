"""The tables of `python -m bench`, as Markdown."""

from __future__ import annotations

from bench.contenders import CONTENDERS, OURS, Contender
from bench.problems import ROWS, Problem
from bench.timing import Entry, Row

LOST = "**"
"""Around a ratio below 1: they are faster than we are."""


def told(row: Row) -> str:
    return titled(row.problem)


def titled(p: Problem) -> str:
    """A problem in a few words."""
    shape = "×".join(map(str, p.sizes)) if p.model in ("mlr", "mlp") else f"{p.side}×{p.side}"
    steps = f"{p.steps}×{p.inner}" if p.inner > 1 else f"{p.steps}"
    dsub = f", dsub {p.dsub}" if p.dsub else ""
    return f"{p.method}, {p.model} {shape}{dsub}, N = {p.clients}, {steps} steps"


def milliseconds(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def columns(rows: list[Row]) -> list[tuple[str, Contender, int | None]]:
    """A column per contender that played anywhere; the loop has one per number of threads, the
    others the number that suits them best.
    """
    found: list[tuple[str, Contender, int | None]] = []
    for contender in CONTENDERS:
        if contender is OURS or not any(row.best(contender.name) for row in rows):
            continue
        if contender.name == "loop":
            found += [(f"loop, {n} thread{'s' * (n > 1)}", contender, n) for n in contender.threads]
        else:
            found.append((contender.title, contender, None))
    return found


def entry_of(row: Row, contender: Contender, threads: int | None) -> Entry | None:
    if threads is None:
        return row.best(contender.name)
    return row.entries.get(f"{contender.name}-{threads}")


def left_out(rows: list[Row]) -> list[str]:
    """What `python -m bench` knows and this run does not have."""
    there = [row.problem for row in rows]
    missing = [titled(p) for p in ROWS if p not in there]
    if not missing:
        return []
    return [
        f"Not in this run: {'; '.join(missing)}. [conv.result.md](conv.result.md) has"
        " convolutions, McMahan's CNN with 20 steps among them.",
        "",
    ]


def times(rows: list[Row]) -> list[str]:
    heads = columns(rows)
    lines = [
        "| problem | coterie | " + " | ".join(h[0] for h in heads) + " |",
        "|---|" + "---|" * (len(heads) + 1),
    ]
    for row in rows:
        cells = [milliseconds(row.entries[OURS.name].median)]
        for _, contender, threads in heads:
            entry = entry_of(row, contender, threads)
            best = f" ({entry.threads})" if entry and threads is None and entry.threads else ""
            about = "≈ " if entry and not entry.count else ""
            cells.append(about + milliseconds(entry.median) + best if entry else "–")
        lines.append(f"| {told(row)} | " + " | ".join(cells) + " |")
    return lines


def ratios(rows: list[Row], cpu: bool = False) -> list[str]:
    heads = [h for h in columns(rows) if not (cpu and h[1].elsewhere)]
    lines = [
        "| problem | " + " | ".join(h[0] for h in heads) + " |",
        "|---|" + "---|" * len(heads),
    ]
    for row in rows:
        cells = []
        for _, contender, threads in heads:
            entry = entry_of(row, contender, threads)
            about = "≈ " if entry and not entry.count else ""
            cells.append(about + _ratio(row.ratio(entry, cpu)) if entry else "–")
        lines.append(f"| {told(row)} | " + " | ".join(cells) + " |")
    return lines


def _ratio(found: tuple[float, float, float]) -> str:
    short = lambda v: f"{v:.0f}" if v >= 10 else f"{v:.2g}"
    mark = LOST if found[0] < 1 else ""
    return f"{mark}{short(found[0])}×{mark} ({short(found[1])}–{short(found[2])})"


def bounds(rows: list[Row]) -> list[str]:
    lines = [
        "| problem | ms | executed MFLOP | GFLOP/s, of peak | MB moved, of bandwidth | operations |"
        " least ms: compute, bandwidth, overhead | bound | times that |",
        "|---|" + "---|" * 8,
    ]
    for row in rows:
        facts = row.facts
        if "least" not in facts:
            continue
        spent, least = row.entries[OURS.name].median, facts["least"]
        bound = max(least, key=least.__getitem__)
        rate = facts["flops"] / spent
        cells = [
            milliseconds(spent),
            f"{facts['flops'] / 1e6:,.0f}",
            f"{rate / 1e9:.1f}, {rate / facts['peak']:.0%}",
            f"{facts['bytes'] / 1e6:,.0f}, {least['bandwidth'] / spent:.0%}",
            f"{facts['operations']:,.0f}",
            ", ".join(f"{1e3 * least[k]:.2g}" for k in ("compute", "bandwidth", "overhead")),
            bound,
            f"{spent / least[bound]:.1f}",
        ]
        lines.append(f"| {told(row)} | " + " | ".join(cells) + " |")
    return lines


def missing(rows: list[Row]) -> list[str]:
    """Who could not play, and how to get them."""
    found: dict[str, tuple[str, list[str]]] = {}
    for row in rows:
        for name, reason in row.missing.items():
            found.setdefault(name, (reason, []))[1].append(told(row))
    titles = {c.name: c.title for c in CONTENDERS}
    return [
        f"- {titles[name]}, {reason} ({len(where)} row{'s' * (len(where) > 1)})"
        for name, (reason, where) in found.items()
    ]
