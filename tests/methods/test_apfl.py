"""APFL: its two ends, a plain numpy round, and α."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Method
from coterie.core.randomness import Role, cohort, role_key
from tests.support import quadratics
from tests.support.quadratics import EXACT, D, N

BATCHES: dict[str, Any] = {
    "rounds": 4,
    "eval_every": 4,
    "batch_size": 4,
    "cohort": 3,
    "precision": "float64",
}


@pytest.fixture(scope="module")
def linear() -> Federation:
    return quadratics.linear()


def flat(
    method: Method, federation: Federation, view: str | None = None, **more: Any
) -> NDArray[Any]:
    stacked = coterie.simulate(
        method, federation, "mlr", **{**BATCHES, **more}
    ).simulator.all_models(view)
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in stacked.leaves], axis=1)


STEPS: dict[str, Any] = {"lr": 0.2, "local_steps": 3}


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_the_global_model_is_fedavg_s_whatever_alpha(alpha: float, ragged: Federation) -> None:
    method = coterie.APFL(**STEPS, alpha=alpha)
    fedavg = flat(coterie.FedAvg(**STEPS), ragged)
    np.testing.assert_allclose(flat(method, ragged, "global"), fedavg, rtol=1e-12)
    assert np.allclose(flat(method, ragged, "personal"), fedavg, rtol=1e-12) == (alpha == 0), (
        "only α = 0 predicts with it"
    )


def test_alpha_one_is_local(ragged: Federation) -> None:
    method = coterie.APFL(**STEPS, alpha=1.0)
    np.testing.assert_allclose(
        flat(method, ragged), flat(coterie.Local(**STEPS), ragged), rtol=1e-12
    )
    result = coterie.simulate(method, ragged, "mlr", **BATCHES)
    assert set(result.ledger.rows()[:, 4]) == {6}, (
        "a step takes two gradients, at w and at the mixture"
    )


@pytest.mark.parametrize("adapt", [pytest.param(False, marks=pytest.mark.slow), True])
def test_rounds_as_in_numpy(adapt: bool, linear: Federation) -> None:
    """Simultaneous steps of w, v and α from the old values.

    The published order (w first) is another sequence.
    """
    lr, steps, rounds, start = 0.2, 3, 4, 0.3
    method = coterie.APFL(lr=lr, local_steps=steps, alpha=start, adapt=adapt, weighting="uniform")
    result = coterie.simulate(
        method, linear, "linear", rounds=rounds, eval_every=rounds, cohort=2, **EXACT
    )
    b, best = linear.facts["b"], linear.facts["least_squares"]
    w, v, alpha = np.zeros(D), np.zeros((N, D)), np.full(N, start)
    for t in range(rounds):
        sent = []
        for k in np.asarray(cohort(role_key(0, Role.COHORT), t, N, 2)):
            own = w.copy()
            for _ in range(steps):
                gradient = b[k] * (alpha[k] * v[k] + (1 - alpha[k]) * own - best[k])
                moved = alpha[k] - lr * (v[k] - own) @ gradient
                v[k], own = v[k] - lr * alpha[k] * gradient, own - lr * b[k] * (own - best[k])
                alpha[k] = np.clip(moved, 0, 1) if adapt else start
            sent.append(own)
        w = np.mean(sent, axis=0)
    personal = alpha[:, None] * v + (1 - alpha)[:, None] * w
    np.testing.assert_allclose(
        result.simulator.all_models().leaves[0].reshape(N, D), personal, rtol=1e-10
    )
    if adapt:
        assert np.ptp(alpha) > 0.01, "clients must have learnt different α"
        np.testing.assert_allclose(
            result.simulator.store.gather(np.arange(N)).method_state.alpha, alpha, rtol=1e-10
        )


def test_with_one_step_the_mixture_reaches_each_client_s_least_squares(linear: Federation) -> None:
    """w settles at FedAvg's fixed point, and v is then fitted so that α v + (1−α) w minimises f_k:
    ŵ_k for any α > 0.
    """
    method = coterie.APFL(lr=0.4, local_steps=1, alpha=0.6, weighting="uniform")
    result = coterie.simulate(method, linear, "linear", rounds=400, eval_every=400, **EXACT)
    b, best = linear.facts["b"][:, None], linear.facts["least_squares"]
    np.testing.assert_allclose(
        result.simulator.all_models("personal").leaves[0].reshape(N, D), best, atol=1e-9
    )
    np.testing.assert_allclose(
        result.simulator.all_models("global").leaves[0].reshape(N, D)[0],
        (b * best).sum(0) / b.sum(),
        rtol=1e-9,
    )


def test_alpha_stays_between_zero_and_one() -> None:
    """A step this long would take α far outside."""
    far = coterie.load("linear", clients=N, samples=6, dimension=D, spread=100.0)
    method = coterie.APFL(lr=0.3, local_steps=3, alpha=0.5, adapt=True)
    run = coterie.simulate(method, far, "linear", rounds=5, eval_every=5, **EXACT)
    alpha = np.asarray(run.simulator.store.gather(np.arange(N)).method_state.alpha)
    assert ((alpha >= 0) & (alpha <= 1)).all()
    assert (alpha == 1).any(), "nobody was cut off, so this test could not fail"
