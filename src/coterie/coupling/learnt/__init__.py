"""Graphs that nobody has to know: rules that learn who is like whom from what clients send."""

from coterie.coupling.learnt import dada, kin, similarity, tried  # rules register themselves
from coterie.coupling.learnt.base import (
    RULES,
    Evidence,
    GraphRule,
    get_rule,
    learn_graph,
    read_rule,
)

__all__ = [
    "RULES",
    "Evidence",
    "GraphRule",
    "dada",
    "get_rule",
    "kin",
    "learn_graph",
    "read_rule",
    "similarity",
    "tried",
]
