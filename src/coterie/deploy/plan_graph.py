"""The client graph of a plan: of a kind that needs nobody's data, edges by name, or learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from coterie.core.errors import InvalidInput, unknown
from coterie.coupling import graph as graphs
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.kinship import check_rule

if TYPE_CHECKING:
    from coterie.deploy.plan import Plan

GRAPHS = ("complete", "ring", "star", "equal", "random-graph", "random")
"""Kinds that need nobody's data."""
LEARN = "learn"


def graph_of(plan: Plan) -> Graph:
    """The graph that a plan gives."""
    given = dict(plan.graph)
    edges = given.pop("edges", None)
    if edges is None:
        return _of_kind(plan, given)
    if given:
        raise unknown("the option of graph,", next(iter(given)), ("edges",))
    weights: dict[tuple[int, int], float] = {}
    for edge in edges if isinstance(edges, list) else [edges]:
        k, l, weight = _edge(plan, edge)
        weights[min(k, l), max(k, l)] = weight
    ends = np.array([*weights], np.int64).reshape(-1, 2)
    return graphs.from_edges(
        plan.size, ends[:, 0], ends[:, 1], np.array([*weights.values()]), "edges"
    )


def _of_kind(plan: Plan, given: dict[str, Any]) -> Graph:
    kind = given.pop("kind", "complete")
    if kind not in GRAPHS:
        raise unknown("graph.kind", kind, (*GRAPHS, LEARN, "edges"))
    for key in given:
        if key not in ("weight", "probability", "seed"):
            known = ("kind", "weight", "probability", "seed", "edges")
            raise unknown("the option of graph,", key, known)
    try:
        # These kinds look at nothing but the number of clients.
        return graphs.build(kind, cast(Federation, plan.shape), **given)
    except InvalidInput:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"graph is {plan.graph!r}: {error}.") from None


def _edge(plan: Plan, edge: Any) -> tuple[int, int, float]:
    if not isinstance(edge, list) or len(edge) not in (2, 3):
        raise InvalidInput(
            f"graph.edges holds {edge!r}, but every edge must be [client, client] or [client,"
            " client, weight]."
        )
    k, l = (plan.number(str(end)) for end in edge[:2])
    if k == l:
        raise InvalidInput(f"graph.edges holds {edge!r}, but an edge joins two different clients.")
    weight = edge[2] if len(edge) == 3 else 1.0
    if not isinstance(weight, (int, float)) or not weight > 0:
        raise InvalidInput(f"graph.edges holds {edge!r}, but its weight must be a number > 0.")
    return k, l, weight


class Look(NamedTuple):
    """A time when the graph is learnt."""

    exchange: int
    """Before so many rounds with work."""
    round: int
    """Before this round, as the simulator counts them."""


def looks(plan: Plan) -> list[Look]:
    """When the graph of a plan is learnt. Where it is due several times between two rounds with
    work, only the first counts: nobody has trained since.
    """
    if (rule := plan.rule) is None:
        return []
    due = ((i, [t for t in plan.since(i) if rule.due(t)]) for i in range(plan.exchanges))
    return [Look(i, rounds[0]) for i, rounds in due if rounds]


def check_learnt(plan: Plan) -> None:
    """A graph that is learnt: what a real federation cannot do."""
    if (rule := plan.rule) is None:
        return
    check_rule(rule, plan.method)
    if rule.tries_models:
        raise InvalidInput(
            f"the rule {rule.name!r} tries others' models, which real federations do not do"
            ' yet; take "kin", "dada", "attention" or "simplex".'
        )
    if not plan.peers:
        if getattr(plan.method, "hears_all", False) and plan.cohort < plan.size:
            raise InvalidInput(
                f'{plan.method.name}.neighbours is "all" and the graph is learnt, but a hub'
                " does not know the models of clients that have trained alone and were not"
                ' sampled since; take neighbours = "sampled", or all clients in every round.'
            )
        return
    if isinstance(plan.clients, int):
        raise InvalidInput(
            f"clients is {plan.clients} and the graph is learnt, but peers must know whom they"
            " may meet: give the list of their names."
        )
    if not rule.gossips:
        raise InvalidInput(
            f"{plan.method.name} has no hub that could hear everybody's sketch: take the rule"
            ' { name = "kin", ties = "both", gossip = 8 }, or a graph that is given.'
        )
