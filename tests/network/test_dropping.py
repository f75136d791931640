"""Drop-outs, in time and in training; networks in experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import Federation, Method, Training, load, simulate
from coterie.core.errors import InvalidInput
from coterie.coupling.graph import complete, ring
from coterie.engine.simulate import Simulator, drive
from coterie.methods.base import get_method
from coterie.network import (
    Network,
    forecast_result,
    measure_gradient_seconds,
    peer_time,
    star_time,
)
from coterie.network.forecast import forecast
from coterie.runs.compare import compare_into
from coterie.runs.experiment import Experiment
from coterie.runs.forecast import forecast_run
from tests.support.bills import FREE, bill, links


def test_drop_outs_belong_to_the_seed_and_are_nested() -> None:
    small, large = Network(drop_out=0.1), Network(drop_out=0.3)
    a = np.stack([small.away(3, t, 200) for t in range(20)])
    assert (a == np.stack([small.away(3, t, 200) for t in range(20)])).all()
    assert (a <= np.stack([large.away(3, t, 200) for t in range(20)])).all()
    assert a.mean() == pytest.approx(0.1, abs=0.02)
    assert (a != np.stack([small.away(4, t, 200) for t in range(20)])).any()
    assert not Network().away(0, 0, 5).any()


def test_waiting_for_a_drop_out_takes_as_long_as_it_lasts() -> None:
    rows, at = bill(30, [1] * 4, 1, 0), links([0.0] * 4)
    network = Network(**FREE, drop_out=0.1, drop_seconds=7.0)
    found = np.diff(star_time(network, rows, at, seed=2).seconds, prepend=0)
    hit = np.array([network.away(2, t, 4).any() for t in range(30)])
    assert hit.any()
    assert not hit.all()
    np.testing.assert_allclose(found, np.where(hit, 7.0, 0.0), atol=1e-9)
    impatient = network.replace(on_missing="go-on", patience=2.0, at_least=0.25)
    np.testing.assert_allclose(
        np.diff(star_time(impatient, rows, at, seed=2).seconds, prepend=0),
        np.where(hit, 2.0, 0.0),
        atol=1e-9,
    )
    patient = network.replace(
        on_missing="go-on", patience=9.0
    )  # it is back before anybody gives up
    assert not patient.changes_training
    np.testing.assert_allclose(
        np.diff(star_time(patient, rows, at, seed=2).seconds, prepend=0), found
    )


def test_peers_wait_for_drop_outs_too() -> None:
    rows, at = bill(10, [4] * 4, 4, 0), links([0.0] * 4)
    network = Network(**FREE, drop_out=0.1, drop_seconds=7.0)
    waiting = peer_time(network, rows, at, complete(4)).total
    hit = sum(network.away(0, t, 4).any() for t in range(10))
    assert waiting == pytest.approx(7.0 * hit)
    assert (
        peer_time(network.replace(on_missing="go-on", patience=1.0), rows, at, complete(4)).total
        <= waiting
    )


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=6)


GOING_ON = Network(drop_out=0.3, on_missing="go-on", patience=1.0, drop_seconds=60.0, at_least=0.3)


def dropping(method: Method, fed: Federation, training: Training) -> Simulator:
    """A simulator whose clients drop out as GOING_ON says."""
    absent = GOING_ON.absent(fed.clients)
    return Simulator(method, fed, "mlr", training, absent=absent)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedavg", {"local_steps": 1}),
        pytest.param("fedu", {"local_steps": 1}, marks=pytest.mark.slow),
        pytest.param(
            "pfedme", {"local_rounds": 1, "inner_steps": 1, "trains": "all"}, marks=pytest.mark.slow
        ),
    ],
)
def test_rounds_go_on_without_drop_outs(
    fed: Federation, name: str, options: dict[str, Any]
) -> None:
    training = Training(rounds=4, eval_every=4, batch_size=5, cohort=4)
    method = get_method(name, options)
    sim = dropping(method, fed, training)
    for _ in drive(sim):
        pass
    rows = sim.ledger.rows()
    plain = simulate(method, fed, "mlr", **training.to_config()).ledger.rows()
    gone = [
        GOING_ON.missing(0, t, plain[(plain[:, 0] == t) & (plain[:, 2] > 0), 1], 6)
        for t in range(4)
    ]
    expected = np.array([row for row in plain if not gone[row[0]][row[1]]])
    np.testing.assert_array_equal(rows, expected)
    assert 0 < len(rows) < len(plain)
    assert (
        forecast(GOING_ON, rows, method, 6, cohort=4).total
        >= sum(any(g[plain[plain[:, 0] == t, 1]]) for t, g in enumerate(gone)) * 1.0
    )


def test_a_round_without_somebody_is_that_of_the_others(fed: Federation) -> None:
    """FedAvg without client k in its only round is FedAvg on a federation that never had it."""
    training = Training(rounds=1, eval_every=1, sampling="full")
    seed = next(s for s in range(100) if GOING_ON.missing(s, 0, np.arange(6), 6).sum() == 2)
    training = training.replace(seed=seed)
    method = get_method("fedavg", {"local_steps": 1})
    sim = dropping(method, fed, training)
    sim.advance(1)
    others = np.flatnonzero(~GOING_ON.missing(seed, 0, np.arange(6), 6))
    alone = Simulator(method, fed.subset(others), "mlr", training)
    alone.advance(1)
    np.testing.assert_allclose(sim.hub.flat(), alone.hub.flat(), rtol=1e-5, atol=1e-7)
    same = dropping(method, fed, training.replace(store="host"))
    same.advance(1)
    np.testing.assert_allclose(same.hub.flat(), sim.hub.flat(), rtol=1e-6)


def test_too_few_survivors_are_waited_for() -> None:
    strict = GOING_ON.replace(at_least=1.0, drop_out=0.5)
    assert not any(strict.missing(0, t, np.arange(6), 6).any() for t in range(20))


CONFIG: dict[str, Any] = {
    "data": {"name": "digits", "clients": 4},
    "training": {"rounds": 2, "eval_every": 1, "batch_size": 5},
    "network": {"latency": 0.1, "up": 1e4, "spread": 0.3},
    "methods": [{"name": "fedavg", "local_steps": 1}],
}


def test_a_comparison_shows_the_predicted_time(tmp_path: Path) -> None:
    experiment = Experiment.from_config(CONFIG)
    assert Experiment.from_config(experiment.to_config()) == experiment
    comparison = compare_into(experiment, tmp_path / "out", say=lambda s: None)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "predicted time" in text
    assert "Predicted time" in text
    times = {row.label: row.predicted.mean for row in comparison.rows() if row.predicted}
    assert times["Local"] < times["FedAvg"]
    folder = next((tmp_path / "out" / "runs").glob("fedavg*"))
    quick, slow = forecast_run(Network(up=1e7), folder), forecast_run(Network(up=1e3), folder)
    assert quick.total < slow.total
    assert quick.to_target([0, 1, 2], [0.0, 0.5, 1.0], 0.4) == quick.after(1)
    assert quick.to_target([0, 1, 2], [0.0, 0.5, 1.0], 2.0) is None


def test_a_result_in_memory(fed: Federation) -> None:
    result = simulate(
        get_method("dfedu", {"local_steps": 1}), fed, "mlr", graph=ring(6), rounds=2, eval_every=2
    )
    found = forecast_result(Network(latency=0.5), result)
    assert found.total > 2 * 0.5
    assert found.per_round > 0.5
    assert 0 < measure_gradient_seconds(result.simulator, repeats=2) < 5


def test_wrong_networks_are_refused() -> None:
    for options in (
        {"latency": -1},
        {"engine": "pigeon"},
        {"drop_out": 2.0},
        {"up": 0},
        {"on_missing": "panic"},
    ):
        with pytest.raises(InvalidInput):
            Network.from_config(options)
    with pytest.raises(InvalidInput, match="network"):
        Experiment.from_config({**CONFIG, "network": "fast"})
    with pytest.raises(InvalidInput, match="graph"):
        forecast(Network(), bill(1, [1], 1, 1), get_method("dfedu"), 1)
    with pytest.raises(InvalidInput, match="one number for each of 3"):
        forecast(Network(), bill(1, [1], 1, 1), get_method("fedavg"), 3, links=links([0.0]))
