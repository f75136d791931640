"""Who is coupled to whom: weighted, undirected graphs over the clients, kept sparse."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from coterie.core.errors import InvalidInput, shown, unknown
from coterie.core.files import read_arrays
from coterie.coupling.checked import symmetric
from coterie.coupling.near import nearest_others
from coterie.data.arguments import as_federation
from coterie.data.federation import Federation
from coterie.data.shape import ProblemShape

KINDS = (
    "complete",
    "star",
    "ring",
    "nearest",
    "random-graph",
    "random",
    "equal",
    "weighted",
    "similar",
    "hidden",
    "matrix",
)
PAIRWISE = 20_000
"""The most clients of graphs that look at every pair of them."""


EXACT_NORM = 2_000
"""The most clients whose ‖L‖ is worked out to the last digit."""


@dataclasses.dataclass(frozen=True)
class Graph:
    """Weights a_kl ≥ 0 between clients, symmetric, without self-loops.

    >>> g = ring(5)
    >>> g.clients, g.edges, g.connected, round(g.laplacian_norm, 3)
    (5, 5, True, 3.618)
    """

    weights: sp.csr_array
    name: str = "matrix"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", symmetric(self.weights))

    @property
    def clients(self) -> int:
        return int(self.weights.shape[0])

    @property
    def edges(self) -> int:
        return int(self.weights.nnz) // 2

    @property
    def degrees(self) -> NDArray[np.int64]:
        """Neighbours per client."""
        return np.diff(self.weights.indptr)

    @cached_property
    def widest(self) -> int:
        """The most neighbours that a client has."""
        return int(self.degrees.max(initial=0))

    @property
    def laplacian(self) -> sp.csr_array:
        """L = D − A."""
        return sp.csr_array(sp.diags_array(self.weights.sum(axis=1)) - self.weights)

    @property
    def laplacian_norm(self) -> float:
        """ρ = ‖L‖, the largest eigenvalue; of many clients to about a thousandth."""
        if self.weights.nnz == 0:
            return 0.0
        if self.clients <= 500:
            return float(np.linalg.eigvalsh(self.laplacian.toarray())[-1])
        start = np.random.default_rng(0).standard_normal(self.clients)
        tol = 0.0 if self.clients <= EXACT_NORM else 1e-3
        given = {"which": "LA", "return_eigenvectors": False, "v0": start, "tol": tol}
        return float(eigsh(self.laplacian, k=1, **given)[0])

    @property
    def components(self) -> int:
        return int(connected_components(self.weights, directed=False, return_labels=False))

    @property
    def connected(self) -> bool:
        return self.components == 1

    def neighbours(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The neighbours of client k and their weights."""
        rows = slice(self.weights.indptr[k], self.weights.indptr[k + 1])
        return self.weights.indices[rows], self.weights.data[rows]

    def table(self, width: int | None = None) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Neighbours and weights as two (N, width) arrays, by default as wide as the largest
        degree; padding has the weight 0 and points at the client itself.
        """
        width = max(1, int(self.degrees.max(initial=0))) if width is None else width
        index = np.repeat(np.arange(self.clients, dtype=np.int32)[:, None], width, 1)
        weight = np.zeros((self.clients, width))
        slot = np.arange(self.weights.nnz) - np.repeat(self.weights.indptr[:-1], self.degrees)
        row = np.repeat(np.arange(self.clients), self.degrees)
        index[row, slot] = self.weights.indices
        weight[row, slot] = self.weights.data
        return index, weight

    def arrays(self) -> dict[str, NDArray[Any]]:
        """For files; `from_arrays` is the inverse."""
        a = self.weights
        indptr, indices = (np.asarray(part, np.int64) for part in (a.indptr, a.indices))
        return {"indptr": indptr, "indices": indices, "weights": np.asarray(a.data, np.float64)}

    def describe(self) -> str:
        """One line for people: edges, degrees, connectivity, ‖L‖."""
        parts = (
            f"{self.components} components (not connected)" if not self.connected else "connected"
        )
        low, high = int(self.degrees.min()), int(self.degrees.max())
        return (
            f"{self.name} graph: {self.clients} clients, {self.edges} edges, degree {low}–{high},"
            f" {parts}, ‖L‖ = {self.laplacian_norm:.4g}"
        )

    def subset(self, clients: NDArray[Any]) -> Graph:
        """The graph between some of the clients, in the order given."""
        return Graph(self.weights[clients][:, clients], self.name)

    def check_size(self, clients: int) -> Graph:
        if self.clients != clients:
            raise InvalidInput(
                f"the graph has {self.clients} clients, but the federation has {clients}; they must"
                " be as many."
            )
        return self


def from_matrix(matrix: Any, name: str = "matrix") -> Graph:
    """A graph from a dense or sparse symmetric matrix of weights."""
    if not sp.issparse(matrix):
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise InvalidInput(
                "the graph's matrix has rows of different lengths, but must be a square table of"
                " numbers."
            ) from None
        if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.number):
            raise InvalidInput(
                f"the graph's matrix has the shape {matrix.shape}, but must be a square table of"
                " numbers."
            )
    return Graph(sp.csr_array(matrix), name)


def from_arrays(found: dict[str, NDArray[Any]], clients: int, name: str) -> Graph:
    """The inverse of `Graph.arrays`."""
    parts = (found["weights"], found["indices"], found["indptr"])
    return Graph(sp.csr_array(parts, shape=(clients, clients)), name)


def from_edges(n: int, rows: Any, columns: Any, weights: Any, name: str) -> Graph:
    """Edges given once; both directions are stored. Repeated edges count once."""
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    number = low.astype(np.int64) * n + high
    del low, high  # of a million clients they are many
    weights = np.asarray(weights, float)
    if weights.ndim:
        number, first = np.unique(number, return_index=True)
        weights = weights[first]
    else:
        number.sort()
        number = number[np.diff(number, prepend=-1) > 0]
    low, high = (part.astype(np.int32) for part in np.divmod(number, n))
    del number
    both = (
        np.resize(weights, 2 * len(low)),
        (np.concatenate([low, high]), np.concatenate([high, low])),
    )
    return Graph(sp.csr_array(sp.coo_array(both, shape=(n, n))), name)


def _pairs(n: int, name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if n > PAIRWISE:
        raise InvalidInput(
            f"the graph is {name!r}, which looks at every pair of clients, and there are {n:,} of"
            f" them; with more than {PAIRWISE:,} it must be 'ring', 'nearest' or a sparse matrix."
        )
    return np.triu_indices(n, 1)


def complete(clients: int, weight: float = 1.0, name: str = "complete") -> Graph:
    """Everybody with everybody. (weight = 0.5 is "Equal" of the FedU paper.)"""
    return from_edges(clients, *_pairs(clients, name), weight, name)


def star(clients: int, weight: float = 1.0, centre: int = 0) -> Graph:
    """One client in the middle, coupled to all others."""
    others = np.setdiff1d(np.arange(clients), [centre])
    return from_edges(clients, np.full_like(others, centre), others, weight, "star")


def ring(clients: int, weight: float = 1.0) -> Graph:
    """Client k with k ± 1."""
    k = np.arange(clients if clients > 2 else clients - 1)
    return from_edges(clients, k, (k + 1) % clients, weight, "ring")


def nearest(points: NDArray[Any], neighbours: int, weight: float = 1.0) -> Graph:
    """Each client with its `neighbours` nearest ones (Euclidean distance of the given points), made
    symmetric by taking either's choice. Of many clients they are approximate (`near.py`).
    """
    n = len(points)
    if not 1 <= neighbours < max(n, 2):
        raise InvalidInput(
            f"graph.neighbours is {neighbours}, but must be a whole number from 1 to {n - 1} (one"
            " less than the clients)."
        )
    near = nearest_others(points, neighbours)
    return from_edges(n, np.repeat(np.arange(n), neighbours), near.reshape(-1), weight, "nearest")


def random_graph(clients: int, probability: float, weight: float = 1.0, seed: int = 0) -> Graph:
    """Erdős–Rényi: each pair is coupled with the given probability."""
    if not 0 <= probability <= 1:
        raise InvalidInput(
            f"graph.probability is {probability!r}, but must be a number ≥ 0 and ≤ 1."
        )
    rng = np.random.default_rng([seed, 0x62])
    rows, columns = _pairs(clients, "random-graph")
    keep = rng.random(len(rows)) < probability
    return from_edges(clients, rows[keep], columns[keep], weight, "random-graph")


def random_weights(clients: int, seed: int = 0, *, weight: float = 1.0) -> Graph:
    """ "Random" of the FedU paper: one number from N(0, 1) for every pair, brought to [0, 1].

    The paper does not say how. Here it is (a − min)/(max − min) over all N(N−1)/2 pairs, times
    `weight`: the pair with the smallest number is not coupled, the one with the largest has the
    weight `weight`. The published code differs: the mean of two numbers from U(0, 1), and 0 where
    that is below 0.25.
    """
    rows, columns = _pairs(clients, "random")
    drawn = np.random.default_rng([seed, 0x63]).standard_normal(len(rows))
    if len(drawn) > 1:
        drawn = (drawn - drawn.min()) / (drawn.max() - drawn.min())
    else:
        drawn = np.ones(len(drawn))  # a single pair has no range
    return from_edges(clients, rows, columns, weight * drawn, "random")


def by_size(sizes: NDArray[Any], *, weight: float = 1.0) -> Graph:
    """ "Weighted" of the FedU paper: 0 between two small clients, ½ between a small and a large
    one, 1 between two large ones.

    A client is large when it has more training samples than the median.
    """
    large = np.asarray(sizes) > np.median(sizes)
    rows, columns = _pairs(len(sizes), "weighted")
    return from_edges(
        len(sizes),
        rows,
        columns,
        weight * 0.5 * (large[rows].astype(int) + large[columns]),
        "weighted",
    )


def by_labels(label_counts: NDArray[Any], *, weight: float = 1.0) -> Graph:
    """ "Similar" of the FedU paper: 0 without a common label, ½ with some, 1 when two clients hold
    the same labels.
    """
    has = np.asarray(label_counts) > 0
    rows, columns = _pairs(len(has), "similar")
    common = (has[rows] & has[columns]).sum(1)
    same = (has[rows] == has[columns]).all(1)
    return from_edges(
        len(has),
        rows,
        columns,
        weight * np.where(same, 1.0, np.where(common > 0, 0.5, 0.0)),
        "similar",
    )


def build(
    kind: str,
    federation: Federation | ProblemShape,
    *,
    weight: float = 1.0,
    neighbours: int = 2,
    probability: float = 0.5,
    seed: int = 0,
    matrix: Any = None,
) -> Graph:
    """The graph of a config: `kind` by name, for the clients of a federation.

    Kinds that need nobody's data can do with the shape of the problem.
    """
    known = federation if isinstance(federation, ProblemShape) else as_federation(federation)
    n = known.clients
    if not isinstance(kind, str):
        raise InvalidInput(f"graph.kind is {shown(kind)}, but must be one of {', '.join(KINDS)}.")
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
        raise InvalidInput(f"graph.weight is {shown(weight)}, but must be a number > 0.")
    if kind == "matrix":
        if matrix is None:
            raise InvalidInput(
                "graph.kind is 'matrix', but graph.matrix (a list of N lists of N numbers, or a"
                " .npy file) is missing."
            )
        if isinstance(matrix, str):
            matrix = read_arrays(Path(matrix), "graph.matrix").get("")
        return from_matrix(matrix).check_size(n)
    blind = {
        "complete": lambda: complete(n, weight),
        "equal": lambda: complete(n, 0.5 * weight, "equal"),
        "star": lambda: star(n, weight),
        "ring": lambda: ring(n, weight),
        "random-graph": lambda: random_graph(n, probability, weight, seed),
        "random": lambda: random_weights(n, seed, weight=weight),
    }
    if kind in blind:
        return blind[kind]()
    if kind not in KINDS:
        raise unknown("graph.kind", kind, KINDS)
    if isinstance(known, ProblemShape):
        raise InvalidInput(
            f"graph.kind is {kind!r}, but that rule reads everybody's data; without it the kind"
            f" must be one of {', '.join(blind)}."
        )
    if kind == "weighted":
        return by_size(known.train.sizes, weight=weight)
    if kind == "hidden":
        return by_cluster(known, weight=weight)
    if kind == "similar":
        if known.task != "classification":
            raise InvalidInput(
                "graph.kind is 'similar', but that rule needs class labels and the task is"
                " regression."
            )
        return by_labels(known.label_counts(), weight=weight)
    if known.task == "classification":
        return nearest(known.label_counts() / known.train.sizes[:, None], neighbours, weight)
    return nearest(_means(known), neighbours, weight)


def by_cluster(federation: Federation, *, weight: float = 1.0) -> Graph:
    """Everybody with everybody of the same hidden cluster, which nobody is told."""
    if "cluster" not in federation.facts:
        raise InvalidInput(
            f"graph.kind is 'hidden', but {federation.name!r} has no hidden clusters; data.hidden"
            " makes some."
        )
    cluster = np.asarray(federation.facts["cluster"])
    rows, columns = _pairs(len(cluster), "hidden")
    alike = cluster[rows] == cluster[columns]
    return from_edges(len(cluster), rows[alike], columns[alike], weight, "hidden")


def _means(federation: Federation) -> NDArray[Any]:
    """Each client's mean input: what "nearest" goes by when there are no labels."""
    train = federation.train
    flat = train.x.reshape(len(train.x), -1)
    return np.add.reduceat(flat, train.offsets[:-1], axis=0) / train.sizes[:, None]
