"""Who is like whom: clients' models at the other clients."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.engine.evaluate import to_device
from coterie.engine.transfer import Transfer, transfer


def sites(flipped: tuple[int, ...], clients: int = 8, rows: int = 60) -> coterie.Federation:
    """One rule at all clients, the other way round at some."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(clients * rows, 4)).astype(np.float32)
    owner = np.repeat(np.arange(clients), rows)
    y = (x @ np.array([1.0, -2.0, 0.5, 1.0]) > 0).astype(np.int32)
    y = np.where(np.isin(owner, flipped), 1 - y, y).astype(np.int32)
    return coterie.from_arrays("sites", x, y, owner)


def found(flipped: tuple[int, ...]) -> Transfer:
    result = coterie.simulate(
        coterie.Local(lr=0.5, local_steps=5), sites(flipped), rounds=4, eval_every=4
    )
    held = to_device(result.federation.train, np.float32)
    return transfer(result.simulator.spec.learner, result.simulator.all_models(), held)


def test_scores_are_those_of_every_model_at_every_other_client() -> None:
    result = coterie.simulate(
        coterie.Local(lr=0.5, local_steps=5), sites((0,)), rounds=4, eval_every=4
    )
    made = found((0,))
    train = result.federation.train
    for owner, client in ((0, 3), (5, 0), (2, 7)):
        model = result.personal(owner).tree
        x, y = (part[:64] for part in train.client(client))
        right = np.argmax(np.asarray(result.simulator.model.outputs(model, x)), 1) == y
        assert made.score[owner, client] == pytest.approx(right.mean(), abs=1e-6)
    assert np.isnan(np.diag(made.score)).all()


def test_a_client_whose_labels_are_flipped_is_like_nobody() -> None:
    assert found((0,)).unlike() == [0]


@pytest.mark.parametrize("flipped", [(), (0, 1, 2, 3)], ids=["one rule", "two halves"])
def test_nobody_is_strange_where_there_are_others_like_it(flipped: tuple[int, ...]) -> None:
    assert found(flipped).unlike() == []


def test_few_clients_do_not_show_what_is_usual() -> None:
    score = np.array([[np.nan, 0.1, 0.1], [0.1, np.nan, 0.9], [0.1, 0.9, np.nan]])
    assert Transfer(np.arange(3), score).unlike() == []
