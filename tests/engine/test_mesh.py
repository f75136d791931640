"""How many devices clients are spread over, and what goes over them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.adversary import get_attack
from coterie.channel import get_channel
from coterie.engine import mesh
from coterie.engine.row_scores import row_scores
from tests.support.conformance_cases import SAMPLED, TRAINING, assert_alike, small, uneven_graph

TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def both(method: Any, federation: Federation, **options: Any) -> tuple[Any, Any]:
    one, two = (coterie.simulate(method, federation, **options, devices=d) for d in (1, 2))
    assert two.simulator.spec.devices == 2
    return one, two


def test_more_devices_than_there_are_are_refused(ragged: Federation) -> None:
    with pytest.raises(coterie.InvalidInput, match=r"training.devices is 3, but there are 2;"):
        coterie.simulate("fedavg", ragged, rounds=1, devices=3)


def test_small_rounds_stay_on_one_device(ragged: Federation) -> None:
    assert coterie.simulate(small("fedavg"), ragged, **TRAINING).simulator.spec.devices == 1


@pytest.mark.parametrize(
    ("clients", "work", "devices"), [(10, 1e9, 2), (2, 1e9, 2), (1, 1e9, 1), (10, 1e5, 1)]
)
def test_the_rule(clients: int, work: float, devices: int) -> None:
    assert mesh.devices_for(None, clients, work) == devices


def test_several_processes_use_all_devices_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert mesh.devices_for(None, 10, 0.0) == jax.device_count()
    assert mesh.devices_for(jax.device_count(), 10, 0.0) == jax.device_count()
    with pytest.raises(coterie.InvalidInput, match=r"training\.devices is 1, but the 2 processes"):
        mesh.devices_for(1, 10, 1e12)


def test_the_global_model_stays_on_one_device(ragged: Federation) -> None:
    run = coterie.simulate(small("global"), ragged, **TRAINING, devices=2)
    assert run.simulator.spec.mesh is None


def test_a_hadamard_projection_is_the_same_on_two_devices(ragged: Federation) -> None:
    one, two = both(small("lp-proj-2", projection="srht"), ragged, **SAMPLED)
    assert_alike(one, two, **TIGHT)


def test_data_are_not_copied_for_every_core(ragged: Federation) -> None:
    sim = coterie.simulate(small("fedavg"), ragged, **TRAINING, devices=2).simulator
    shards = sim.setting.data.x.addressable_shards
    assert len({shard.data.unsafe_buffer_pointer() for shard in shards}) == 1


def test_compressed_links_and_attacks(ragged: Federation) -> None:
    graph, channel = uneven_graph(), get_channel("delta", {"share": 0.3, "values": "int8"})
    assert_alike(*both(small("fedu"), ragged, graph=graph, channel=channel, **SAMPLED), **TIGHT)
    attack = get_attack("same-value", {"fraction": 0.4})
    assert_alike(*both(small("fedavg"), ragged, attack=attack, **TRAINING), **TIGHT)


def test_a_learnt_graph(wide: Federation) -> None:
    rule = coterie.learn_graph("kin", **{"after": 1, "neighbours": 2, "sketch": 3})
    one, two = both(small("fedu"), wide, graph=rule, **TRAINING)
    assert_alike(one, two, **TIGHT)
    assert (one.simulator.graph.weights != two.simulator.graph.weights).nnz == 0


def test_several_seeds_in_one_program(ragged: Federation) -> None:
    runs = [
        coterie.simulate_many([small("fedavg")], ragged, seeds=[0, 1], **SAMPLED, devices=d)
        for d in (1, 2)
    ]
    for one, two in zip(*runs, strict=True):
        assert two.simulator.spec.devices == 2
        assert_alike(one, two, **TIGHT)


def test_rows_and_models_of_all(ragged: Federation) -> None:
    one, two = (r.simulator for r in both(small("pfedme"), ragged, **SAMPLED))
    a, b = row_scores(one), row_scores(two)
    assert a is not None
    assert b is not None
    for view in a.scores:
        np.testing.assert_array_equal(a.scores[view], b.scores[view])


@pytest.mark.parametrize("said", [None, 1, 3])
def test_cores_are_devices_unless_the_user_says_how_many(said: int | None) -> None:
    """What is set before JAX starts counts."""
    code = (
        "import jax; from coterie.engine import mesh; print(jax.device_count());"
        "print(mesh.devices_for(None, 10, 1e9))"
    )
    given = {} if said is None else {"JAX_NUM_CPU_DEVICES": str(said)}
    env = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"} | given
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    expected = str(mesh.cores() if said is None else said)
    assert found.stdout.split() == [expected, expected]
