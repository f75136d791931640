"""RSA is the L1 star: lp-proj-1 with P = I, step by step and in its solution; and a malicious
client moves it only so far.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation
from coterie.core.vector import Vector
from coterie.methods.rsa import sign
from coterie.methods.star import Cohort
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, kept, trained


@pytest.mark.parametrize(
    ("steps", "training"),
    [(1, {"cohort": 3}), pytest.param(3, {"sampling": "full"}, marks=pytest.mark.slow)],
    ids=["one step, sampled", "three steps on all data"],
)
def test_it_is_lp_proj_1_with_the_identity(
    steps: int, training: dict[str, Any], ragged: Federation
) -> None:
    """w + (1/S) Σ η λ sign(x_k − w) there, w − μ₀ λ Σ sign(w − x_k) here: the same for η = μ₀ S.
    lp-proj takes its K steps on one batch.
    """
    lam, lr, hub_lr = 0.3, 0.1, 0.02
    ours = coterie.RSA(lam=lam, lr=lr, local_steps=steps, hub_lr=hub_lr)
    theirs = coterie.LpProj1(
        lam=lam,
        personal_lr=lr,
        lr=hub_lr * training.get("cohort", 5),
        local_rounds=1,
        inner_steps=steps,
        projection="identity",
        trains="sampled",
    )
    rsa, proj = (
        trained(ours, ragged, rounds=12, **training),
        trained(theirs, ragged, rounds=12, **training),
    )
    np.testing.assert_allclose(flat(rsa.hub), flat(proj.hub), rtol=0, atol=1e-13)
    np.testing.assert_allclose(kept(rsa), kept(proj), rtol=0, atol=1e-13)
    assert np.abs(flat(rsa.hub) - flat(rsa.template)).max() > 3 * hub_lr * lam, "w must have moved"
    assert (
        np.abs(
            kept(rsa) - kept(trained(ours.replace(lam=0.0), ragged, rounds=12, **training))
        ).max()
        > 0.1
    )


def huber(
    points: NDArray[Any], b: NDArray[Any], lam: float, decay: float, level: float
) -> NDArray[Any]:
    """Where Σ_k b_k clip(ŵ_k − w, ±λ/b_k) − δw, which falls with w, passes `level`, per coordinate,
    by bisection.
    """
    low, high = np.minimum(points.min(0), 0), np.maximum(points.max(0), 0)
    for _ in range(200):
        middle = (low + high) / 2
        above = np.clip(b * (points - middle), -lam, lam).sum(0) - decay * middle > level
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


@pytest.mark.parametrize("decay", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
def test_it_reaches_hubers_location(decay: float) -> None:
    """min over x of (b/2)‖x − ŵ‖² + λ‖x − w‖₁ pulls ŵ towards w by at most λ/b, and w is where
    these pulls (and δw) cancel.

    Where all are off the kink the pulls can cancel on a whole interval, and any w in it is a
    solution. Signs make both ends jitter by step · λ, so the solution is met to that size and not
    better. w takes the smaller steps, and one after every step of the clients: a client held at the
    kink then answers with the right mean of signs.
    """
    fed = linear()
    b, best = facts(fed)
    lam, lr, hub_lr = 0.6, 2e-3, 5e-5
    method = coterie.RSA(lam=lam, lr=lr, local_steps=1, hub_lr=hub_lr, hub_decay=decay)
    run = trained(method, fed, "linear", rounds=50_000, **EXACT)
    w = flat(run.hub)
    away = np.abs(best - w) - lam / b
    assert (away < 0).any(), "somebody must be held at the kink"
    assert (away > 0).any(), "somebody must be off it"
    jitter = 5 * lam * lr
    np.testing.assert_allclose(kept(run), best - np.clip(best - w, -lam / b, lam / b), atol=jitter)
    first, last = huber(best, b, lam, decay, 1e-9), huber(best, b, lam, decay, -1e-9)
    assert (first - 10 * jitter < w).all()
    assert (w < last + 10 * jitter).all()
    average = (b * best).sum(0) / b.sum()
    assert ((average < first - 20 * jitter) | (average > last + 20 * jitter)).any(), (
        "the mean must be somewhere else"
    )
    assert ((last - first) < 1e-6).any(), "some coordinate must have a single solution"


def test_above_every_gradient_the_norm_holds_all_clients_at_the_same_model() -> None:
    """L1 is exact: at a finite λ above all |∇f_k| there is consensus, up to the jitter lr·λ of the
    signs and the hub's steps.
    """
    fed = linear()
    _, best = facts(fed)
    lam, lr, hub_lr = 20.0, 1e-4, 1e-5
    run = trained(
        coterie.RSA(lam=lam, lr=lr, local_steps=50, hub_lr=hub_lr),
        fed,
        "linear",
        rounds=2000,
        **EXACT,
    )
    jitter = lr * lam + N * hub_lr * lam
    assert np.abs(kept(run) - flat(run.hub)).max() < 2 * jitter
    assert np.abs(best - best.mean(0)).max() > 100 * jitter, "alone they would be far apart"


def test_a_message_counts_by_its_signs_only() -> None:
    """Whatever client 3 sends, w moves by at most 2 μ₀ λ in a coordinate more or less than without
    the lie.
    """
    method = coterie.RSA(lam=0.5, hub_lr=0.1)
    hub = Vector({"w": jnp.zeros(D)})
    honest = np.random.default_rng(0).standard_normal((N, D)).astype(np.float32)
    merge = lambda x: flat(
        method.merge(hub, Vector({"w": jnp.asarray(x)}), Cohort(jnp.arange(N), jnp.ones(N)), 0)
    )
    np.testing.assert_allclose(merge(honest), 0.1 * 0.5 * np.sign(honest).sum(0), rtol=1e-6)
    for lie in (1e30, -1e30, 5.0):
        told = honest.copy()
        told[3] = lie
        assert np.abs(merge(told) - merge(honest)).max() <= 2 * 0.1 * 0.5 * (1 + 1e-6)


def test_what_is_within_rounding_has_no_sign() -> None:
    with jax.enable_x64(True):
        third = jnp.asarray([1 / 3, 1 / 3, 0.0, 1e-300, -2.0])
        moved = jnp.asarray([1 / 3 * (1 + 1e-15), 1 / 3 * (1 + 1e-13), 0.0, 0.0, 5.0])
        assert sign(Vector(third), Vector(moved)).tree.tolist() == [0, -1, 0, 1, -1]
