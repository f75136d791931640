"""Runs that are judged by another metric: the same models, scored on the host or on the device."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import coterie
from coterie import Federation, InvalidInput
from coterie.adversary import get_attack
from coterie.core.metrics import METRICS
from coterie.data.federation import Split
from coterie.engine import outputs
from coterie.engine.reference import simulate_slowly
from coterie.engine.row_scores import row_scores
from coterie.report.outcome import Outcome
from coterie.runs.experiment import Experiment
from coterie.runs.outcomes import read_outcome
from coterie.runs.run import start

RUN: dict[str, Any] = {"rounds": 2, "eval_every": 2, "batch_size": 4, "precision": "float64"}
METHOD = coterie.PFedMe(local_rounds=1, inner_steps=2)


def by_hand(result: coterie.Result, name: str, split: str, view: str) -> np.ndarray:
    part = getattr(result.federation, split)
    parts = []
    for k in range(result.federation.clients):
        x, _ = part.client(k)
        p = result.simulator.models(k)[view].tree
        parts.append(x @ p["w"].T + p["b"])
    return METRICS[name].scores(np.concatenate(parts), part.y, part.offsets)


@pytest.fixture(scope="module")
def plain(ragged: Federation) -> coterie.Result:
    return coterie.simulate(METHOD, ragged, **RUN)


@pytest.mark.parametrize(
    "name", ["auc", "f1", "balanced-accuracy", "log-loss", "calibration-error"]
)
def test_scores_are_the_metric_of_the_clients_own_rows(
    name: str, ragged: Federation, plain: coterie.Result
) -> None:
    result = coterie.simulate(METHOD, ragged, metric=name, **RUN)
    last = result.snapshots[-1]
    for split, scores in last.scores.items():
        for i, view in enumerate(result.method.model_views):
            expected = by_hand(result, name, split, view)
            np.testing.assert_allclose(scores.score[i], expected, rtol=1e-9)
            np.testing.assert_allclose(
                scores.loss[i], plain.snapshots[-1].scores[split].loss[i], rtol=1e-9
            )
    np.testing.assert_array_equal(
        result.personal(0).tree["w"], plain.personal(0).tree["w"], "training does not see it"
    )
    assert result.metric.name == name


def test_memory_is_bounded_by_chunks_of_clients(
    ragged: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = coterie.simulate(METHOD, ragged, metric="auc", **RUN)
    seen: list[int] = []
    plain = outputs.by_rows

    def watched(look: Any, size: Any, width: int) -> Any:
        seen.append(int(size.sum()))
        return plain(look, size, width)

    monkeypatch.setattr(outputs, "ROWS", 8)
    monkeypatch.setattr(outputs, "by_rows", watched)
    parts = coterie.simulate(METHOD, ragged, metric="auc", **RUN, eval_at_once=1)
    np.testing.assert_array_equal(parts.client_scores(), whole.client_scores())
    assert max(n for n in seen if n != 70) <= 8 + 6, "or the rows of one client"


def test_the_slow_reference_agrees(ragged: Federation) -> None:
    for name in ("auc", "log-loss"):
        fast = coterie.simulate(METHOD, ragged, metric=name, **RUN)
        slow = simulate_slowly(METHOD, ragged, "mlr", metric=name, **RUN)
        np.testing.assert_allclose(slow.client_scores(), fast.client_scores(), rtol=1e-9)


def lines(fed: Federation) -> Federation:
    real = lambda s: dataclasses.replace(s, y=(s.x[:, 0] + 0.1 * s.y).astype(np.float32))
    return Federation("lines", real(fed.train), real(fed.validation), real(fed.test), "regression")


@pytest.mark.parametrize("name", ["rmse", "mae", "r2"])
def test_quantities_too(name: str, ragged: Federation) -> None:
    fed = lines(ragged)
    result = coterie.simulate(coterie.Local(local_steps=2), fed, "linear", metric=name, **RUN)
    for k in (0, 4):
        x, y = fed.test.client(k)
        told = (x @ result.personal(k).tree["w"].T + result.personal(k).tree.get("b", 0)).reshape(
            -1
        )
        value = METRICS[name].values(told[:, None], y, np.array([0, len(y)]))[0]
        assert result.client_scores()[k] == pytest.approx(METRICS[name].sign * value, rel=1e-6)


def test_newcomers_and_attacks_are_judged_by_it_too(ragged: Federation) -> None:
    result = coterie.simulate(
        coterie.FedAvg(local_steps=1),
        ragged,
        rounds=1,
        batch_size=4,
        held_out=1,
        metric="balanced-accuracy",
        attack=get_attack("sign-flip", {"fraction": 0.3}),
    )
    scores = result.snapshots[-1].scores
    assert (~np.isnan(scores["newcomers"].score[0])).sum() <= 1
    found = row_scores(result.simulator)
    assert found is not None
    assert found.outputs is not None
    assert found.y is not None
    assert not found.scores
    lying = result.simulator.members[result.simulator.malicious]
    assert not np.isin(found.client, lying).any()
    for k in np.unique(found.client):
        mine = found.client == k
        value = METRICS["balanced-accuracy"].scores(
            found.outputs["global"][mine], found.y[mine], np.array([0, mine.sum()])
        )
        assert value[0] == pytest.approx(result.client_scores()[k], rel=1e-6)


def test_a_metric_of_the_other_task_is_refused(ragged: Federation) -> None:
    with pytest.raises(InvalidInput, match="'rmse', but that is for regression"):
        coterie.simulate(METHOD, ragged, metric="rmse", rounds=1)
    with pytest.raises(InvalidInput, match="did you mean 'auc'"):
        coterie.simulate(METHOD, ragged, metric="auk", rounds=1)


CONFIG = {
    "data": {"name": "digits", "clients": 3},
    "training": {"rounds": 1, "batch_size": 8, "metric": "auc"},
    "method": {"name": "pfedme", "local_rounds": 1, "inner_steps": 2},
}


def test_a_folder_keeps_what_tests_need(tmp_path: Path) -> None:
    experiment = Experiment.from_config(CONFIG)
    start(experiment, tmp_path / "run", say=lambda sentence: None)
    table = pq.read_table(tmp_path / "run" / "rows.parquet")
    assert [c for c in table.column_names if c.startswith("output_")] == [
        f"output_{i}" for i in range(10)
    ]
    read = read_outcome(tmp_path / "run", experiment)
    result = coterie.simulate(
        experiment.method, experiment.federation(), metric="auc", rounds=1, batch_size=8
    )
    made = Outcome.from_result(result)
    assert read.rows is not None
    assert made.rows is not None
    assert read.rows.outputs is not None
    assert made.rows.outputs is not None
    np.testing.assert_array_equal(read.rows.outputs["personal"], made.rows.outputs["personal"])
    np.testing.assert_array_equal(read.rows.y, made.rows.y)
    np.testing.assert_array_equal(read.last(), made.last())
    assert read.validation == pytest.approx(made.validation, rel=1e-12)
    assert made.validation == pytest.approx(
        np.nanmean(result.snapshots[-1].scores["validation"].score[0])
    )


def test_clients_without_a_value_are_in_no_mean() -> None:
    """Client 0 has one class in all its test rows."""
    rng = np.random.default_rng(0)
    part = lambda n: Split(
        rng.normal(size=(3 * n, 2)).astype(np.float32),
        np.concatenate([np.zeros(n, int), rng.integers(0, 2, 2 * n)]),
        n * np.arange(4),
    )
    some = Federation("some", part(12), part(8), part(10), classes=2)
    result = coterie.simulate("fedavg", some, rounds=1, batch_size=4, metric="auc")
    made = Outcome.from_result(result)
    assert np.isnan(made.last()).tolist() == [True, False, False]
    assert made.validation == pytest.approx(
        result.snapshots[-1].scores["validation"].score[0][1:].mean()
    )
