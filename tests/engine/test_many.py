"""Runs side by side: each is what it is alone, whoever else is dropped or diverges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Diverged, FedU, Local
from coterie.engine.many import Many, simulate_many

TRAINING: dict[str, Any] = {"rounds": 6, "eval_every": 2, "batch_size": 4}
RATES = (0.1, 0.2, 0.3)


def federation() -> coterie.Federation:
    return coterie.load("digits", clients=3, validation=0.3)


def test_dropped_on_the_way_the_others_go_on_as_if_alone() -> None:
    methods = [FedU(local_steps=2, lr=lr) for lr in RATES]
    many = Many(methods, federation(), seeds=[5] * 3, training=TRAINING, alike=True)
    many.advance(2)
    assert len(many.slots) == 4  # a power of 2
    many.keep([1])
    many.advance(9)
    assert (many.t, many.members, len(many.slots)) == (6, [1], 1)
    many.give_states()
    alone = coterie.simulate(methods[1], federation(), **TRAINING, seed=5)
    for k in range(3):
        np.testing.assert_allclose(
            many.sims[1].models(k)["personal"].flat(), alone.personal(k).flat(), atol=1e-5
        )
    assert many.sims[1].ledger.totals() == alone.ledger.totals()
    assert many.sims[0].ledger.gradients == 2 * 3 * 2


def test_one_that_diverges_is_noted_and_the_others_go_on() -> None:
    methods = [Local(local_steps=2, lr=lr) for lr in (0.1, 1e38)]
    results = simulate_many(methods, federation(), keep_collapsed=True, **TRAINING)
    assert results[0].collapsed is None
    assert results[0].rounds == [0, 2, 4, 6]
    assert "diverged" in str(results[1].collapsed)
    assert results[1].rounds == [0]
    with pytest.raises(Diverged):
        simulate_many(methods, federation(), **TRAINING)


def test_each_keeps_its_own_best_round() -> None:
    methods = [Local(local_steps=2, lr=lr) for lr in (0.1, 3.0)]
    for result in simulate_many(methods, federation(), keep="best", **TRAINING):
        curve = result.curve("validation")
        assert result.kept == result.rounds[int(np.argmax(curve))]
        scores = result.simulator.evaluate().scores["test"].score[0]
        np.testing.assert_array_equal(scores, result.client_scores())
