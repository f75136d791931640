"""Rules that try others' models: their choices by hand, what they find in a run, what it costs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput
from coterie.coupling.learnt import Evidence, GraphRule, get_rule
from coterie.data.federation import pack
from coterie.engine.reference import simulate_slowly
from tests.engine.test_kinship import SAME, SITES, TRAINING, two

__all__ = ["two"]  # a fixture

X = np.array([[0.0], [0.2], [1.0], [1.1], [5.0]])
AIM = np.array([0.1, 0.1, 1.05, 1.05, 5.0])


def losses(sets: np.ndarray) -> np.ndarray:
    """Models are numbers; the loss at client k is its distance to AIM[k], squared."""
    there = sets >= 0
    mean = (X[np.maximum(sets, 0), 0] * there).sum(2) / np.maximum(there.sum(2), 1)
    return (mean - AIM[:, None]) ** 2


def evidence() -> Evidence:
    """Sketches that rank others by how near they are."""
    angle = 0.2 * X[:, 0]
    sketches = np.stack([np.cos(angle), np.sin(angle)], 1)
    return Evidence(sketches, np.ones(5, bool), 32, losses)


def test_gain_by_hand() -> None:
    """Only models that do better at a client count, per distance."""
    rule = get_rule("gain", {"tries": 2, "total": 2.0, "neighbours": 4})
    found = rule.graph(evidence()).weights.toarray()
    # 0 and 1 are equally far from their aim, 2 and 3 too, and 4 is where it should be: no gains.
    np.testing.assert_array_equal(found, 0)
    moved = Evidence(*evidence()[:3], lambda sets: losses(sets) + 0.5 * (sets[:, :, 0] == 0))
    found = rule.graph(moved).weights.toarray()
    # 0's own model is worse now: of its two candidates 1 gains 0.5 and 2 nothing.
    assert set(zip(*np.nonzero(found), strict=True)) == {(0, 1), (1, 0)}
    np.testing.assert_allclose(found[0, 1], 2.0 * 5 / 2)  # all there is: `total` on average


def test_greedy_by_hand() -> None:
    rule = get_rule("greedy", {"tries": 4, "neighbours": 3})
    found = rule.graph(evidence()).weights.toarray()
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = expected[2, 3] = expected[3, 2] = 1  # their mean is the aim
    np.testing.assert_array_equal(found, expected)


def test_greedy_takes_several_while_it_helps_and_no_more_than_allowed() -> None:
    """Client 0 wants to be at 2: with 4 it is at 2.5, with 2 besides at 2; nobody else helps."""
    aim = np.array([2.0, *X[1:, 0]])

    def far(sets: np.ndarray) -> np.ndarray:
        there = sets >= 0
        mean = (X[np.maximum(sets, 0), 0] * there).sum(2) / np.maximum(there.sum(2), 1)
        return (mean - aim[:, None]) ** 2

    for count, expected in ((1, {4}), (2, {2, 4}), (3, {2, 4})):
        rule = get_rule("greedy", {"tries": 4, "neighbours": count})
        found = rule.graph(Evidence(*evidence()[:3], far)).weights.toarray()
        assert set(np.flatnonzero(found[0])) == expected


def rule(name: str, **more: Any) -> GraphRule:
    return get_rule(name, {"tries": 4, "sketch": 16, "after": 3, **more})


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("gain", "dfedu"),
        pytest.param("greedy", "fedu", marks=pytest.mark.slow),
        pytest.param("gain", "fedu", marks=pytest.mark.slow),
        pytest.param("greedy", "dfedu", marks=pytest.mark.slow),
    ],
)
def test_in_a_run_it_ties_kin_and_is_the_slow_reference_s_too(
    name: str, method: str, two: Federation
) -> None:
    options = {**TRAINING, "precision": "float64"}
    fast = coterie.simulate(method, two, graph=rule(name), **options)
    weights = fast.simulator.graph.weights.toarray()
    assert weights.sum() > 0
    assert weights[~SAME].sum() == 0
    slow = simulate_slowly(method, two, graph=rule(name), **options)
    np.testing.assert_allclose(weights, slow.simulator.graph.weights.toarray(), rtol=1e-9)
    np.testing.assert_array_equal(fast.ledger.rows().sum(0)[2:], slow.ledger.rows().sum(0)[2:])
    plain = coterie.simulate(
        method, two, graph=get_rule("kin", {"sketch": 16, "after": 3}), **options
    )
    at = lambda result: result.ledger.rows()[result.ledger.rows()[:, 0] == 3]
    sketches = lambda rows: rows[rows[:, 4] == 0][:, 3].sum()
    model = 8 * 18
    assert sketches(at(fast)) - sketches(at(plain)) == 4 * SITES * model


def test_what_cannot_be(two: Federation) -> None:
    method = coterie.GraphProj(dsub=4)
    with pytest.raises(InvalidInput, match="the messages of graph-proj are no models"):
        coterie.simulate(method, two, graph=rule("gain"), **TRAINING)
    nobody = [(x[:0], y[:0]) for x, y in (two.test.client(k) for k in range(SITES))]
    blind = dataclasses.replace(two, validation=pack(nobody))
    with pytest.raises(InvalidInput, match="'greedy' looks at clients' own validation rows"):
        coterie.simulate("fedu", blind, graph=rule("greedy"), **TRAINING)
