"""The kinds of client graphs, and what each of them reads of the clients."""

from __future__ import annotations

from typing import NamedTuple

from coterie.coupling.graph import KINDS


class GraphKind(NamedTuple):
    """A kind of graph: what it is, and what somebody must know of everybody to build it."""

    summary: str
    oracle: str = ""
    """What it reads of all clients; nothing: no data. A real federation has no such oracle."""


GRAPHS: dict[str, GraphKind] = {
    "complete": GraphKind("everybody with everybody; reads nothing"),
    "equal": GraphKind('the same with half the weight ("Equal" of the FedU paper); reads nothing'),
    "star": GraphKind("one client with all others; reads nothing"),
    "ring": GraphKind("each client with the one before and after it; reads nothing"),
    "random-graph": GraphKind("each pair with a given probability; reads nothing"),
    "random": GraphKind("all pairs with random weights; reads nothing"),
    "similar": GraphKind(
        "by common labels; an oracle: reads everybody's labels", "everybody's labels"
    ),
    "nearest": GraphKind(
        "the nearest by shares of labels (by mean inputs, for numbers); an oracle: reads"
        " everybody's data",
        "everybody's labels or inputs",
    ),
    "weighted": GraphKind(
        "by numbers of samples; an oracle: reads everybody's sizes",
        "everybody's number of training samples",
    ),
    "hidden": GraphKind(
        "everybody of the same hidden cluster (data.hidden); an oracle: reads what nobody is told",
        "hidden clusters",
    ),
    "matrix": GraphKind("weights that somebody knows, from a file"),
    "learn": GraphKind(
        "learnt while training, from what clients send (`coterie list rules`); reads no data"
    ),
}
assert set(GRAPHS) == {*KINDS, "learn"}


def oracle_sentence(kind: str) -> str | None:
    """What a table that uses this kind of graph must say; None: nothing."""
    read = GRAPHS[kind].oracle if kind in GRAPHS else ""
    if not read:
        return None
    return (
        f'The graph "{kind}" is an oracle: it reads {read}, which no real federation has. The kind'
        ' "learn" reads nothing.'
    )
