"""FedPer and FedRep against plain numpy rounds and against each other."""

from __future__ import annotations

from typing import Any

import numpy as np

import coterie
from coterie import Federation
from tests.support.softmax_runs import EXACT, MLP, flat, softmax_error, start


def test_fedrep_fits_heads_first_and_then_moves_the_representation_as_in_numpy(
    ragged: Federation,
) -> None:
    """The head here is the intercept of a softmax regression, the representation its weights; means
    are uniform.
    """
    lr, head_lr, head_steps, steps = 0.3, 0.5, 4, 2
    method = coterie.FedRep(lr=lr, head_lr=head_lr, head_steps=head_steps, local_steps=steps)
    result = coterie.simulate(method, ragged, "mlr", **EXACT)
    first = start(method, ragged, "mlr")
    w, b = first["w"], np.repeat(first["b"][None], 5, 0)
    for _ in range(3):
        moved = []
        for k in range(5):
            x, y = ragged.train.client(k)
            for _ in range(head_steps):
                b[k] -= head_lr * softmax_error(w, b[k], x, y).mean(0)
            own = w.copy()
            for _ in range(steps):
                own -= lr * softmax_error(own, b[k], x, y).T @ x / len(x)
            moved.append(own)
        w = np.mean(moved, axis=0)
    models = result.simulator.all_models().tree
    np.testing.assert_allclose(models["b"], b, rtol=1e-10)
    np.testing.assert_allclose(models["w"], np.repeat(w[None], 5, 0), rtol=1e-10)
    assert set(result.ledger.rows()[:, 4]) == {head_steps + steps}


def test_the_representation_moves_with_the_head_held_still(ragged: Federation) -> None:
    """A head_lr of almost nothing leaves the heads where they were, and the representation moves
    all the same.
    """
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3, "weighting": "uniform"}
    rep = coterie.FedRep(**options, head_steps=1, head_lr=1e-14)
    first, models = (
        start(rep, ragged, MLP),
        coterie.simulate(rep, ragged, MLP, **EXACT).simulator.all_models().tree,
    )
    for name, leaf in models["layer1"].items():
        np.testing.assert_allclose(leaf, np.repeat(first["layer1"][name][None], 5, 0), atol=1e-12)
    assert not np.allclose(models["layer0"]["w"][0], first["layer0"]["w"], rtol=1e-3)


def test_fedper_is_lg_fedavg_with_the_other_split(ragged: Federation) -> None:
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3}
    run: dict[str, Any] = {"cohort": 3, "sampling": "shuffle", "batch_size": 4}
    default = flat(coterie.FedPer(**options), ragged, **run)
    np.testing.assert_array_equal(
        default, flat(coterie.LGFedAvg(**options, shared="layer0"), ragged, **run)
    )
    assert not np.allclose(default, flat(coterie.LGFedAvg(**options), ragged, **run), rtol=1e-3)


def test_fedrep_with_everything_shared_is_fedavg_that_skips_the_head_s_batches(
    ragged: Federation,
) -> None:
    """No head is left to train, so with full batches only the steps on the representation count:
    FedAvg.
    """
    rep = flat(coterie.FedRep(lr=0.2, local_steps=3, head_steps=4, shared="layer0,layer1"), ragged)
    np.testing.assert_allclose(
        rep, flat(coterie.FedAvg(lr=0.2, local_steps=3, weighting="uniform"), ragged), rtol=1e-12
    )


def test_epochs_count_both_loops(ragged: Federation) -> None:
    method = coterie.FedRep(lr=0.1, local_epochs=2, head_steps=3)
    assert method.work()[:4] == (None, 5, 0.1, "sampled")
    rows = coterie.simulate(
        method, ragged, "mlr", rounds=1, eval_every=1, batch_size=4, precision="float64"
    ).ledger.rows()
    np.testing.assert_array_equal(rows[:, 4], 5 * -(-ragged.train.sizes // 4))
