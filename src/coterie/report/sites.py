"""One row per client: what it has, what it reaches alone and with the method of the answer, and how
sure that is.
"""

from __future__ import annotations

import csv
import io
from typing import NamedTuple

import numpy as np

from coterie.report.answer import choose
from coterie.report.comparison import Comparison
from coterie.report.gain import paired_rows, shared_rows
from coterie.report.measures import Sheet
from coterie.report.significance import of_these_sites
from coterie.report.words import Words


class Site(NamedTuple):
    """A client in numbers; scores are means over seeds, larger is better."""

    client: str
    train: int
    test: int
    local: float
    best: float
    gain: float
    low: float | None
    high: float | None
    verdict: str


def sites(comparison: Comparison) -> list[Site]:
    """All clients, in their order; those that do not count have a verdict that says so."""
    choice = choose(comparison)
    if choice is None:
        return []
    mine, alone = choice.entry.outcomes, choice.local.outcomes
    rows = paired_rows(mine, alone, comparison.counted)
    shared = rows is not None and shared_rows(mine, rows)
    found, train = choice.gain.clients, comparison.federation.train.sizes
    words = {}
    if found is not None:
        words = dict.fromkeys(found.helped, "clearly helped")
        words |= dict.fromkeys(found.hurt, "clearly hurt")
    out = []
    for k in range(len(comparison.members)):
        local, best = (float(np.mean([o.last()[k] for o in side])) for side in (alone, mine))
        low = high = None
        if rows is not None and comparison.members[k]:
            own = [r.only(k) for r in rows]
            tested = of_these_sites(own, shared=shared)
            low, high = tested.low, tested.high
        verdict = words.get(k, "cannot tell" if comparison.members[k] else _apart(comparison, k))
        tests = int(comparison.tested[k])
        out.append(
            Site(
                comparison.client_name(k),
                int(train[k]),
                tests,
                local,
                best,
                best - local,
                low,
                high,
                verdict,
            )
        )
    return out


def _apart(comparison: Comparison, k: int) -> str:
    tests = int(comparison.tested[k])
    return "no test rows" if tests == 0 else f"too few test rows ({tests})"


def sites_sheet(comparison: Comparison) -> Sheet | None:
    """The table of clients; None when there is no answer."""
    choice, found = choose(comparison), sites(comparison)
    if choice is None or not found:
        return None
    words = Words(comparison)
    signed = words.gain
    lines = []
    for s in found:
        interval = "" if s.low is None or s.high is None else f"{signed(s.low)} to {signed(s.high)}"
        scores = [words.value(v) if np.isfinite(v) else "" for v in (s.local, s.best)]
        gain = signed(s.gain) if np.isfinite(s.gain) else ""
        lines.append([s.client, str(s.train), str(s.test), *scores, gain, interval, s.verdict])
    columns = ["client", "training rows", "test rows", choice.local.label, choice.entry.label]
    note = (
        "Of the method of the answer, mean over seeds. The interval is each client's own, at 95%;"
        " the verdict is corrected for the number of clients."
    )
    return Sheet("Client by client", note, [*columns, "gain", "95% interval", "verdict"], lines)


def sites_csv(comparison: Comparison) -> str:
    """The same as CSV, numbers in full."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(Site._fields)
    for s in sites(comparison):
        table.writerow(["" if v is None or v != v else v for v in s])
    return out.getvalue()
