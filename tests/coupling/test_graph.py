"""Graphs: valid or refused, Laplacians as linear algebra says, the papers' rules by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import coterie
from coterie import Federation, Graph, InvalidInput, graph


@st.composite
def matrices(draw: Any) -> np.ndarray:
    n = draw(st.integers(1, 9))
    upper = np.triu(
        draw(arrays(np.float64, (n, n), elements=st.one_of(st.just(0.0), st.floats(1e-3, 10)))), 1
    )
    return np.asarray(upper + upper.T)


@settings(max_examples=60, deadline=None)
@given(a=matrices())
def test_the_laplacian_is_what_linear_algebra_says(a: np.ndarray) -> None:
    g = graph.from_matrix(a)
    lap = g.laplacian.toarray()
    np.testing.assert_allclose(lap, np.diag(a.sum(1)) - a)
    np.testing.assert_allclose(lap.sum(1), 0, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(lap)
    assert eigenvalues.min() > -1e-10
    assert g.laplacian_norm == pytest.approx(max(np.linalg.norm(lap, 2), 0), abs=1e-10)
    zeros = int((eigenvalues < 1e-9).sum())
    assert g.components == zeros
    assert g.connected == (zeros == 1)
    assert (g.clients, g.edges) == (len(a), np.count_nonzero(np.triu(a)))
    np.testing.assert_array_equal(g.degrees, (a > 0).sum(1))


@settings(max_examples=40, deadline=None)
@given(a=matrices())
def test_the_table_and_the_neighbours_are_the_matrix(a: np.ndarray) -> None:
    g = graph.from_matrix(sp.coo_array(a))
    index, weight = g.table()
    back = np.zeros_like(a)
    np.add.at(
        back, (np.repeat(np.arange(len(a)), index.shape[1]), index.reshape(-1)), weight.reshape(-1)
    )
    np.testing.assert_array_equal(back, a)
    assert (index[weight == 0] == np.nonzero(weight == 0)[0]).all(), (
        "padding points at the client itself"
    )
    assert index.shape[1] == max(1, (a > 0).sum(1).max())
    for k in range(len(a)):
        who, how = g.neighbours(k)
        row = np.zeros(len(a))
        row[who] = how
        np.testing.assert_array_equal(row, a[k])


def _with(k: int, l: int, value: float) -> np.ndarray:
    a = np.ones((4, 4)) - np.eye(4)
    a[k, l] = value
    return a


@pytest.mark.parametrize(
    ("matrix", "says"),
    [
        (_with(1, 2, 0.5), "not symmetric: the weight from client"),
        (_with(1, 2, 0.0), "not symmetric"),
        (_with(1, 2, -0.25), "weight -0.25 between clients 1 and 2"),
        (_with(1, 2, np.nan), "NaN or infinite"),
        (_with(1, 2, np.inf), "NaN or infinite"),
        (_with(3, 3, 1.0), "couples client 3 to itself"),
        (np.ones((2, 3)), "2×3, but must be square"),
        (np.ones(3), "must be a square table of numbers"),
        ([["a", "b"], ["b", "a"]], "must be a square table of numbers"),
        ([[0, 1], [1]], "square table of numbers"),
    ],
    ids=[
        "asymmetric",
        "one way",
        "negative",
        "nan",
        "infinite",
        "self-loop",
        "not square",
        "flat",
        "text",
        "ragged rows",
    ],
)
def test_bad_matrices_are_refused_with_one_sentence(matrix: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        graph.from_matrix(matrix)
    assert "\n" not in str(caught.value)


def test_a_graph_of_another_size_than_the_federation_is_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="the graph has 4 clients, but the federation has 5"):
        coterie.simulate("fedu", ragged, graph=graph.ring(4), rounds=1)
    with pytest.raises(InvalidInput, match="the graph has 3 clients"):
        graph.build("matrix", ragged, matrix=(np.ones((3, 3)) - np.eye(3)).tolist())


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_named_shapes(n: int) -> None:
    assert graph.complete(n).edges == n * (n - 1) // 2
    assert graph.star(n).edges == n - 1
    assert graph.ring(n).edges == {1: 0, 2: 1, 3: 3, 6: 6}[n]
    assert graph.complete(n, 2.0).laplacian_norm == pytest.approx(2 * n if n > 1 else 0)
    assert all(g.connected for g in (graph.complete(n), graph.star(n), graph.ring(n)))
    assert set(graph.ring(n, 0.25).weights.data) <= {0.25}


def test_the_norm_of_a_large_graph_agrees_with_the_known_spectrum() -> None:
    g = graph.ring(
        1000
    )  # more than are solved densely; eigenvalues 2 − 2cos(2πj/N), so 4 for even N
    assert g.laplacian_norm == pytest.approx(4.0, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 12), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_nearest_is_symmetric_and_holds_everybodys_choices(n: int, k: int, seed: int) -> None:
    points = np.random.default_rng(seed).standard_normal((n, 2))
    if k >= n:
        with pytest.raises(InvalidInput, match=r"graph\.neighbours"):
            graph.nearest(points, k)
        return
    a = graph.nearest(points, k, 0.5).weights.toarray()
    distance = np.linalg.norm(points[:, None] - points[None], axis=2) + np.diag(np.full(n, np.inf))
    chosen = np.zeros((n, n), bool)
    np.put_along_axis(chosen, np.argsort(distance, axis=1)[:, :k], True, axis=1)
    np.testing.assert_array_equal(a, 0.5 * (chosen | chosen.T))


def test_nearest_takes_no_more_than_asked_when_points_coincide() -> None:
    """Clients with the same labels have the same point: a client must still choose `neighbours`
    others, not one more.
    """
    assert graph.nearest(np.zeros((6, 2)), 1).edges <= 6
    assert graph.nearest(np.repeat([[0.0], [5.0]], 4, axis=0), 2).edges <= 16


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_random_graphs_follow_their_probability_and_seed(probability: float) -> None:
    g = graph.random_graph(60, probability, seed=4)
    pairs = 60 * 59 / 2
    assert abs(g.edges - probability * pairs) <= 5 * np.sqrt(
        pairs * probability * (1 - probability)
    )
    assert (g.weights != graph.random_graph(60, probability, seed=4).weights).nnz == 0
    if 0 < probability < 1:
        assert (g.weights != graph.random_graph(60, probability, seed=5).weights).nnz > 0
    for bad in (-0.1, 1.1, np.nan):
        with pytest.raises(InvalidInput, match=r"graph\.probability"):
            graph.random_graph(5, bad)


def test_random_weights_are_normal_numbers_brought_to_0_to_1() -> None:
    """One per pair, over all pairs: the smallest becomes 0, which is no edge, and the largest 1.

    With a normal distribution half of them lie within 0.674 σ of the mean; with a uniform one it
    would be 0.389.
    """
    g = graph.random_weights(60, seed=2)
    a = g.weights.toarray()[np.triu_indices(60, 1)]
    assert (a.min(), a.max(), g.edges) == (0, 1, 60 * 59 / 2 - 1)
    assert np.mean(np.abs(a - a.mean()) < 0.674 * a.std()) == pytest.approx(0.5, abs=0.05)
    assert (g.weights != graph.random_weights(60, seed=2).weights).nnz == 0
    assert (g.weights != graph.random_weights(60, seed=3).weights).nnz > 0


def test_random_weights_of_few_clients() -> None:
    """A single pair has no range: it is coupled."""
    assert graph.random_weights(1).edges == 0
    assert graph.random_weights(2).weights.toarray().tolist() == [[0, 1], [1, 0]]


def test_random_weights_follow_graph_weight(ragged: Federation) -> None:
    one, three = (graph.build("random", ragged, weight=w, seed=4) for w in (1.0, 3.0))
    np.testing.assert_allclose(three.weights.toarray(), 3 * one.weights.toarray())
    assert three.weights.data.max() == 3


def test_weighted_by_hand() -> None:
    """FedU's "Weighted": 0 small–small, ½ small–large, 1 large–large."""
    a = graph.by_size(np.array([10, 100, 20, 200])).weights.toarray()
    np.testing.assert_array_equal(
        a, [[0, 0.5, 0, 0.5], [0.5, 0, 0.5, 1], [0, 0.5, 0, 0.5], [0.5, 1, 0.5, 0]]
    )


def test_similar_by_hand() -> None:
    """FedU's "Similar": 0, ½ or 1 by shared labels (two labels each)."""
    counts = np.array([[5, 5, 0, 0], [9, 1, 0, 0], [0, 3, 3, 0], [0, 0, 2, 2]])
    a = graph.by_labels(counts).weights.toarray()
    np.testing.assert_array_equal(
        a, [[0, 1, 0.5, 0], [1, 0, 0.5, 0], [0.5, 0.5, 0, 0.5], [0, 0, 0.5, 0]]
    )


def test_every_kind_can_be_built_by_name(ragged: Federation) -> None:
    for kind in set(graph.KINDS) - {"hidden"}:
        g = graph.build(kind, ragged, weight=2.0, matrix=np.ones((5, 5)) - np.eye(5))
        assert g.clients == 5
        assert "5 clients" in g.describe()
    assert set(graph.build("equal", ragged).weights.data) == {0.5}
    with pytest.raises(InvalidInput, match=r"graph.kind 'rng' is unknown; did you mean 'ring'"):
        graph.build("rng", ragged)
    with pytest.raises(InvalidInput, match=r"graph.weight is 0"):
        graph.build("ring", ragged, weight=0)
    with pytest.raises(InvalidInput, match=r"graph.matrix .* is missing"):
        graph.build("matrix", ragged)
    with pytest.raises(InvalidInput, match="cannot be read"):
        graph.build("matrix", ragged, matrix="nowhere.npy")


def test_not_connected_is_reported() -> None:
    a = np.zeros((4, 4))
    a[0, 1] = a[1, 0] = a[2, 3] = a[3, 2] = 1
    g = Graph(sp.csr_array(a))
    assert (g.components, g.connected) == (2, False)
    assert "2 components (not connected)" in g.describe()


def test_the_graph_of_hidden_clusters() -> None:
    fed = coterie.load("synthetic", clients=6, hidden=2, mean_size=20, sizes="equal")
    graph = coterie.graph.build("hidden", fed, weight=0.5)
    cluster = np.array(fed.facts["cluster"])
    expected = 0.5 * (cluster[:, None] == cluster[None]) * (1 - np.eye(6))
    np.testing.assert_array_equal(graph.weights.toarray(), expected)
    with pytest.raises(coterie.InvalidInput, match=r"has no hidden clusters; data\.hidden makes"):
        coterie.graph.build("hidden", coterie.load("digits", clients=3))
