"""Every registered method, stopped at a checkpoint and resumed in a new simulator, ends with the same bits; all states included."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import coterie
from coterie.engine.checkpoint import Checkpoints

FEDERATION = coterie.load("digits", clients=4)
GRAPH = coterie.graph.ring(4)
SMALL = {"local_steps": 2, "local_rounds": 2, "inner_steps": 2, "dsub": 5}


def simulator(name: str, store: str, folder: Path) -> coterie.Simulator:
    known = coterie.METHODS[name].public()
    method = coterie.get_method(name, {k: v for k, v in SMALL.items() if k in known})
    peers = method.exchange == "graph" and not method.hub_between
    options = coterie.Training(rounds=6, eval_every=6, batch_size=8, cohort=4 if peers else 2, store=store)
    return coterie.Simulator(method, FEDERATION, "mlr", options, GRAPH, folder)


def run_to(sim: coterie.Simulator, t: int) -> None:
    while sim.t < t:
        sim.advance(t - sim.t)


def bits(sim: coterie.Simulator) -> tuple[bytes, bytes]:
    hub = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(sim.hub))
    return hub, sim.store.packed(np.arange(4)).tobytes()


@pytest.mark.parametrize("store", ["device", "file"])
@pytest.mark.parametrize("name", coterie.METHODS)
def test_resumed_equals_undisturbed(name: str, store: str, tmp_path: Path) -> None:
    for part in ("whole", "first", "second", "run"):
        (tmp_path / part).mkdir()
    whole = simulator(name, store, tmp_path / "whole")
    run_to(whole, 6)
    first = simulator(name, store, tmp_path / "first")
    checkpoints = Checkpoints(tmp_path / "run", "same", {})
    for t in (1, 3):
        run_to(first, t)
        checkpoints.write(first)
    second = simulator(name, store, tmp_path / "second")
    assert Checkpoints(tmp_path / "run", "same", {}).restore(second, lambda sentence: pytest.fail(sentence))
    assert second.t == 3
    assert bits(second) == bits(first)
    run_to(second, 6)
    assert bits(second) == bits(whole)
    assert second.ledger.totals() == whole.ledger.totals()
