"""The rules by which weights between clients are learnt, against their formulas and a general
solver, in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from coterie.coupling.learnt import attention, simplex

N = 5
KNOWN = np.array([True, False, True, True, False])


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def table(seed: int) -> NDArray[np.float64]:
    """Symmetric, with a diagonal that rules which look at it would show."""
    a = np.random.default_rng(seed).uniform(0.1, 3.0, (N, N))
    return a + a.T


@pytest.mark.parametrize("known", [None, KNOWN], ids=["all", "some"])
def test_attention_is_the_formula(known: NDArray[np.bool_] | None) -> None:
    d, alpha, sigma = table(1), 0.3, 1.7
    found = np.asarray(attention.weights(d, known, alpha=alpha, sigma=sigma))
    counts = np.ones(N, bool) if known is None else known
    expected = np.zeros((N, N))
    for k in range(N):
        for l in range(N):
            if l != k and counts[l]:
                expected[k, l] = alpha * np.exp(-d[k, l] / sigma) / sigma
        expected[k, k] = 1 - expected[k].sum()
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-14)


@pytest.mark.parametrize("known", [None, KNOWN], ids=["all", "some"])
def test_the_heuristic_is_the_formula(known: NDArray[np.bool_] | None) -> None:
    cosines, own, sigma = table(2) / 6, 0.35, 4.0
    found = np.asarray(attention.heuristic(cosines, known, self_weight=own, sigma=sigma))
    counts = np.ones(N, bool) if known is None else known
    expected = np.diag(np.full(N, own))
    for k in range(N):
        others = [l for l in range(N) if l != k and counts[l]]
        parts = np.exp(sigma * cosines[k, others])
        expected[k, others] = (1 - own) * parts / parts.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-14)


def test_a_row_alone_is_the_row_of_the_table() -> None:
    d = table(3)
    whole = attention.weights(d, KNOWN, alpha=0.2, sigma=2.0)
    alike = attention.heuristic(d, KNOWN, self_weight=0.4, sigma=1.0)
    for k in range(N):
        row = attention.weights(d[k], KNOWN, k, alpha=0.2, sigma=2.0)
        np.testing.assert_array_equal(row, whole[k])
        row = attention.heuristic(d[k], KNOWN, k, self_weight=0.4, sigma=1.0)
        np.testing.assert_array_equal(row, alike[k])


def test_no_weight_is_negative_with_the_largest_safe_step() -> None:
    """α = σ/N and all models alike: the most that others can count, and the client itself 1/N; with
    a larger step its own weight sinks below 0.
    """
    alike, sigma = np.zeros((N, N)), 0.7
    found = attention.weights(alike, alpha=sigma / N, sigma=sigma)
    np.testing.assert_allclose(found, 1 / N, rtol=1e-14)
    assert float(attention.weights(alike, alpha=sigma, sigma=sigma)[0, 0]) == 2 - N


def test_who_knows_nobody_is_alone() -> None:
    only = np.arange(N) == 2
    for found in (
        attention.weights(table(4), only, alpha=0.1, sigma=1.0),
        attention.heuristic(table(4), only, self_weight=0.3, sigma=1.0),
    ):
        np.testing.assert_array_equal(np.asarray(found)[2], np.eye(N)[2])
        assert (np.asarray(found)[0, [0, 2]] > 0).all()
        np.testing.assert_array_equal(np.asarray(found)[0, [1, 3, 4]], 0)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.4, 5.0])
@pytest.mark.parametrize("known", [None, KNOWN], ids=["all", "some"])
def test_simplex_weights_solve_their_quadratic_program(
    alpha: float, known: NDArray[np.bool_] | None
) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.uniform(1, 9, N)
    d = -np.clip(table(6) / 3 - 1, -1, 1)
    found = np.asarray(simplex.weights(d, known, sizes=sizes, alpha=alpha))
    counts = np.ones(N, bool) if known is None else known
    p = np.where(counts, sizes, 0) / sizes[counts].sum()
    for k in range(N):
        solved = minimize(
            lambda w, k=k: np.sum((w - p) ** 2) + alpha * w @ d[k],
            p,
            jac=lambda w, k=k: 2 * (w - p) + alpha * d[k],
            bounds=[(0, 1 if c else 0) for c in counts],
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            method="SLSQP",
            tol=1e-14,
        )
        np.testing.assert_allclose(found[k], solved.x, atol=1e-7)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-14)
    assert (found >= 0).all()
    np.testing.assert_array_equal(found[:, ~counts], 0)
    if alpha == 0:
        np.testing.assert_allclose(found, np.broadcast_to(p, (N, N)), atol=1e-15)


def test_a_table_is_projected_row_by_row() -> None:
    v = np.random.default_rng(7).standard_normal((4, N)) * 2
    whole = np.asarray(simplex.onto_simplex(jnp.asarray(v), KNOWN))
    for k in range(4):
        np.testing.assert_array_equal(whole[k], simplex.onto_simplex(jnp.asarray(v[k]), KNOWN))
        alone = simplex.onto_simplex(jnp.asarray(v[k][KNOWN]))
        np.testing.assert_allclose(whole[k][KNOWN], alone, rtol=1e-14)


def test_nobody_is_known_before_the_first_round() -> None:
    nobody = np.zeros(N, bool)
    np.testing.assert_array_equal(
        simplex.weights(-np.eye(N), nobody, sizes=np.zeros(N), alpha=0.5), 0
    )
