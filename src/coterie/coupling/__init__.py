"""Coupling between clients is data: a graph, a penalty, a projection."""

from coterie.coupling import graph, penalty, projection
from coterie.coupling.graph import Graph
from coterie.coupling.projection import Projection

__all__ = ["Graph", "Projection", "graph", "penalty", "projection"]
