"""Every registered method on two devices gives what it gives on one, to rounding; cohorts, batches
and bills are the same.

Five clients cannot be shared out equally between two devices, ten can.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.engine.exchange import exchange_of
from coterie.runs.checkpoint import Checkpoints
from tests.support.conformance_cases import (
    KINDS,
    SAMPLED,
    TRAINING,
    VARIANTS,
    assert_alike,
    model_for,
    samples_cohorts,
    small,
    uneven_graph,
    variant,
)

# As for one client at a time (test_one_by_one.py).
TIGHT = {"rtol": 1e-10, "atol": 1e-12}
DAILY = {"fedavg", "fedu", "dfedu", "pfedme", "local", "fedu, epochs, all neighbours"}


def cases() -> list[Any]:
    return [
        label if label in DAILY else pytest.param(label, marks=pytest.mark.slow)
        for label in VARIANTS
        if label != "global" and not label.startswith("global,")
    ]


def graph_for(method: coterie.Method) -> coterie.Graph | None:
    return uneven_graph() if exchange_of(method).kind == "graph" else None


@pytest.mark.parametrize("label", cases())
def test_two_devices_give_what_one_gives(label: str, ragged: Federation) -> None:
    method = variant(label)
    options = SAMPLED if samples_cohorts(method) else TRAINING
    model, graph = model_for(method), graph_for(method)
    one = coterie.simulate(method, ragged, model, graph=graph, **options, devices=1)
    two = coterie.simulate(method, ragged, model, graph=graph, **options, devices=2)
    assert one.simulator.spec.devices == 1
    assert two.simulator.spec.devices == 2
    assert_alike(one, two, **TIGHT)


@pytest.mark.parametrize(
    "name", ["fedu", *(pytest.param(n, marks=pytest.mark.slow) for n in KINDS if n != "fedu")]
)
def test_equal_shares_stay_on_their_devices(name: str, wide: Federation) -> None:
    if name == "global":
        pytest.skip("has one learner, which is on one device")
    method = small(name)
    options = {**TRAINING, **({"cohort": 7} if samples_cohorts(method) else {})}
    one, two = (coterie.simulate(method, wide, **options, devices=d) for d in (1, 2))
    assert_alike(one, two, **TIGHT)
    for leaf in jax.tree.leaves(two.simulator.store.rows):
        assert {shard.data.shape[0] for shard in leaf.addressable_shards} == {5}


@pytest.mark.parametrize("store", ["device", "host"])
def test_a_run_on_two_devices_is_resumed_bit_for_bit(
    store: str, ragged: Federation, tmp_path: Path
) -> None:
    made = lambda: coterie.Simulator(
        small("fedu"),
        ragged,
        "mlr",
        coterie.Training(**SAMPLED, store=store, devices=2),
        uneven_graph(),
    )
    straight, begun, resumed = made(), made(), made()
    run_to(straight, 4)
    run_to(begun, 2)
    Checkpoints(tmp_path, "same", {}).write(begun)
    assert Checkpoints(tmp_path, "same", {}).restore(resumed, lambda said: pytest.fail(said))
    run_to(resumed, 4)
    everyone = np.arange(5)
    assert resumed.store.packed(everyone).tobytes() == straight.store.packed(everyone).tobytes()


def run_to(sim: coterie.Simulator, t: int) -> None:
    while sim.t < t:
        sim.advance(t - sim.t)
