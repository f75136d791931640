"""Rules that learn a graph from sketches: against brute force, and against the conditions of a
minimum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.coupling.learnt import RULES, Evidence, base, dada, get_rule, read_rule


def evidence(vectors: NDArray[Any], known: Any = None, bits: int = 32) -> Evidence:
    there = np.ones(len(vectors), bool) if known is None else np.asarray(known)
    return Evidence(np.asarray(vectors, float), there, bits)


def clusters(sizes: tuple[int, ...] = (6, 5, 7), noise: float = 0.2) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    of = np.repeat(np.arange(len(sizes)), sizes)
    return np.eye(len(sizes), 24)[of] + noise * rng.normal(size=(len(of), 24)) / 5, of


def test_cosines_of_whole_vectors_are_exact() -> None:
    vectors = np.random.default_rng(1).normal(size=(7, 5))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(evidence(vectors).cosines(vectors), unit @ unit.T, atol=1e-12)


@pytest.mark.parametrize("bits", [1, 32])
def test_sketches_estimate_cosines(bits: int) -> None:
    """With m numbers to about 1/√m; with m bits to about π/(2√m)."""
    rng, m, d = np.random.default_rng(2), 4096, 50
    common = rng.normal(size=d)
    vectors = common + 1.5 * rng.normal(size=(8, d))
    sketches = vectors @ rng.normal(size=(m, d)).T
    sketches = np.sign(sketches) if bits == 1 else sketches
    truth = evidence(vectors).cosines(vectors)
    found = evidence(sketches, bits=bits).cosines(sketches)
    assert np.abs(found - truth).max() < 4 * (np.pi / 2 if bits == 1 else 1) / np.sqrt(m)


def test_kin_are_the_nearest_of_either() -> None:
    vectors = np.random.default_rng(3).normal(size=(15, 6))
    cosines = evidence(vectors).cosines(vectors)
    np.fill_diagonal(cosines, -np.inf)
    chosen = np.zeros((15, 15), bool)
    for k in range(15):
        chosen[k, np.argsort(-cosines[k])[:3]] = True
    graph = get_rule("kin", {"neighbours": 3, "crowd": 5.0, "weight": 0.5}).graph(evidence(vectors))
    np.testing.assert_array_equal(graph.weights.toarray(), 0.5 * (chosen | chosen.T))


def test_kin_are_the_nearest_of_both_if_asked() -> None:
    vectors = np.random.default_rng(3).normal(size=(15, 6))
    cosines = evidence(vectors).cosines(vectors)
    np.fill_diagonal(cosines, -np.inf)
    chosen = np.zeros((15, 15), bool)
    for k in range(15):
        chosen[k, np.argsort(-cosines[k])[:3]] = True
    rule = get_rule("kin", {"neighbours": 3, "ties": "both"})
    graph = rule.graph(evidence(vectors))
    np.testing.assert_array_equal(graph.weights.toarray(), chosen & chosen.T)
    assert graph.degrees.max() <= rule.most(15) == 3


def test_comparing_in_groups_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = evidence(np.random.default_rng(4).normal(size=(23, 6)), np.arange(23) % 4 > 0)
    whole = get_rule("kin", {"neighbours": 4}).graph(made)
    monkeypatch.setattr(base, "ROWS", 5)
    parts = get_rule("kin", {"neighbours": 4}).graph(made)
    np.testing.assert_array_equal(whole.weights.toarray(), parts.weights.toarray())


SKETCHED = [name for name in sorted(RULES) if not RULES[name].tries_models]
"""Those that try models are in test_tried.py."""


@pytest.mark.parametrize("name", SKETCHED)
def test_clusters_are_found_and_nobody_is_tied_to_whom_it_does_not_know(name: str) -> None:
    vectors, of = clusters()
    known = np.arange(len(of)) != 2
    graph = get_rule(name, {"neighbours": 4}).graph(evidence(vectors, known))
    weights = graph.weights.toarray()
    assert weights[2].sum() == 0
    within = of[:, None] == of[None]
    assert weights[~within].sum() < 0.01 * weights[within].sum()
    assert all(weights[k].sum() > 0 for k in np.flatnonzero(known))


def test_kin_must_be_alike_if_asked() -> None:
    vectors, of = clusters((3, 3))
    graph = get_rule("kin", {"neighbours": 4, "least": 0.5}).graph(evidence(vectors))
    within = of[:, None] == of[None]
    assert graph.weights.toarray()[~within].sum() == 0
    assert graph.weights.toarray()[within].sum() == 2 * 3 * 2


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 20), st.integers(1, 6), st.integers(0, 10**6))
def test_nobody_has_too_many_neighbours(clients: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Most point the same way, so that a few are everybody's nearest.
    vectors = rng.normal(size=(clients, 4)) + 3 * rng.random((clients, 1))
    for name in SKETCHED:
        rule = get_rule(name, {"neighbours": k})
        graph = rule.graph(evidence(vectors))
        assert graph.degrees.max(initial=0) <= rule.most(clients) <= clients - 1


def test_dada_is_at_the_minimum() -> None:
    """The gradient is 0 where there is a weight, and not negative where there is none."""
    rng = np.random.default_rng(5)
    low, high = np.triu_indices(9, 1)
    z = rng.exponential(size=len(low))
    a = dada.solve(low, high, z, 9, 0.3)
    degrees = np.full(9, dada.DELTA)
    np.add.at(degrees, low, a)
    np.add.at(degrees, high, a)
    gradient = z + 2 * 0.3 * a - 1 / degrees[low] - 1 / degrees[high]
    tied = a > 1e-6
    assert 0 < tied.sum() < len(a)
    assert np.abs(gradient[tied]).max() < 1e-3
    assert gradient[~tied].min() > -1e-3


def test_dada_agrees_with_another_solver() -> None:
    from scipy.optimize import minimize

    low, high = np.triu_indices(4, 1)
    z = np.array([0.2, 1.0, 1.4, 0.9, 1.3, 0.3])

    def objective(a: NDArray[Any]) -> float:
        degrees = np.full(4, dada.DELTA)
        np.add.at(degrees, low, a)
        np.add.at(degrees, high, a)
        return float(a @ z + 0.5 * a @ a - np.log(degrees).sum())

    other = minimize(objective, np.full(6, 0.5), method="SLSQP", bounds=[(0, None)] * 6, tol=1e-12)
    np.testing.assert_allclose(dada.solve(low, high, z, 4, 0.5), other.x, atol=2e-4)


def test_dada_weights_add_up_to_the_total() -> None:
    vectors, _ = clusters()
    graph = get_rule("dada", {"total": 5.0}).graph(evidence(vectors))
    assert graph.weights.sum() / graph.clients == pytest.approx(5.0)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_newcomer_is_tied_to_its_nearest(name: str) -> None:
    cosines = np.array([0.1, 0.9, -np.inf, 0.8, -0.5])
    weights = get_rule(name, {"neighbours": 2}).newcomer(cosines)
    assert set(np.flatnonzero(weights)) == {1, 3}


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("kim", "kin"),
        ({"name": "kin", "neighbors": 3}, "neighbours"),
        ({"neighbours": 3}, "must have a name"),
        ({"name": "kin", "bits": 7}, "kin.bits is 7, but must be 1 or 32"),
        ({"name": "kin", "after": 0}, "kin.after is 0"),
        (3, "graph.rule is 3"),
    ],
)
def test_wrong_rules_are_refused(given_: Any, wanted: str) -> None:
    with pytest.raises(InvalidInput, match=wanted):
        read_rule("graph.rule", given_)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6))
def test_the_largest_are_those_of_a_stable_sort(
    rows: int, columns: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([-np.inf, 0.0, 0.5, 1.0, *rng.normal(size=30)], (rows, columns))
    expected = np.argsort(-values, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(base.top(values, count), expected)
