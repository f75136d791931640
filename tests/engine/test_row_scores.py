"""Scores per test row: their means are the clients' scores, whoever trains, lies or is held out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.adversary import get_attack
from coterie.data.federation import Split
from coterie.engine.row_scores import row_scores


def means(result: coterie.Result, view: str) -> np.ndarray:
    found = row_scores(result.simulator)
    assert found is not None
    out = np.full(result.federation.clients, np.nan)
    for k in np.unique(found.client):
        mine = found.client == k
        assert found.row[mine].tolist() == list(range(int(result.federation.test.sizes[k])))
        out[k] = found.scores[view][mine].mean(dtype=float)
    return out


@pytest.mark.parametrize("at_once", [1, 256])
def test_rows_average_to_the_clients_scores(ragged: Federation, at_once: int) -> None:
    result = coterie.simulate(
        coterie.PFedMe(local_rounds=1, inner_steps=2),
        ragged,
        "mlr",
        rounds=2,
        eval_every=2,
        batch_size=4,
        eval_at_once=at_once,
    )
    for i, view in enumerate(result.method.model_views):
        assert means(result, view) == pytest.approx(
            result.client_scores(view=i), rel=1e-6, nan_ok=True
        )
    found = row_scores(result.simulator)
    assert found is not None
    assert set(np.unique(found.scores["personal"])) == {0.0, 1.0}


def test_rows_of_a_regression_are_negated_squared_errors(ragged: Federation) -> None:
    def real(split: Split) -> Split:
        return dataclasses.replace(split, y=(split.x[:, 0] + split.y).astype(np.float32))

    lines = Federation(
        "lines", real(ragged.train), real(ragged.validation), real(ragged.test), "regression"
    )
    result = coterie.simulate(
        coterie.FedU(local_steps=1, lr=0.01), lines, "linear", rounds=1, batch_size=4
    )
    assert means(result, "personal") == pytest.approx(result.client_scores(), rel=1e-5, nan_ok=True)


def test_liars_and_held_out_clients_have_no_rows(ragged: Federation) -> None:
    result = coterie.simulate(
        coterie.FedAvg(local_steps=1),
        ragged,
        "mlr",
        rounds=1,
        batch_size=4,
        held_out=1,
        attack=get_attack("sign-flip", {"fraction": 0.3}),
    )
    assert result.simulator.malicious.any()
    assert means(result, "global") == pytest.approx(result.client_scores(), rel=1e-6, nan_ok=True)


def test_without_test_rows_there_are_none() -> None:
    result = coterie.simulate(
        coterie.Local(local_steps=1), coterie.load("digits", clients=3, test=0.0), rounds=1
    )
    assert row_scores(result.simulator) is None
