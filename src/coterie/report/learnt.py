"""What became of a graph that was learnt: who is tied to whom, how it changed, and how well it
agrees with what nobody was told.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from coterie.coupling.graph import Graph, by_labels, from_arrays
from coterie.coupling.learnt.base import NAME, Evidence
from coterie.data.federation import Federation
from coterie.report.units import bytes_text

if TYPE_CHECKING:
    from coterie.engine.kinship import Kinship
    from coterie.report.comparison import Comparison

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class LearntGraph:
    """The last graph of a run, the sketches that it is made of, and a row for every time it was
    learnt: round, edges, the share of edges that it has in common with the one before, bytes sent.
    """

    graph: Graph
    evidence: Evidence
    history: Array

    @classmethod
    def of(cls, kinship: Kinship) -> LearntGraph:
        return cls(kinship.graph, kinship.evidence, np.array(kinship.history))

    def to_arrays(self) -> dict[str, Array]:
        return {
            **self.graph.arrays(),
            "sketches": np.asarray(self.evidence.sketches, np.float32),
            "known": self.evidence.known,
            "bits": np.array([self.evidence.bits]),
            "history": self.history,
        }

    @classmethod
    def from_arrays(cls, found: dict[str, Array]) -> LearntGraph:
        known = found["known"].astype(bool)
        evidence = Evidence(found["sketches"].astype(float), known, int(found["bits"][0]))
        return cls(from_arrays(found, len(known), NAME), evidence, found["history"])

    def agreement(self, truth: Array) -> float | None:
        """The chance that a pair that belongs together has a larger cosine than one that does not
        (the AUC of `truth`, a matrix of who belongs together); None where all or none do.
        """
        ids = np.flatnonzero(self.evidence.known)
        s = self.evidence.sketches[ids]
        low, high = np.triu_indices(len(ids), 1)
        cosines = self.evidence.cosines(s)[:, ids][low, high]
        together = np.asarray(truth)[np.ix_(ids, ids)][low, high].astype(bool)
        count, total = int(together.sum()), len(together)
        if count in (0, total):
            return None
        ranks = float(rankdata(cosines)[together].sum())
        return (ranks - count * (count + 1) / 2) / (count * (total - count))


def who_belongs_together(federation: Federation) -> tuple[Array, str] | None:
    """What nobody was told: hidden clusters where they are known, else the strongest ties of the
    graph "similar"; and what that is.
    """
    clusters = federation.facts.get("cluster")
    if clusters is not None:
        of = np.asarray(clusters)
        return of[:, None] == of[None], "the hidden clusters"
    if federation.task != "classification":
        return None
    weights = by_labels(federation.label_counts()).weights
    top = weights.data.max(initial=0.0)
    return weights.toarray() >= max(top, 1e-9), 'the strongest ties of the graph "similar"'


def _count(components: int) -> str:
    return "connected" if components == 1 else f"{components} components"


def sentences(comparison: Comparison) -> list[str]:
    """What was learnt, of every method that learnt a graph, at its first seed."""
    out = []
    for entry in comparison.entries:
        found = entry.outcomes[0].learnt
        if found is None:
            continue
        graph, n = found.graph, found.graph.clients
        degrees = graph.degrees
        text = (
            f"{entry.label} learnt a graph of {graph.edges} edges between {n} clients"
            f" ({degrees.min()} to {degrees.max()} neighbours, {_count(graph.components)})"
        )
        known = who_belongs_together(comparison.federation) if n <= 5000 else None
        if known is not None and n == comparison.federation.clients:
            auc = found.agreement(known[0])
            if auc is not None:
                text += f"; its cosines tell {known[1]} from other pairs with an AUC of {auc:.3f}"
        if len(found.history) > 1:
            text += (
                f"; learnt {len(found.history)} times, the last two have"
                f" {100 * found.history[-1][2]:.0f}% of their edges in common"
            )
        if found.history.shape[1] > 3:  # earlier versions did not write it down
            sent = float(found.history[:, 3].sum()) / n
            text += f"; a client sent {bytes_text(sent)} for it"
        out.append(text + ".")
    return out


def figures(comparison: Comparison) -> list[tuple[str, str]]:
    """A picture of each learnt graph, and its caption."""
    out = []
    for entry in comparison.entries:
        found = entry.outcomes[0].learnt
        if found is not None and 1 < found.graph.clients <= 2000:
            caption = (
                f"The graph that {entry.label} learnt (seed {entry.outcomes[0].seed}): weights"
                " between clients, ordered so that neighbours stand together."
            )
            out.append((picture(found), caption))
    return out


def picture(found: LearntGraph) -> str:
    """Weights as a matrix, and where it was learnt several times the share of edges that stayed."""
    from coterie.report.figures import pyplot, svg

    plt = pyplot()
    several = len(found.history) > 1
    figure, axes = plt.subplots(1, 2 if several else 1, figsize=(7.4 if several else 4.2, 3.8))
    first = axes[0] if several else axes
    order = arranged(found.graph)
    shown = found.graph.weights.toarray()[np.ix_(order, order)]
    drawn = first.imshow(shown, cmap="Greys", interpolation="nearest", vmin=0)
    first.grid(visible=False)
    first.set_xticks([])
    first.set_yticks([])
    first.set_xlabel("clients")
    first.set_ylabel("clients")
    figure.colorbar(drawn, ax=first, fraction=0.046, label="weight")
    if several:
        axes[1].plot(found.history[1:, 0], 100 * found.history[1:, 2], marker=".")
        axes[1].set_xlabel("round")
        axes[1].set_ylabel("edges as before (%)")
        axes[1].set_ylim(0, 105)
    figure.tight_layout()
    return svg(figure)


def arranged(graph: Graph) -> Array:
    """The clients, component by component, each along its Fiedler vector."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(graph.weights, directed=False)
    order = []
    for c in sorted(range(count), key=lambda c: (-int((label == c).sum()), c)):
        inside = np.flatnonzero(label == c)
        if len(inside) > 2:
            laplacian = graph.subset(inside).laplacian.toarray()
            _, vectors = np.linalg.eigh(laplacian)
            inside = inside[np.argsort(vectors[:, 1], kind="stable")]
        order.append(inside)
    return np.concatenate(order)
