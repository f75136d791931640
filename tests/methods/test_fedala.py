"""FedALA's learnt weights against closed forms, NumPy and FedAvg."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, memories, trained

MLP = coterie.get_model("mlp", {"hidden": "5"})


def rows(vector: Any) -> NDArray[Any]:
    return np.asarray(vector.leaves[0]).reshape(N, D)


def test_rounds_are_those_of_numpy() -> None:
    """f_k(x) = (b_k/2)‖x − ŵ_k‖², all gradients exact, two of four clients a round."""
    fed, lr, eta, steps, learning = linear(), 0.2, 0.6, 2, 3
    b, best = facts(fed)
    method = coterie.FedALA(
        lr=lr, local_steps=steps, weight_lr=eta, weight_steps=learning, weighting="uniform"
    )
    run = trained(method, fed, "linear", rounds=6, cohort=2, **EXACT)
    w = flat(run.template)
    x, weights = np.repeat(w[None], N, 0), np.ones((N, D))
    fresh = np.ones(N, bool)

    def begin(k: int) -> NDArray[Any]:
        gap = np.zeros(D) if fresh[k] else w - x[k]
        for _ in range(learning):
            now = w - (1 - weights[k]) * gap
            weights[k] = np.clip(weights[k] - eta * b[k] * (now - best[k]) * gap, 0, 1)
        return w - (1 - weights[k]) * gap

    sampled = run.ledger.rows()[:, :2]
    for t in range(6):
        members = [int(k) for k in sampled[sampled[:, 0] == t, 1]]
        for k in members:
            x[k] = begin(k)
            for _ in range(steps):
                x[k] -= lr * b[k] * (x[k] - best[k])
            fresh[k] = False
        w = x[members].mean(0)
    kept = memories(run)
    np.testing.assert_allclose(flat(run.hub), w, rtol=1e-10)
    np.testing.assert_allclose(rows(kept.x), x, rtol=1e-10)
    np.testing.assert_allclose(rows(kept.weights), weights, rtol=1e-9, atol=1e-12)
    assert np.abs(weights - 1).max() > 0.1, "the weights must have moved"
    np.testing.assert_array_equal(kept.trained, ~fresh)
    np.testing.assert_allclose(
        rows(run.all_models("personal")), np.array([begin(k) for k in range(N)]), rtol=1e-10
    )
    assert set(run.ledger.rows()[:, 4]) == {steps + learning}
    assert method.work().steps == steps + learning


def test_enough_steps_find_the_best_point_between_the_two_models() -> None:
    """The problem falls apart into coordinates: θ̂ is ŵ cut to the interval from θ to w.

    A coordinate comes near at the rate 1 − ηb(w − θ)², so only those with some way to go are
    looked at.
    """
    fed = linear()
    _, best = facts(fed)
    method = coterie.FedALA(lr=0.1, local_steps=4, weight_lr=1.0, weight_steps=3000)
    run = trained(method, fed, "linear", rounds=3, **EXACT)
    w, theta = flat(run.hub), rows(memories(run).x)
    found = rows(run.all_models("personal"))
    far = np.abs(w - theta) > 0.1
    expected = np.clip(best, np.minimum(w, theta), np.maximum(w, theta))
    np.testing.assert_allclose(found[far], expected[far], atol=1e-5)
    inside = far & (np.abs(expected - w) > 1e-3) & (np.abs(expected - theta) > 1e-3)
    at_an_end = far & ((expected == w) | (expected == theta))
    assert at_an_end.any()
    assert inside.any() or at_an_end.sum() > 4


@pytest.mark.parametrize("cohort", [3])
def test_with_weights_of_one_it_is_fedavg(cohort: int, ragged: Federation) -> None:
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3}
    still = trained(coterie.FedALA(**options, weight_lr=0.0, upper=9), ragged, MLP, cohort=cohort)
    plain = trained(coterie.FedAvg(**options), ragged, MLP, cohort=cohort)
    np.testing.assert_array_equal(flat(still.hub), flat(plain.hub))
    np.testing.assert_array_equal(
        flat(still.all_models("personal")), flat(plain.all_models("global"))
    )
    moved = trained(coterie.FedALA(**options, weight_lr=5.0, upper=9), ragged, MLP, cohort=cohort)
    assert np.abs(flat(moved.hub) - flat(plain.hub)).max() > 1e-3


@pytest.mark.slow
def test_only_upper_layers_are_mixed(ragged: Federation) -> None:
    method = coterie.FedALA(lr=0.3, local_steps=3, weight_lr=20.0, upper=1)
    run = trained(method, ragged, MLP, cohort=3)
    personal, shared = (run.all_models(view).tree for view in ("personal", "global"))
    for name, leaf in personal["layer0"].items():
        np.testing.assert_array_equal(leaf, shared["layer0"][name])
    assert np.abs(personal["layer1"]["w"] - shared["layer1"]["w"]).max() > 1e-3
    kept = memories(run)
    weights = flat(kept.weights)
    assert weights.size == 5 * (3 * 5 + 3), "there are weights for the last layer only"
    assert weights.min() >= 0
    assert weights.max() == 1
    assert ((weights > 0) & (weights < 1)).any()
    never = ~kept.trained
    assert never.sum() < 5
    for leaf in kept.weights.leaves:  # who never trained has nothing to mix in
        assert (leaf[never] == 1).all()


@pytest.mark.slow
def test_a_share_takes_the_first_mini_batches_of_the_rounds_order(ragged: Federation) -> None:
    """14 samples in batches of 4 are 4 mini-batches: a share of 0.4 has 2 of them, so a third step
    looks at the first again. Another share changes what is learnt.
    """
    run = trained(coterie.FedALA(local_epochs=1, share=0.4, weight_steps=3), ragged, rounds=1)
    epoch = -(-ragged.train.sizes // 4)
    batches = np.ceil(0.4 * epoch)
    np.testing.assert_array_equal(run.ledger.rows()[:, 4], epoch + 3 * batches)
    assert coterie.FedALA(local_epochs=1, weight_steps=3).work()[:2] == (None, 4)
    with run.precision():
        counts = {
            s: run.method.replace(share=s).learning(run.now().objective(1))
            for s in (0.01, 0.25, 0.4, 0.75, 1.0)
        }
    assert {s: int(found[1]) for s, found in counts.items()} == {
        0.01: 1,
        0.25: 1,
        0.4: 2,
        0.75: 3,
        1.0: 4,
    }
    one, two = (
        trained(coterie.FedALA(lr=0.2, local_steps=3, weight_lr=5.0, share=s), ragged, cohort=4)
        for s in (0.25, 1.0)
    )
    assert np.abs(flat(one.hub) - flat(two.hub)).max() > 1e-6
