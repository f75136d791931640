"""FedU on a star whose middle has no loss solves pFedMe's problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput
from tests.support import quadratics
from tests.support.quadratics import models, run

N = 5
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def linear() -> Federation:
    """Client 0 has data too, and nothing may come of them."""
    return quadratics.linear(N)


def moreau(linear: Federation, lam: float) -> tuple[Floats, Floats]:
    """w and θ_k of clients 1 … N − 1 (SPEC's closed form of pFedMe)."""
    b, best = linear.facts["b"][1:, None], linear.facts["least_squares"][1:]
    share = b / (b + lam)
    w = (share * best).sum(0) / share.sum()
    return w, (b * best + lam * w) / (b + lam)


def solve(linear: Federation, rounds: int, **options: Any) -> coterie.Result:
    method = coterie.FedU(local_steps=1, empty=0, **options)
    return run(method, linear, rounds, coterie.graph.star(N, 0.5))


def test_its_fixed_point_is_that_of_pfedme(linear: Federation) -> None:
    """One step and one pull, s = μηa: ηa/(1 − s) (w_k − w₀) + ∇f_k(w_k) = 0 and w₀ is the others'
    mean. That is pFedMe's fixed point with λ = ηa/(1 − s), which pFedMe itself reaches too.
    """
    lr, strength = 0.1, 1.6 * 0.5
    lam = strength / (1 - lr * strength)
    found = models(solve(linear, 1500, lr=lr, eta=1.6))
    w, theta = moreau(linear, lam)
    np.testing.assert_allclose(found[0], w, rtol=1e-9)
    np.testing.assert_allclose(found[1:], theta, rtol=1e-9)

    others = linear.subset(np.arange(1, N))
    pfedme = coterie.PFedMe(
        lam=lam, lr=0.3, personal_lr=1 / (lam + 2), local_rounds=1, inner_steps=100
    )
    np.testing.assert_allclose(models(run(pfedme, others, 300)), found[1:], rtol=1e-8)
    assert np.abs(theta - linear.facts["least_squares"][1:]).max() > 0.05


def test_falling_steps_solve_pfedmes_problem(linear: Federation) -> None:
    falling = {"kind": "inverse-time", "scale": 4.0, "shift": 12.0}
    found = models(solve(linear, 10_000, lr=falling, eta=1.6))
    w, theta = moreau(linear, 1.6 * 0.5)
    np.testing.assert_allclose(found, np.concatenate([w[None], theta]), atol=1e-3)


def test_the_empty_client_takes_no_gradient_and_its_data_do_not_matter(
    linear: Federation,
) -> None:
    result = solve(linear, 5, lr=0.1, eta=1.6)
    each = solve(linear, 5, lr=0.1, eta=0.0)
    first = np.asarray(each.simulator.template.leaves[0]).reshape(-1)
    np.testing.assert_array_equal(models(each)[0], first)
    assert result.ledger.gradients == 5 * (N - 1)


def test_a_number_that_no_client_has_is_refused(linear: Federation) -> None:
    method = coterie.FedU(empty=N)
    with pytest.raises(InvalidInput, match=r"fedu.empty is 5, but must be the number of a client"):
        coterie.simulate(method, linear, "linear", rounds=1)
