"""Devices with memories of their own: each has its own clients' rows, or an equal share of all, and
results stay the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.adversary import get_attack
from coterie.engine import mesh, prepare
from coterie.engine.mesh import Apart
from coterie.engine.row_scores import row_scores
from coterie.engine.scattered import Scattered
from coterie.engine.supply import FromHost
from tests.support.conformance_cases import SAMPLED, TRAINING, assert_alike, small, uneven_graph

TIGHT = {"rtol": 1e-10, "atol": 1e-12}
EPOCHS = {**TRAINING, "batch_size": 2}


@pytest.fixture(autouse=True)
def accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that are taken for devices with memories of their own."""
    count = lambda mesh: 1 if mesh is None else mesh.size
    monkeypatch.setattr(mesh, "memories", count)
    monkeypatch.setattr(prepare, "memories", count)


def both(
    method: Any, federation: Federation, kept: type = Apart, **options: Any
) -> tuple[Any, Any]:
    one, two = (coterie.simulate(method, federation, **options, devices=d) for d in (1, 2))
    assert isinstance(two.simulator.setting.data.x, kept)
    return one, two


def uneven(method: Any) -> Any:
    """With local epochs, so that clients are dealt out by their sizes."""
    return coterie.get_method(method, {"local_epochs": 1, "lr": 0.05})


@pytest.mark.parametrize("name", ["per-fedavg"])
def test_results_are_those_of_one_device(ragged: Federation, name: str) -> None:
    one, two = both(small(name), ragged, **TRAINING)
    assert_alike(one, two, **TIGHT)
    rows = [row_scores(run.simulator) for run in (one, two)]
    assert rows[0] is not None
    assert rows[1] is not None
    for view, scores in rows[0].scores.items():
        np.testing.assert_array_equal(scores, rows[1].scores[view])


def test_clients_that_are_dealt_out_by_their_sizes(ragged: Federation) -> None:
    one, two = both(uneven("fedu"), ragged, graph=uneven_graph(), **EPOCHS)
    assert two.simulator.spec.sort_by_work
    assert_alike(one, two, **TIGHT)


@pytest.mark.slow
def test_all_train_and_some_send(ragged: Federation) -> None:
    assert_alike(*both(small("pfedme"), ragged, **SAMPLED), **TIGHT)


def test_poisoned_rows(ragged: Federation) -> None:
    attack = get_attack("random-labels", {"fraction": 0.4})
    assert_alike(*both(small("fedavg"), ragged, attack=attack, **TRAINING), **TIGHT)


def test_some_drop_out(ragged: Federation) -> None:
    absent = lambda seed, t, client: (t + client) % 3 == 0
    options = coterie.Training.from_config({**TRAINING, "rounds": 3})

    def after(devices: int) -> Any:
        training = coterie.Training.from_config({**options.to_config(), "devices": devices})
        sim = coterie.Simulator(small("fedavg"), ragged, "mlr", training, absent=absent)
        while sim.t < 3:
            sim.advance(3)
        return sim

    one, two = after(1), after(2)
    assert isinstance(two.setting.data.x, Apart)
    for a, b in zip(one.all_models().leaves, two.all_models().leaves, strict=True):
        np.testing.assert_allclose(a, b, **TIGHT)


@pytest.mark.slow
@pytest.mark.parametrize("options", [TRAINING, SAMPLED])
def test_several_seeds_share_the_rows(ragged: Federation, options: dict[str, Any]) -> None:
    runs = [
        coterie.simulate_many([small("fedavg")], ragged, seeds=[0, 1], **options, devices=d)
        for d in (1, 2)
    ]
    for one, two in zip(*runs, strict=True):
        assert_alike(one, two, **TIGHT)
    first, second = (run.simulator.setting.data.x.parts for run in runs[1])
    assert first is second


def test_no_device_has_rows_of_others(ragged: Federation) -> None:
    _, two = both(small("fedavg"), ragged, **TRAINING)
    sizes, x = ragged.train.sizes, two.simulator.setting.data.x.parts
    half = -(-ragged.clients // 2)
    assert x.shape[1] == max(sizes[:half].sum(), sizes[half:].sum()) < sizes.sum()
    for shard in x.addressable_shards:
        device = shard.index[0].start or 0
        mine = slice(
            ragged.train.offsets[device * half],
            ragged.train.offsets[min(ragged.clients, (device + 1) * half)],
        )
        rows = np.asarray(shard.data)[0]
        expected = ragged.train.x[mine]
        np.testing.assert_allclose(rows[: len(expected)], expected, rtol=1e-6)
        assert not rows[len(expected) :].any()


def test_where_a_sample_trains_every_device_has_an_equal_share(ragged: Federation) -> None:
    one, two = both(small("fedavg"), ragged, Scattered, **SAMPLED)
    assert_alike(one, two, **TIGHT)
    for name in ("x", "y"):
        rows = getattr(ragged.train, name)
        each = -(-len(rows) // 2)
        shards = getattr(two.simulator.setting.data, name).parts.addressable_shards
        assert len(shards) == 2
        for shard in shards:
            device, found = shard.index[0].start or 0, np.asarray(shard.data)[0]
            expected = rows[device * each : (device + 1) * each]
            assert len(found) == each
            np.testing.assert_allclose(found[: len(expected)], expected, rtol=1e-6)
            assert not found[len(expected) :].any()


def test_samples_are_poisoned_dealt_out_by_size_and_billed_alike(ragged: Federation) -> None:
    attack = get_attack("random-labels", {"fraction": 0.4})
    options = {**EPOCHS, "cohort": 3, "attack": attack}
    one, two = both(uneven("fedavg"), ragged, Scattered, **options)
    assert two.simulator.spec.sort_by_work
    assert_alike(one, two, **TIGHT)


@pytest.mark.parametrize("options", [pytest.param(TRAINING, marks=pytest.mark.slow), SAMPLED])
def test_validation_rows_are_shared_out_too(ragged: Federation, options: dict[str, Any]) -> None:
    kept = Scattered if "cohort" in options else Apart
    method = small("fedu", guard=True)
    one, two = both(method, ragged, kept, graph=uneven_graph(), **options)
    assert isinstance(two.simulator.setting.data.held.x, kept)
    assert_alike(one, two, **TIGHT)


@pytest.mark.slow
def test_some_of_a_sample_drop_out(ragged: Federation) -> None:
    absent = lambda seed, t, cohort: np.arange(ragged.clients) == t

    def after(devices: int) -> Any:
        training = coterie.Training.from_config({**SAMPLED, "devices": devices})
        sim = coterie.Simulator(small("fedavg"), ragged, "mlr", training, absent=absent)
        while sim.t < 4:
            sim.advance(4)
        return sim

    one, two = after(1), after(2)
    assert isinstance(two.setting.data.x, Scattered)
    for a, b in zip(one.all_models().leaves, two.all_models().leaves, strict=True):
        np.testing.assert_allclose(a, b, **TIGHT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "more"),
    [
        (small("fedavg"), {"store": "host", "cohort": 3}),
        (small("dfedu", edges=2), {"graph": uneven_graph()}),
    ],
)
def test_rounds_that_come_one_by_one_are_given_their_rows(
    ragged: Federation, method: Any, more: dict[str, Any]
) -> None:
    """A sample of more than one in four, whose states are on the host; and edges that are drawn."""
    one, two = (coterie.simulate(method, ragged, **TRAINING, **more, devices=d) for d in (1, 2))
    assert type(two.simulator.supply) is FromHost
    assert_alike(one, two, **TIGHT)
