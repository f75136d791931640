"""APPLE's rounds repeated in NumPy; with fixed weights it is gradient descent on a known sum; with
learnt ones groups find each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Simulator
from coterie.engine.adapt import adapt
from tests.support.conformance_cases import cohorts
from tests.support.groups import KIN, SAME, rows, two_groups
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import memories, trained


def personal(run: Simulator) -> NDArray[Any]:
    return run.all_models().leaves[0].reshape(run.spec.clients, -1)


@pytest.mark.parametrize(("size", "weighting"), [(4, "samples"), (2, "samples"), (2, "uniform")])
def test_rounds_repeated_in_numpy(size: int, weighting: str) -> None:
    fed, lr, eta, lam, steps = linear(), 0.2, 0.05, 0.7, 2
    b, best = facts(fed)
    method = coterie.APPLE(lr=lr, weight_lr=eta, lam=lam, local_steps=steps, weighting=weighting)
    run = trained(method, fed, "linear", rounds=3, cohort=size, seed=3, **EXACT)
    n = fed.train.sizes.astype(float) if weighting == "samples" else np.ones(N)
    cores, q, known = np.zeros((N, D)), np.zeros((N, N)), np.zeros(N, bool)
    prior = lambda k, known: (p := np.where(known, n, n[k])) / p.sum()
    for members in cohorts(3, 3, N, size):
        sent = cores.copy()
        for k in members:
            p0, mine = prior(k, known), cores.copy()
            for _ in range(steps):
                p = p0 + q[k]
                g = b[k] * (p @ mine - best[k])
                q[k] -= eta * (mine @ g + lam * q[k])
                mine[k] = mine[k] - lr * p[k] * g
            sent[k] = mine[k]
        cores, known[members] = sent, True
    assert known.all() == (size == N), "somebody must be unknown, unless all take part"
    np.testing.assert_allclose(rows(run.hub.models), cores, rtol=1e-10, atol=1e-13)
    models = [(prior(k, known) + q[k]) @ cores for k in range(N)]
    np.testing.assert_allclose(personal(run), models, rtol=1e-10, atol=1e-13)
    assert np.abs(q).max() > 0.01
    numbers = 8 * np.array([D, N * (D + 2)])
    assert (run.ledger.rows()[:, 2:4] == numbers).all(), "d up, all core models and weights down"


def test_with_fixed_weights_all_share_the_minimum_of_a_sum() -> None:
    """Core model i goes along −p_i ∇f_i at the common x = Σ p_i w_i, so x descends on Σ p_i² f_i:
    its minimum is Σ p_i² b_i ŵ_i / Σ p_i² b_i.
    """
    fed = linear()
    b, best = facts(fed)
    method = coterie.APPLE(lr=0.5, weight_lr=0.0, local_steps=1)
    run = trained(method, fed, "linear", rounds=800, **EXACT)
    p2 = (fed.train.sizes / fed.train.sizes.sum())[:, None] ** 2
    centre = (p2 * b * best).sum(0) / (p2 * b).sum(0)
    np.testing.assert_allclose(personal(run), np.tile(centre, (N, 1)), atol=1e-10)


def test_whoever_trains_long_ends_as_local_does() -> None:
    """Where the rounds stand still, every gradient is 0 whatever λ is."""
    fed = linear()
    best = facts(fed)[1]
    method = coterie.APPLE(lr=0.5, weight_lr=0.001, lam=0.2, local_steps=3)
    found = {t: personal(trained(method, fed, "linear", rounds=t, **EXACT)) for t in (1, 3000)}
    apart = {t: np.linalg.norm(models - best, axis=1) for t, models in found.items()}
    assert apart[1].min() > 0.3, "else they began there"
    assert apart[3000].max() < 0.01


def test_a_schedule_lets_go_of_the_prior() -> None:
    """λ(t) = (1 + cos(πt/2))/2: 1, ½, and 0 from then on, as three runs with numbers say."""
    fed = linear()
    falling = coterie.Cosine(value=1.0, rounds=2)
    run = trained(
        coterie.APPLE(lam=falling, weight_lr=0.02, lr=0.2, local_steps=3),
        fed,
        "linear",
        rounds=4,
        **EXACT,
    )
    by_hand = Simulator(
        coterie.APPLE(lam=1.0, weight_lr=0.02, lr=0.2, local_steps=3),
        fed,
        "linear",
        coterie.Training.from_config({"rounds": 4, **EXACT}),
    )
    for lam in (1.0, 0.5, 0.0, 0.0):
        by_hand.setting = by_hand.setting._replace(method=by_hand.method.replace(lam=lam))
        by_hand.advance(1)
    np.testing.assert_allclose(memories(run).others, memories(by_hand).others, rtol=1e-12)


@pytest.fixture(scope="module")
def run() -> Simulator:
    method = coterie.APPLE(lr=0.3, weight_lr=0.01, local_steps=3)
    return trained(method, two_groups(), "linear", rounds=60, **EXACT)


def test_kin_come_to_count_more_and_strangers_less(run: Simulator) -> None:
    q = memories(run).others
    assert q[KIN].min() > 0 > q[~SAME].max()
    np.testing.assert_array_equal(np.diag(q), 0)
    assert (memories(run).own > 0).all()


def test_a_newcomer_learns_weights_for_all_members(run: Simulator) -> None:
    """One more core model besides theirs: kin count more than strangers."""
    for k in (1, 4):
        found = adapt(run, two_groups().subset(np.array([k])), rounds=30)
        model = np.asarray(found.models["personal"].leaves[0]).ravel()
        apart = np.linalg.norm(personal(run) - model, axis=1)
        assert apart[SAME[k]].max() < 0.5 * apart[~SAME[k]].min()
