"""Ditto's global model is FedAvg's to the bit; its personal models solve their own problem around
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from tests.support.quadratics import EXACT, facts, linear
from tests.support.star_runs import flat, kept, trained


@pytest.mark.parametrize(
    ("unit", "training"),
    [
        pytest.param("local_steps", {"precision": "float32"}, marks=pytest.mark.slow),
        ("local_epochs", {"cohort": 3}),
    ],
    ids=["steps, everybody", "epochs, sampled"],
)
def test_the_global_task_is_fedavg_and_the_personal_one_without_coupling_is_local(
    unit: str, training: dict[str, Any], ragged: Federation
) -> None:
    """Bit for bit.

    The gradients of the global task are lost to x_k, so λ = 0 is less than Local at equal compute,
    which has them.
    """
    ditto = coterie.Ditto(lam=3.0, lr=0.3, personal_lr=0.1, personal_steps=2, **{unit: 3})
    fedavg, local = coterie.FedAvg(lr=0.3, **{unit: 3}), coterie.Local(lr=0.1, **{unit: 2})
    both, free, one, alone = (
        trained(m, ragged, **training) for m in (ditto, ditto.replace(lam=0.0), fedavg, local)
    )
    assert flat(both.hub).tobytes() == flat(free.hub).tobytes() == flat(one.hub).tobytes()
    assert kept(free).tobytes() == kept(alone).tobytes()
    assert np.abs(kept(both) - kept(free)).max() > 1e-2
    equal = coterie.equal_compute(ditto)
    assert (equal.lr, equal.R) == (0.1, 5)
    assert 2 * both.ledger.gradients == 5 * alone.ledger.gradients


def test_the_personal_pull_is_to_the_received_model() -> None:
    """In the first round w is where x_k starts, so the first personal step is plain SGD whatever λ;
    a pull to the w that leaves would show.
    """
    fed = linear()
    b, best = facts(fed)
    first = trained(
        coterie.Ditto(lam=5.0, lr=0.3, personal_lr=0.1, local_steps=3, personal_steps=1),
        fed,
        "linear",
        rounds=1,
        **EXACT,
    )
    start = flat(first.template)
    np.testing.assert_allclose(kept(first), start - 0.1 * b * (start - best), rtol=1e-12)
    assert np.abs(flat(first.hub) - start).max() > 0.1


@pytest.mark.parametrize("lam", [0.7, 5.0, 1e4])
def test_it_reaches_its_closed_form(lam: float) -> None:
    """x_k = (b_k ŵ_k + λ w^Avg)/(b_k + λ): λ → ∞ is consensus on the model of FedAvg."""
    fed = linear()
    b, best = facts(fed)
    method = coterie.Ditto(
        lam=lam,
        lr=0.3,
        local_steps=1,
        personal_lr=1 / (lam + 2),
        personal_steps=4,
        weighting="uniform",
    )
    run = trained(method, fed, "linear", rounds=200, **EXACT)
    average = (b * best).sum(0) / b.sum()
    np.testing.assert_allclose(flat(run.hub), average, rtol=0, atol=1e-9)
    np.testing.assert_allclose(kept(run), (b * best + lam * average) / (b + lam), rtol=0, atol=1e-9)
    assert all(c.holds for c in run.conditions())
