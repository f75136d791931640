"""Which client graph couples the clients: of an experiment, or of one of its methods."""

from __future__ import annotations

from typing import Any, ClassVar

from coterie.core.options import Options, option, traced_dataclass
from coterie.coupling import graph as graphs
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import RULES, GraphRule, get_rule, read_rule
from coterie.data.federation import Federation


@traced_dataclass
class GraphOptions(Options):
    """Which client graph couples the clients (methods without a graph ignore it)."""

    name: ClassVar[str] = "graph"

    kind: str = option(
        "complete",
        'the rule that makes the graph; "learn": it is learnt while training (see rule)',
        choices=(*graphs.KINDS, "learn"),
    )
    weight: float = option(
        1.0,
        "weight of an edge (rules with several weights scale theirs by it)",
        symbol="a_kl",
        above=0,
    )
    neighbours: int = option(2, 'neighbours per client of the kind "nearest"', low=1)
    probability: float = option(0.5, 'of an edge, for the kind "random-graph"', low=0, high=1)
    seed: int = option(0, "of the random kinds", low=0)
    matrix: str | None = option(None, 'a .npy file with the weights, for the kind "matrix"')

    rule: GraphRule | str | dict[str, Any] | None = option(
        None,
        'how the kind "learn" finds who is like whom: a name, or a table of a name and options;'
        ' nothing: "kin"',
        choices=tuple(RULES),
        read=read_rule,
    )

    def unused(self) -> dict[str, str]:
        """What the kind of graph leaves without effect."""
        if self.kind != "learn":
            return {"rule": f"graph.kind is {self.kind!r}"}
        reason = 'graph.kind is "learn", and the rule has options of its own'
        given = ("weight", "neighbours", "probability", "seed", "matrix")
        return dict.fromkeys(given, reason)

    @property
    def learns(self) -> GraphRule:
        """The rule of the kind "learn"."""
        return get_rule("kin") if self.rule is None else read_rule("graph.rule", self.rule)

    def build(self, federation: Federation) -> Graph | GraphRule:
        """The graph, or the rule that learns it."""
        if self.kind == "learn":
            return self.learns
        return graphs.build(
            self.kind,
            federation,
            weight=self.weight,
            neighbours=self.neighbours,
            probability=self.probability,
            seed=self.seed,
            matrix=self.matrix,
        )
