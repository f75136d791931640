"""Every registered method, stopped at a checkpoint and resumed in a new simulator, ends with the
same bits; all states included.
"""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.runs.checkpoint import Checkpoints
from tests.support.conformance_cases import (
    NAMES,
    RIVALS,
    SAMPLED,
    TRAINING,
    model_for,
    samples_cohorts,
    small,
    uneven_graph,
)

LONG = tuple(name for name in RIVALS if name != "fedamp")
"""FedAMP's hub keeps a number without a dimension."""


def simulator(name: str, store: str, ragged: Federation, folder: Path) -> coterie.Simulator:
    method = small(name)
    options = coterie.Training(**(SAMPLED if samples_cohorts(method) else TRAINING), store=store)
    return coterie.Simulator(
        method, ragged, model_for(method), options, uneven_graph(), folder=folder
    )


def run_to(sim: coterie.Simulator, t: int) -> None:
    while sim.t < t:
        sim.advance(t - sim.t)


def bits(sim: coterie.Simulator) -> tuple[bytes, bytes]:
    hub = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(sim.hub_state))
    return hub, sim.store.packed(np.arange(5)).tobytes()


@pytest.mark.parametrize(
    ("name", "store"),
    [
        *(pytest.param(n, "file", marks=[pytest.mark.slow] if n in LONG else []) for n in NAMES),
        *(
            pytest.param(n, "device", marks=[] if n in ("fedavg", "fedu") else [pytest.mark.slow])
            for n in NAMES
        ),
    ],
)
def test_resumed_equals_undisturbed(
    name: str, store: str, ragged: Federation, tmp_path: Path
) -> None:
    for part in ("whole", "first", "second", "run"):
        (tmp_path / part).mkdir()
    whole = simulator(name, store, ragged, tmp_path / "whole")
    run_to(whole, 4)
    first = simulator(name, store, ragged, tmp_path / "first")
    checkpoints = Checkpoints(tmp_path / "run", "same", {})
    for t in (1, 2):
        run_to(first, t)
        checkpoints.write(first)
    second = simulator(name, store, ragged, tmp_path / "second")
    assert Checkpoints(tmp_path / "run", "same", {}).restore(
        second, lambda sentence: pytest.fail(sentence)
    )
    assert second.t == 2
    assert bits(second) == bits(first)
    run_to(second, 4)
    assert bits(second) == bits(whole)
    assert second.ledger.totals() == whole.ledger.totals()
