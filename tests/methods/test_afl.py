"""AFL's weights live on the simplex, belong to clients by number, and rise for the worst."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

import coterie
from coterie import Federation
from coterie.core.vector import Vector
from coterie.coupling.learnt.simplex import onto_simplex
from coterie.data.shape import ProblemShape
from coterie.methods.afl import AFLHubState, Message
from coterie.methods.star import Cohort
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, trained

LENGTH = 5
PROJECT = jax.jit(onto_simplex)  # one program for one length: hypothesis asks often


def project(v: Any) -> NDArray[np.float64]:
    with jax.enable_x64(True):
        return np.asarray(PROJECT(jnp.asarray(v, jnp.float64)))


vectors = st.lists(st.floats(-50, 50), min_size=LENGTH, max_size=LENGTH).map(np.array)


@settings(deadline=None, max_examples=200)
@given(vectors, st.sampled_from([1e-6, 1e-2, 1.0, 1e6, 1e30]))
def test_the_projection_is_the_nearest_point_of_the_simplex(
    v: NDArray[np.float64], scale: float
) -> None:
    """p is nearest exactly when ⟨v − p, q − p⟩ ≤ 0 for every corner q: the simplex has no other
    extreme points.
    """
    v = v * scale
    p = project(v)
    assert (p >= 0).all()
    assert abs(p.sum() - 1) < 1e-12
    size = 1 + np.ptp(v)
    for q in np.eye(LENGTH):
        assert (v - v.max() - p) @ (q - p) <= 1e-12 * size


@settings(deadline=None, max_examples=15)
@given(vectors.map(lambda v: v / 25))
def test_the_projection_agrees_with_a_general_solver(v: NDArray[np.float64]) -> None:
    bounds, whole = [(0, 1)] * LENGTH, {"type": "eq", "fun": lambda q: q.sum() - 1}
    solved = minimize(
        lambda q: 0.5 * np.sum((q - v) ** 2),
        np.full(LENGTH, 0.2),
        jac=lambda q: q - v,
        bounds=bounds,
        constraints=whole,
        tol=1e-14,
    )
    np.testing.assert_allclose(project(v), solved.x, atol=1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_a_point_of_the_simplex_stays_and_order_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside, v, order = (
        rng.dirichlet(np.full(LENGTH, 0.3)),
        3 * rng.standard_normal(LENGTH),
        rng.permutation(LENGTH),
    )
    np.testing.assert_allclose(project(inside), inside, atol=1e-14)
    np.testing.assert_allclose(project(v[order]), project(v)[order], atol=1e-14)


def bound(method: coterie.AFL, clients: int) -> Any:
    shape = ProblemShape("regression", (D,), 1, clients, 1)
    return method.bind(Vector({"w": jnp.zeros(D)}), None, shape)


def merged(
    weights: list[float], ids: list[int], models: list[float], losses: list[float], **options: Any
) -> tuple[float, NDArray[Any]]:
    method = bound(coterie.AFL(weight_lr=0.5, **options), len(weights))
    hub = AFLHubState(Vector({"w": jnp.zeros(D)}), jnp.asarray(weights))
    messages = Message(
        Vector({"w": jnp.repeat(jnp.asarray(models)[:, None], D, 1)}), jnp.asarray(losses)
    )
    new = method.merge(hub, messages, Cohort(jnp.asarray(ids), jnp.ones(len(ids))), 0)
    return float(new.model.tree["w"][0]), np.asarray(new.weights)


def test_weights_belong_to_clients_and_not_to_places_in_the_cohort() -> None:
    """By hand: clients 1 and 3 of four, λ = (0.1, 0.2, 0.3, 0.4), losses 1 and 2, γ = 0.5: λ + γℓ =
    (0.1, 0.7, 0.3, 1.4), θ = 0.55.
    """
    w, weights = merged([0.1, 0.2, 0.3, 0.4], [1, 3], [6.0, 12.0], [1.0, 2.0])
    assert w == pytest.approx((0.2 * 6 + 0.4 * 12) / 0.6)
    np.testing.assert_allclose(weights, [0, 0.15, 0, 0.85], atol=1e-6)


def test_a_cohort_without_any_weight_counts_alike() -> None:
    w, weights = merged([0.5, 0.0, 0.5, 0.0], [1, 3], [6.0, 12.0], [0.0, 0.0])
    assert w == pytest.approx(9)
    np.testing.assert_allclose(weights, [0.5, 0, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("merging", "expected"), [("median", 2.0), ("multi-krum", 1.5), ("clipping", None)]
)
def test_robust_merges_of_the_models_work(merging: str, expected: float | None) -> None:
    w, weights = merged(
        [0.2] * 5, [0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0, 1e6], [0.1] * 5, merging=merging, clip=0.1
    )
    assert (w == pytest.approx(expected)) if expected is not None else (0 < w <= 0.1)
    np.testing.assert_allclose(weights, 0.2, atol=1e-6)


def test_only_the_model_is_sent_down_and_subtracted_by_compressors() -> None:
    method = bound(coterie.AFL(), 4)
    hub = method.hub_init(Vector({"w": jnp.ones(D)}))
    received = method.broadcast(hub, 2)
    assert flat(received).tolist() == [1] * D
    reference = method.reference(received, Message(received * 3, jnp.asarray(5.0)))
    assert (flat(reference.model).tolist(), float(reference.loss)) == ([1] * D, 0)


def test_without_a_step_of_the_weights_it_is_fedavg_with_uniform_weights(
    ragged: Federation,
) -> None:
    plain = flat(
        trained(coterie.FedAvg(lr=0.1, local_steps=3, weighting="uniform"), ragged, cohort=3).hub
    )
    still = trained(coterie.AFL(lr=0.1, local_steps=3, weight_lr=0.0), ragged, cohort=3).hub
    np.testing.assert_allclose(flat(still.model), plain, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(still.weights, 0.2, rtol=1e-14)
    moved = trained(coterie.AFL(lr=0.1, local_steps=3, weight_lr=0.5), ragged, cohort=3).hub
    assert np.abs(flat(moved.model) - plain).max() > 1e-3
    assert np.asarray(moved.weights).sum() == pytest.approx(1, abs=1e-12)
    assert (np.asarray(moved.weights) >= 0).all()


def losses(fed: Federation, w: NDArray[Any]) -> NDArray[Any]:
    return np.array([0.5 * np.mean((x @ w - y) ** 2) for x, y in map(fed.train.client, range(N))])


def test_it_approaches_the_minimax_solution_where_fedavg_does_not() -> None:
    """The minimax model by a general solver: min s with f_k(w) ≤ s.

    There the weights sit on the clients with the largest loss.
    """
    fed = linear()
    start = np.append(facts(fed)[1].mean(0), 10.0)
    limits = {"type": "ineq", "fun": lambda v: v[-1] - losses(fed, v[:-1])}
    best = minimize(lambda v: v[-1], start, constraints=limits, tol=1e-12)
    assert best.success
    first = trained(
        coterie.AFL(lr=0.05, local_steps=1, weight_lr=0.02), fed, "linear", rounds=1, **EXACT
    )
    assert np.argmax(first.hub.weights) == np.argmax(losses(fed, flat(first.template))), (
        "the worst client rises first"
    )
    run = trained(
        coterie.AFL(lr=0.05, local_steps=1, weight_lr=0.02), fed, "linear", rounds=4000, **EXACT
    )
    ours = losses(fed, flat(run.hub.model))
    average = losses(
        fed,
        flat(
            trained(coterie.FedAvg(lr=0.05, local_steps=1), fed, "linear", rounds=1000, **EXACT).hub
        ),
    )
    assert ours.max() == pytest.approx(best.fun, rel=1e-4)
    assert average.max() > 1.05 * best.fun
    weights = np.asarray(run.hub.weights)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(weights[ours < 0.99 * ours.max()], 0, atol=1e-6)
