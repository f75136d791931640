"""What the scripts of a report draw: the numbers of a comparison, rounded and thinned so that the
page stays small.

Values are as people know them (per cent where the metric is shown so). What is not known is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.coupling.graph import Graph
from coterie.methods.local import Local
from coterie.report.budget import mean_scores
from coterie.report.comparison import Comparison, Entry
from coterie.report.layout import places
from coterie.report.outcome import Outcome

Array = NDArray[Any]
MOST_CLIENTS = 2000
"""Clients that are drawn one by one."""
MOST_NUMBERS = 150_000
"""Numbers of all clients' curves together; beyond it they are thinned, then left out."""
MOST_POINTS = 200
"""Evaluations of a curve."""
MOST_TIED, MOST_TIES = 300, 2500
"""Clients of a graph that is drawn, and its strongest edges."""
MOST_ROWS, MOST_LABELS = 150, 60
"""Clients and labels of the heat map."""


def plain(values: Any, digits: int = 3) -> Any:
    """Arrays as lists of short numbers; what is not finite is None.

    >>> plain(np.array([[1.23456, float("nan")], [1e6 + 1, 0.000123456]]))
    [[1.235, None], [1000001.0, 0.0001235]]
    """
    found = np.asarray(values, float)
    if found.ndim:
        return [plain(v, digits) for v in found]
    v = float(found)
    if not np.isfinite(v):
        return None
    return round(v, digits) if abs(v) >= 1 else float(f"{v:.{digits + 1}g}")


def on_one_line(text: str) -> str:
    """A title of an axis: Vega makes expressions of them, which end with a line.

    >>> on_one_line("a" + chr(0x2028) + "b")
    'a b'
    """
    return " ".join(text.split())


def thinned(count: int, most: int) -> Array:
    """Which of `count` places are kept, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(2, most))).round().astype(int))


def curve_of(outcomes: Sequence[Outcome], members: Array) -> tuple[Array, Array] | None:
    """Rounds, and the mean score of every seed at each, up to where the first of them stopped;
    seeds that collapsed are left out. None when all did.
    """
    whole = [o for o in outcomes if not o.collapsed]
    if not whole:
        return None
    length = min(len(o.rounds) for o in whole)
    return (
        np.asarray(whole[0].rounds[:length]),
        np.array([mean_scores(o, members)[:length] for o in whole]),
    )


def drawn(comparison: Comparison, graphs: Mapping[str, Graph] | None = None) -> dict[str, Any]:
    """All that is drawn, as plain values; `graphs` are those that were given, by method."""
    metric, federation = comparison.metric, comparison.federation
    chosen = _clients(comparison)
    better = "" if metric.higher else ", smaller is better"
    title = on_one_line(metric.title)
    learnt = {
        e.label: found.graph
        for e in comparison.entries
        if (found := e.outcomes[0].learnt) is not None
    }
    return {
        "metric": {
            "title": title,
            "label": f"test {title}{' (%)' if metric.percent else ''}{better}",
            "gain": f"gain over Local{' (points)' if metric.percent else ''}",
            "higher": metric.higher,
        },
        "methods": [_method(e, comparison.entries) for e in comparison.entries],
        "curves": [_curves(e, comparison) for e in comparison.entries],
        "fairness": [_fairness(e, comparison) for e in comparison.entries],
        "bill": [_bill(e) for e in comparison.entries],
        "clients": {
            "all": federation.clients,
            "ids": chosen.tolist(),
            "names": [comparison.client_name(int(k)) for k in chosen],
            "train": federation.train.sizes[chosen].tolist(),
            "test": comparison.tested[chosen].astype(int).tolist(),
            "counts": comparison.members[chosen].tolist(),
            "scores": [_ends(e, comparison, chosen) for e in comparison.entries],
            **_each(comparison, chosen),
        },
        "labels": _labels(comparison),
        "graphs": [_graph(e, {**(graphs or {}), **learnt}, comparison) for e in comparison.entries],
    }


def _clients(comparison: Comparison) -> Array:
    """Those that are drawn one by one: all, or the worst of the first method and every so many."""
    n = len(comparison.tested)
    if n <= MOST_CLIENTS:
        return np.arange(n)
    entry = next((e for e in comparison.entries if not e.collapsed), comparison.entries[0])
    worst = np.argsort(np.nan_to_num(entry.outcomes[0].last(), nan=np.inf))[: MOST_CLIENTS // 4]
    return np.union1d(worst, thinned(n, MOST_CLIENTS - len(worst)))


def _method(entry: Entry, entries: Sequence[Entry]) -> dict[str, Any]:
    local = next(
        (i for i, e in enumerate(entries) if e.outcomes is entry.local and entry.measured), None
    )
    return {
        "label": entry.label,
        "alone": isinstance(entry.outcomes[0].method, Local),
        "against": local,
        "collapsed": entry.collapsed,
        "seeds": [o.seed for o in entry.outcomes],
        "graph": entry.graph,
    }


def _shown(scores: Any, comparison: Comparison) -> Array:
    return np.asarray(scores) * comparison.metric.sign * comparison.metric.unit


def _curves(entry: Entry, comparison: Comparison) -> dict[str, Any] | None:
    """Over rounds, bytes and gradients per client: mean over seeds, and their deviation."""
    found = curve_of(entry.outcomes, comparison.members)
    if found is None:
        return None
    rounds, scores = found
    keep, n = thinned(len(rounds), MOST_POINTS), comparison.federation.clients
    whole = [o for o in entry.outcomes if not o.collapsed]
    over = lambda name: np.mean([getattr(o, name)[: len(rounds)] for o in whole], axis=0)[keep] / n
    values = _shown(scores, comparison)
    return {
        "rounds": rounds[keep].astype(int).tolist(),
        "bytes": plain(over("up") + over("down"), 0),
        "gradients": plain(over("gradients"), 1),
        "mean": plain(values.mean(0)[keep]),
        "std": plain(values.std(0, ddof=1)[keep]) if len(values) > 1 else None,
    }


def _fairness(entry: Entry, comparison: Comparison) -> list[list[float]] | None:
    """Deviation between clients and mean, at each seed."""
    if entry.collapsed:
        return None
    some = comparison.members if comparison.members.any() else slice(None)
    values = [_shown(o.last()[some], comparison) for o in entry.outcomes]
    return plain([[np.nanstd(v), np.nanmean(v)] for v in values])


def _bill(entry: Entry) -> list[float]:
    """Bytes of all clients together, up and down."""
    return [float(np.mean([getattr(o, way)[-1] for o in entry.outcomes])) for way in ("up", "down")]


def _ends(entry: Entry, comparison: Comparison, chosen: Array) -> list[float | None] | None:
    if entry.collapsed:
        return None
    return plain(_shown(np.mean([o.last()[chosen] for o in entry.outcomes], axis=0), comparison))


def _each(comparison: Comparison, chosen: Array) -> dict[str, Any]:
    """Every client's curve by method, over rounds; not where there are too many."""
    whole = [e for e in comparison.entries if not e.collapsed]
    points = MOST_NUMBERS // max(1, len(whole) * len(chosen))
    if points < 3:
        return {"rounds": None, "curves": None}
    rounds: list[list[int] | None] = []
    curves: list[Any] = []
    for entry in comparison.entries:
        if entry.collapsed:
            rounds.append(None)
            curves.append(None)
            continue
        length = min(len(o.rounds) for o in entry.outcomes)
        keep = thinned(length, min(points, 40))
        of = [o.scores[o.view][:length][keep][:, chosen] for o in entry.outcomes]
        rounds.append(np.asarray(entry.outcomes[0].rounds)[keep].astype(int).tolist())
        curves.append(plain(_shown(np.mean(of, axis=0), comparison).T, 2))
    return {"rounds": rounds, "curves": curves}


def _labels(comparison: Comparison) -> dict[str, Any] | None:
    """How many training rows of each label the clients have; None for regression."""
    federation = comparison.federation
    if federation.task != "classification":
        return None
    counts = federation.label_counts()
    rows = thinned(federation.clients, MOST_ROWS)
    most = np.sort(np.argsort(-counts.sum(0), kind="stable")[:MOST_LABELS])
    names = federation.facts.get("labels")
    known = names if names is not None and len(names) == counts.shape[1] else range(len(counts.T))
    return {
        "names": [str(known[c]) for c in most],
        "all": int(counts.shape[1]),
        "clients": rows.tolist(),
        "of": [comparison.client_name(int(k)) for k in rows],
        "counts": counts[np.ix_(rows, most)].astype(int).tolist(),
    }


def _graph(
    entry: Entry, graphs: Mapping[str, Graph], comparison: Comparison
) -> dict[str, Any] | None:
    """Who is tied to whom, and where each is drawn."""
    graph = graphs.get(entry.label)
    if graph is None or not 1 < graph.clients <= MOST_TIED:
        return None
    if graph.clients != comparison.federation.clients:
        return None  # some clients were held out
    upper = np.triu(graph.weights.toarray(), 1)
    a, b = np.nonzero(upper)
    weights = upper[a, b]
    strongest = np.argsort(-weights, kind="stable")[:MOST_TIES]
    edges = zip(a[strongest].tolist(), b[strongest].tolist(), weights[strongest], strict=True)
    return {
        "kind": entry.graph or graph.name,
        "all": graph.edges,
        "edges": [[i, j, plain(w)] for i, j, w in edges],
        "places": plain(places(graph)),
    }
