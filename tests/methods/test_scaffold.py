"""SCAFFOLD is gradient descent where it must be, and its correction removes the drift that moves
FedAvg's fixed point.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.vector import Vector
from tests.support.quadratics import EXACT, N, facts, linear
from tests.support.softmax_runs import softmax_gradient
from tests.support.star_runs import flat, kept, memories, trained


@pytest.mark.parametrize("control", ["difference", "gradient"])
def test_one_step_on_all_data_is_gradient_descent_on_the_mean_loss(
    control: str, ragged: Federation
) -> None:
    lr, beta = 0.2, 0.6
    run = trained(
        coterie.Scaffold(lr=lr, local_steps=1, beta=beta, control=control),
        ragged,
        rounds=5,
        **EXACT,
    )
    w, b = (np.asarray(run.template.tree[name]) for name in ("w", "b"))
    for _ in range(5):
        gradients = [softmax_gradient(w, b, *ragged.train.client(k)) for k in range(5)]
        w, b = (
            w - beta * lr * np.mean([g[0] for g in gradients], 0),
            b - beta * lr * np.mean([g[1] for g in gradients], 0),
        )
    np.testing.assert_allclose(run.hub.model.tree["w"], w, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(run.hub.model.tree["b"], b, rtol=1e-12, atol=1e-14)
    assert np.abs(flat(run.hub.model) - flat(run.template)).max() > 0.05


@pytest.mark.parametrize("control", ["difference", "gradient"])
def test_it_reaches_the_minimum_of_the_mean_loss_with_many_local_steps(control: str) -> None:
    """w^Avg = Σ b_k ŵ_k / Σ b_k, with c_k = ∇f_k(w^Avg) and c = 0; FedAvg with the same steps stops
    elsewhere.
    """
    fed = linear()
    b, best = facts(fed)
    lr, steps = 0.1, 4
    run = trained(
        coterie.Scaffold(lr=lr, local_steps=steps, control=control),
        fed,
        "linear",
        rounds=400,
        **EXACT,
    )
    average = (b * best).sum(0) / b.sum()
    np.testing.assert_allclose(flat(run.hub.model), average, rtol=0, atol=1e-10)
    np.testing.assert_allclose(flat(run.hub.control), 0, atol=1e-10)
    np.testing.assert_allclose(kept(run), b * (average - best), rtol=0, atol=1e-9)
    share = 1 - (1 - lr * b) ** steps
    assert np.abs((share * best).sum(0) / share.sum() - average).max() > 1e-2, (
        "FedAvg's fixed point must be another one"
    )


@pytest.mark.parametrize(
    "options", [{"local_epochs": 2}, {"local_steps": 3, "control": "gradient"}], ids=str
)
def test_every_leaf_has_its_control_variate_and_the_hub_keeps_their_mean(
    options: dict[str, Any], ragged: Federation
) -> None:
    """c = (1/N) Σ c_k stays true when only S of N take part.

    The clients' numbers of steps differ when epochs are counted.
    """
    model = coterie.get_model("mlp", {"hidden": "3"})
    run = trained(coterie.Scaffold(lr=0.1, **options), ragged, model, rounds=6, cohort=2)
    rows = memories(run).control
    taken = run.dirty
    assert taken.sum() > 2
    assert len(rows.leaves) == len(run.hub.model.leaves) == 4
    for own, mean in zip(rows.leaves, run.hub.control.leaves, strict=True):
        assert (np.abs(own[taken]).reshape(taken.sum(), -1).max(1) > 1e-4).all()
        assert (own[~taken] == 0).all()
        np.testing.assert_allclose(mean, own.mean(0), rtol=1e-11, atol=1e-14)


def test_option_ii_is_the_mean_gradient_on_the_way() -> None:
    """With c = c_k = 0 in the first round, (x − y)/(Rμ) is the mean of the gradients that were
    stepped along.
    """
    fed = linear()
    b, best = facts(fed)
    lr = 0.1
    run = trained(coterie.Scaffold(lr=lr, local_steps=3), fed, "linear", rounds=1, **EXACT)
    start = np.repeat(flat(run.template)[None], N, 0)
    y, seen = start, []
    for _ in range(3):
        seen.append(b * (y - best))
        y = y - lr * seen[-1]
    np.testing.assert_allclose(kept(run), np.mean(seen, 0), rtol=1e-12)


def test_compressors_subtract_the_model_and_nothing_from_the_control() -> None:
    received = coterie.Scaffold().hub_init(Vector({"w": jax.numpy.ones(3)}))
    received = received._replace(control=received.model * 7)
    reference = coterie.Scaffold().reference(received, received)
    assert flat(reference.model).tolist() == [1, 1, 1]
    assert flat(reference.control).tolist() == [0, 0, 0]
