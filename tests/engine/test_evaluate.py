"""Scores are those of the client's own models on its own samples, whatever the chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.engine import evaluate as module

RUN: dict[str, Any] = {"rounds": 4, "eval_every": 2, "batch_size": 4, "precision": "float64"}


def flat(model: Any) -> np.ndarray:
    """All numbers of a model, in the precision it has.

    (`Vector.flat` goes through JAX, which is in single precision outside a run.)
    """
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in model.leaves])


def by_hand(result: coterie.Result, split: str, view: str) -> tuple[np.ndarray, np.ndarray]:
    n = result.federation.clients
    loss, score = np.full(n, np.nan), np.full(n, np.nan)
    for k in range(n):
        x, y = getattr(result.federation, split).client(k)
        if len(x):
            p = result.simulator.models(k)[view].tree
            z = x @ p["w"].T + p["b"]
            peak = z.max(1)
            loss[k] = np.mean(
                peak + np.log(np.exp(z - peak[:, None]).sum(1)) - z[np.arange(len(y)), y]
            )
            score[k] = np.mean(z.argmax(1) == y)
    return loss, score


@pytest.mark.parametrize("name", ["pfedme", "fedavg", "fedu"])
def test_scores_by_hand(name: str, ragged: Federation) -> None:
    options = {"local_rounds": 2, "inner_steps": 3} if name == "pfedme" else {"local_steps": 3}
    result = coterie.simulate(coterie.get_method(name, options), ragged, **RUN, train_metrics=True)
    last = result.snapshots[-1]
    assert set(last.scores) == {"train", "validation", "test"}
    for split, scores in last.scores.items():
        for i, view in enumerate(result.method.model_views):
            loss, score = by_hand(result, split, view)
            np.testing.assert_allclose(scores.loss[i], loss, rtol=1e-10)
            np.testing.assert_allclose(scores.score[i], score, rtol=1e-12)
    assert np.isnan(last.scores["test"].score[:, 2]).all(), (
        "client 2 has no test samples: NaN, not 0"
    )
    assert np.isnan(last.scores["validation"].score[:, 1]).all()
    assert np.isfinite(result.curve()).all(), "a client without samples is left out of the mean"
    np.testing.assert_allclose(result.curve()[-1], np.nanmean(result.client_scores()))


@pytest.mark.parametrize("at_once", [1, 2, 3, 5, 256])
def test_chunks_do_not_matter(at_once: int, ragged: Federation) -> None:
    method = coterie.Local(local_steps=3)
    whole = coterie.simulate(method, ragged, **RUN).snapshots[-1].scores["test"]
    parts = (
        coterie.simulate(method, ragged, **RUN, eval_at_once=at_once).snapshots[-1].scores["test"]
    )
    np.testing.assert_allclose(parts.loss, whole.loss, rtol=1e-12)
    np.testing.assert_array_equal(parts.score, whole.score)


def test_a_client_may_have_more_samples_than_a_tile(ragged: Federation) -> None:
    assert ragged.test.sizes.max() > module.TILE > ragged.test.sizes.min()


def test_evaluation_changes_nothing_and_costs_nothing(ragged: Federation) -> None:
    often = coterie.simulate(coterie.FedAvg(local_steps=2), ragged, **{**RUN, "eval_every": 1})
    seldom = coterie.simulate(coterie.FedAvg(local_steps=2), ragged, **{**RUN, "eval_every": 4})
    np.testing.assert_array_equal(flat(often.personal(0)), flat(seldom.personal(0)))
    np.testing.assert_array_equal(often.ledger.rows(), seldom.ledger.rows())
    assert often.rounds == [0, 1, 2, 3, 4]
    assert seldom.rounds == [0, 4]


def test_regression_scores_are_negated_mean_squared_errors() -> None:
    fed = coterie.load("linear", clients=3, samples=5, dimension=2, test_samples=4)
    options = {**RUN, "sampling": "full"}
    del options["batch_size"]
    result = coterie.simulate(coterie.Local(lr=0.1, local_steps=2), fed, "linear", **options)
    assert set(result.snapshots[-1].scores) == {"test"}, "there is no validation split here"
    for k in range(3):
        x, y = fed.test.client(k)
        error = np.mean((x @ flat(result.personal(k)) - y) ** 2)
        assert result.client_scores()[k] == pytest.approx(-error, rel=1e-10)
        assert result.snapshots[-1].scores["test"].loss[0, k] == pytest.approx(error / 2, rel=1e-10)


def test_metrics_over_all_rows_know_batch_normalisation() -> None:
    """Models with statistics predict with those of their client, whatever they are judged by."""
    fed = coterie.load("digits", clients=3)
    model = coterie.get_model("mlp", {"hidden": "4", "norm": "batch"})
    run = {"rounds": 1, "eval_every": 1, "batch_size": 8}
    found = coterie.simulate(coterie.FedAvg(local_steps=1), fed, model, metric="auc", **run)
    assert np.isfinite(found.client_scores()).any()
