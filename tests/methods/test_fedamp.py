"""FedAMP stands still where its problem is stationary; its ends are Local and its own past; kin
count more than strangers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.engine.adapt import adapt
from tests.support.conformance_cases import cohorts
from tests.support.groups import KIN, SAME, for_all, rows, two_groups
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, kept, trained


@pytest.mark.parametrize(
    ("alpha", "sigma"),
    [
        (None, 2.0),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in ((None, 30.0), (0.2, 2.0), (0.2, 30.0))
        ),
    ],
)
def test_it_stands_still_at_a_stationary_point_of_its_problem(
    alpha: float | None, sigma: float
) -> None:
    """∇f_k(w_k) + λ Σ_l A'(‖w_k − w_l‖²)(w_k − w_l) = 0, whatever α."""
    fed, lam = linear(), 1.3
    b, best = facts(fed)
    method = coterie.FedAMP(lam=lam, sigma=sigma, alpha=alpha, lr=0.2, local_steps=5)
    run = trained(method, fed, "linear", rounds=400, **EXACT)
    w = kept(run)
    gaps = w[:, None] - w[None]
    pull = np.exp(-np.sum(gaps**2, 2) / sigma) / sigma
    force = lam * np.sum(pull[:, :, None] * gaps, 1)
    np.testing.assert_allclose(b * (w - best) + force, 0, atol=1e-9)
    assert np.abs(force).max() > 0.01, "somebody must be pulled"
    assert all(c.holds for c in run.conditions())


@pytest.mark.slow
def test_far_wider_than_the_models_are_apart_it_solves_the_problem_of_the_complete_graph() -> None:
    """σ → ∞ with λ/σ fixed: A is linear, and the problem that of FedU with weights λ/σ."""
    fed, eta, sigma = linear(), 0.4, 1e8
    b, best = facts(fed)
    method = coterie.FedAMP(lam=eta * sigma, sigma=sigma, lr=0.2, local_steps=5)
    w = kept(trained(method, fed, "linear", rounds=400, **EXACT))
    laplacian = N * np.eye(N) - np.ones((N, N))
    solved = np.linalg.solve(np.diag(b[:, 0]) + eta * laplacian, b * best)
    np.testing.assert_allclose(w, solved, atol=1e-6)


def test_a_hub_that_takes_no_step_leaves_local_with_a_pull_to_ones_own_last_model() -> None:
    """α → 0 with λ/α = c fixed: u_k = w_k, so each step goes a part of the way back to where the
    round began.
    """
    fed, lr, c, steps = linear(), 0.1, 3.0, 4
    b, best = facts(fed)
    tiny = 1e-12
    method = coterie.FedAMP(lam=c * tiny, alpha=tiny, lr=lr, local_steps=steps)
    run = trained(method, fed, "linear", rounds=6, **EXACT)
    w = np.broadcast_to(flat(run.template), (N, D))
    for _ in range(6):
        before = w
        for _ in range(steps):
            w = (w - lr * b * (w - best) + lr * c * before) / (1 + lr * c)
    np.testing.assert_allclose(kept(run), w, rtol=1e-9)
    still = trained(method.replace(lam=1e9 * tiny), fed, "linear", rounds=6, **EXACT)
    np.testing.assert_allclose(kept(still), np.broadcast_to(flat(run.template), (N, D)), atol=1e-6)


@pytest.mark.parametrize("attention", ["distance", "cosine"])
def test_rounds_with_sampled_clients_repeated_in_numpy(attention: str) -> None:
    """Who was never sampled pulls nobody, and is itself pulled from where it starts."""
    fed, lr, lam, sigma, own = linear(), 0.1, 0.6, 2.5, 0.3
    b, best = facts(fed)
    options: dict[str, Any] = {"self_weight": own} if attention == "cosine" else {}
    method = coterie.FedAMP(
        lam=lam, sigma=sigma, lr=lr, local_steps=3, attention=attention, **options
    )
    run = trained(method, fed, "linear", rounds=3, cohort=2, seed=3, **EXACT)
    w = np.array(np.broadcast_to(flat(run.template), (N, D)))
    known = np.zeros(N, bool)
    alpha = sigma / N if attention == "distance" else 1.0
    share = lr * lam / alpha / (1 + lr * lam / alpha)
    for members in cohorts(3, 3, N, 2):
        xi = np.zeros((N, N))
        for k in range(N):
            others = [l for l in range(N) if l != k and known[l]]
            if attention == "distance":
                gaps = np.sum((w[k] - w[others]) ** 2, 1)
                xi[k, others] = alpha / sigma * np.exp(-gaps / sigma)
                xi[k, k] = 1 - xi[k].sum()
            else:
                sizes = np.linalg.norm(w[k]) * np.linalg.norm(w[others], axis=1)
                cos = np.where(sizes > 0, w[others] @ w[k] / np.where(sizes > 0, sizes, 1), 0)
                xi[k, others] = (1 - own) * np.exp(sigma * cos) / np.exp(sigma * cos).sum()
                xi[k, k] = own if others else 1
        u = xi @ w
        new = w.copy()
        for _ in range(3):
            new = new - lr * b * (new - best)
            new = new + share * (u - new)
        w[members], known[members] = new[members], True
    assert 2 < known.sum() < N, "somebody must be new in a later round, and somebody unknown"
    np.testing.assert_allclose(kept(run), w, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(rows(run.hub.models)[known], w[known], rtol=1e-10)
    np.testing.assert_array_equal(np.asarray(run.hub.counts) > 0, known)


@pytest.fixture(scope="module")
def groups() -> Federation:
    return two_groups()


@pytest.mark.parametrize("attention", ["distance", "cosine"])
def test_kin_count_more_than_strangers(attention: str, groups: Federation) -> None:
    options: dict[str, Any] = {"attention": attention, "lam": 0.5, "lr": 0.1, "local_steps": 5}
    run = trained(coterie.FedAMP(**options), groups, "linear", rounds=30, **EXACT)
    xi = for_all(run, lambda k: run.method.weights(run.hub, k))  # type: ignore[attr-defined]
    np.testing.assert_allclose(xi.sum(1), 1, rtol=1e-12)
    assert xi[KIN].min() > 2 * xi[~SAME].max()


@pytest.mark.slow
def test_a_newcomer_is_drawn_to_the_mean_of_those_that_were_heard(groups: Federation) -> None:
    lam = 0.4
    method = coterie.FedAMP(lam=lam, sigma=5.0, lr=0.1, local_steps=5)
    run = trained(method, groups, "linear", rounds=2, cohort=2, **EXACT)
    heard = np.asarray(run.hub.counts) > 0
    assert 2 <= heard.sum() < 6
    mean, c = rows(run.hub.models)[heard].mean(0), lam * 6 / 5.0
    found = adapt(run, groups.subset(np.array([4])), rounds=300).models["personal"]
    x, y = groups.train.client(4)
    normal = x.T @ x / len(x) + c * np.eye(4)
    expected = np.linalg.solve(normal, x.T @ y / len(x) + c * mean)
    np.testing.assert_allclose(found.leaves[0].ravel(), expected, rtol=1e-8)
