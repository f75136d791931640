"""Coupling between clients is data: a graph, a penalty, a projection."""

from coterie.coupling import graph, merges, penalty, projection
from coterie.coupling.graph import Graph
from coterie.coupling.projection import Projection

__all__ = ["Graph", "Projection", "graph", "merges", "penalty", "projection"]
