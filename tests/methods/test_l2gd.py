"""L2GD: the fixed point of its round, the solution of its problem, FedU on a complete graph, and
the paper's coin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, InvalidInput, Result
from tests.support import quadratics
from tests.support.quadratics import D, N, models, run

LAM = 0.8


@pytest.fixture(scope="module")
def linear() -> Federation:
    return quadratics.linear()


def solution(federation: Federation, lam: float) -> NDArray[np.float64]:
    """b_k(x_k − ŵ_k) + λ(x_k − x̄) = 0, so x_k = (b_k ŵ_k + λ x̄)/(b_k + λ); the mean of that over
    k gives x̄.
    """
    b, best = federation.facts["b"][:, None], federation.facts["least_squares"]
    mean = (b / (b + lam) * best).sum(0) / (b / (b + lam)).sum()
    x = (b * best + lam * mean) / (b + lam)
    np.testing.assert_allclose(x.mean(0), mean, rtol=1e-12)
    return np.asarray(x)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_fixed_point_of_a_round(steps: int, linear: Federation) -> None:
    """y = M(x), M = I − θ(I − 11ᵀ/N), θ = μRλ; x = ŵ + D(y − ŵ), D = (1 − μb)^R; so (I − MD) y =
    M(I − D) ŵ.
    """
    lr = 0.1
    b, best = linear.facts["b"], linear.facts["least_squares"]
    shrink = np.diag((1 - lr * b) ** steps)
    mix = np.eye(N) - lr * steps * LAM * (np.eye(N) - 1 / N)
    expected = np.linalg.solve(np.eye(N) - mix @ shrink, mix @ (np.eye(N) - shrink) @ best)
    got = models(run(coterie.L2GD(lr=lr, local_steps=steps, lam=LAM), linear, 1000))
    np.testing.assert_allclose(got, expected, atol=1e-9)
    assert np.abs(expected - best).max() > 0.05, "the coupling must matter"


def test_the_gap_to_the_solution_is_proportional_to_the_step(linear: Federation) -> None:
    exact = solution(linear, LAM)
    gaps = [
        np.abs(models(run(coterie.L2GD(lr=lr, local_steps=1, lam=LAM), linear, 5000)) - exact).max()
        for lr in (0.02, 0.01)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)
    assert gaps[1] < 0.01


def test_the_solution_is_reached_with_falling_steps(linear: Federation) -> None:
    method = coterie.L2GD(
        lr={"kind": "inverse-time", "scale": 4.0, "shift": 12.0}, local_steps=1, lam=LAM
    )
    exact = solution(linear, LAM)
    np.testing.assert_allclose(
        models(run(method, linear, 10_000)), exact, atol=1e-4 * np.abs(exact).max()
    )


@pytest.mark.parametrize("epochs", [None, 1])
def test_it_is_fedu_on_the_complete_graph_with_weights_1_over_n(
    epochs: int | None, ragged: Federation
) -> None:
    """FedU counts R in its mixing step as given, L2GD in steps, so epochs agree where an epoch is
    one full batch.
    """
    graph = coterie.graph.from_matrix((np.ones((5, 5)) - np.eye(5)) / 5)
    options: dict[str, Any] = {
        "rounds": 4,
        "eval_every": 4,
        "precision": "float64",
        **({"sampling": "full"} if epochs else {"batch_size": 4}),
    }
    steps: dict[str, Any] = {
        "lr": 0.1,
        **({"local_epochs": epochs} if epochs else {"local_steps": 3}),
    }
    flat = lambda result: np.concatenate(
        [v.reshape(5, -1) for v in result.simulator.all_models().leaves], 1
    )
    ours = flat(coterie.simulate(coterie.L2GD(**steps, lam=0.7), ragged, "mlr", **options))
    fedu = flat(
        coterie.simulate(coterie.FedU(**steps, eta=0.7), ragged, "mlr", graph=graph, **options)
    )
    np.testing.assert_allclose(ours, fedu, rtol=1e-11, atol=1e-13)
    assert np.abs(ours - ours.mean(0)).max() > 0.01


@pytest.fixture(scope="module")
def tossed(linear: Federation) -> Result:
    return run(coterie.L2GD(lr=0.01, local_steps=3, coin=True, lam=LAM), linear, 2000)


def test_the_coin_draws_the_same_for_all_with_the_right_mean_and_law(tossed: Result) -> None:
    """P(j) = p(1−p)^j with p = 1/(R+1): mean R, and a round without local steps with probability p.

    Within four standard errors.
    """
    rounds, mean = 2000, 3
    steps = tossed.ledger.rows()[:, 4].reshape(rounds, N)
    assert (steps == steps[:, :1]).all()
    assert steps[:, 0].mean() == pytest.approx(mean, abs=4 * np.sqrt(mean * (mean + 1) / rounds))
    for j in range(3):
        p = (mean / (mean + 1)) ** j / (mean + 1)
        assert np.mean(steps[:, 0] == j) == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / rounds))


def test_rounds_of_the_coin_as_in_numpy(tossed: Result, linear: Federation) -> None:
    """j local steps shrink the error by (1 − μb)^j, then the pull, whose weight is μRλ with the
    mean R and not with j.
    """
    b, best = linear.facts["b"][:, None], linear.facts["least_squares"]
    pull = 0.01 * 3 * LAM
    y = np.zeros((N, D))
    for j in tossed.ledger.rows()[::N, 4]:
        x = best + (1 - 0.01 * b) ** j * (y - best)
        y = x - pull * (x - x.mean(0))
    np.testing.assert_allclose(models(tossed), y, rtol=1e-9)


def test_the_coin_counts_steps_and_not_epochs() -> None:
    with pytest.raises(
        InvalidInput, match=r"l2gd\.local_epochs is 2, but must be nothing when coin is true"
    ):
        coterie.L2GD(coin=True, local_epochs=2)


def test_an_unstable_pull_is_named_beforehand() -> None:
    method = coterie.L2GD(lr=0.1, local_steps=10, lam=3.0)
    assert not method.conditions(None, 0.0)[0].holds  # type: ignore[arg-type]
    assert method.replace(lam=1.9).conditions(None, 0.0)[0].holds  # type: ignore[arg-type]
