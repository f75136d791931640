"""FedProx is FedAvg without its term, and its term is half the squared distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, trained


@pytest.mark.parametrize(
    ("steps", "training"),
    [
        pytest.param(
            {"local_steps": 3}, {"cohort": 2, "precision": "float32"}, marks=pytest.mark.slow
        ),
        ({"local_epochs": 2, "beta": 0.7}, {"cohort": 3}),
    ],
    ids=["steps, single precision", "epochs"],
)
def test_without_its_term_it_is_fedavg_bit_for_bit(
    steps: dict[str, Any], training: dict[str, Any], ragged: Federation
) -> None:
    plain = flat(trained(coterie.FedAvg(lr=0.1, **steps), ragged, **training).hub)
    assert (
        flat(trained(coterie.FedProx(lr=0.1, prox=0.0, **steps), ragged, **training).hub).tobytes()
        == plain.tobytes()
    )
    assert (
        np.abs(
            flat(trained(coterie.FedProx(lr=0.1, prox=0.5, **steps), ragged, **training).hub)
            - plain
        ).max()
        > 1e-3
    )


def by_hand(
    b: NDArray[Any], best: NDArray[Any], lr: float, prox: float, steps: int, squared: bool
) -> NDArray[Any]:
    """The same rounds in numpy, with (μ/2)‖x − w‖² or with the norm that is not squared."""
    w = np.zeros(D)
    for _ in range(300):
        x = np.repeat(w[None], N, 0)
        for _ in range(steps):
            away = x - w
            length = (
                1.0 if squared else np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-30)
            )
            x = x - lr * (b * (x - best) + prox * away / length)
        w = x.mean(0)
    return w


@pytest.mark.parametrize("prox", [0.8, 3.0])
def test_it_reaches_the_fixed_point_of_the_squared_norm(prox: float) -> None:
    """R steps on (b/2)‖x − ŵ‖² + (μ/2)‖x − w‖² from w: x_R − w = −s_k(w − ŵ_k), s = (1 − (1 −
    η(b+μ))^R)·b/(b+μ), so w = Σ s_k ŵ_k / Σ s_k.
    """
    fed = linear()
    b, best = facts(fed)
    lr, steps = 0.15, 5
    w = flat(
        trained(
            coterie.FedProx(lr=lr, prox=prox, local_steps=steps, weighting="uniform"),
            fed,
            "linear",
            rounds=300,
            **EXACT,
        ).hub
    )
    share = (1 - (1 - lr * (b + prox)) ** steps) * b / (b + prox)
    expected = (share * best).sum(0) / share.sum()
    np.testing.assert_allclose(w, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        by_hand(b, best, lr, prox, steps, squared=True), expected, rtol=0, atol=1e-10
    )
    assert np.abs(by_hand(b, best, lr, prox, steps, squared=False) - expected).max() > 1e-3, (
        "the published slip must be seen"
    )
    assert np.abs(by_hand(b, best, lr, 0.0, steps, squared=True) - expected).max() > 1e-3, (
        "FedAvg must stop elsewhere"
    )
