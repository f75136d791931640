"""Graphs of many clients: neighbours that are nearly the nearest, and refusals of what is too
large.
"""

from __future__ import annotations

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.coupling import graph, near
from coterie.data.shape import ProblemShape


def test_approximate_neighbours_are_nearly_the_nearest() -> None:
    rng = np.random.default_rng(0)
    points = rng.multinomial(10, np.ones(10) / 10, 3000) / 10
    exact = near.nearest_others(points, 5)
    found = near.approximately(points, 5)
    chance = rng.integers(0, 3000, found.shape)
    apart = lambda index: np.linalg.norm(points[:, None] - points[index], axis=2).mean()
    assert apart(found) < 1.25 * apart(exact)
    assert apart(chance) > 2 * apart(exact), "else anything would do"
    assert (found != np.arange(3000)[:, None]).all()
    assert all(len(set(row)) == 5 for row in found.tolist())


def test_among_equal_points_nobody_is_everybodys_neighbour() -> None:
    found = near.approximately(np.ones((4000, 6)), 5)
    assert np.bincount(found.reshape(-1), minlength=4000).max() < 40


@pytest.mark.parametrize("kind", ["complete", "equal", "random-graph", "random"])
def test_graphs_of_all_pairs_are_refused_when_there_are_too_many(kind: str) -> None:
    shape = ProblemShape("classification", (2,), 2, 1_000_000, 3)
    with pytest.raises(InvalidInput, match=f"the graph is '{kind}', .* 1,000,000 of them") as told:
        graph.build(kind, shape)
    assert "\n" not in str(told.value)


def test_the_norm_of_a_very_large_ring_is_about_4() -> None:
    assert graph.ring(50_000).laplacian_norm == pytest.approx(4.0, rel=2e-3)
