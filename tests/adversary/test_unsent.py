"""Lies that are not finite count as not sent, and how many there were is told: in a run's status,
after a kill too, and in the tables of a grid of attacks.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import coterie
from coterie.adversary import get_attack
from coterie.core.errors import CoterieError
from coterie.engine.simulate import Simulator
from coterie.report.attacked import Cell, attack_markdown, cell_text
from coterie.report.plain import grid_plain
from coterie.runs import run as runs
from coterie.runs.attack import attack_into
from coterie.runs.experiment import Experiment

INFINITE = {"fraction": 0.4, "factor": 1e300}
"""Every lie of `scaled` leaves float32."""
CONFIG = {
    "name": "small",
    "data": {"name": "digits", "clients": 5},
    "training": {"rounds": 4, "eval_every": 2, "batch_size": 5, "checkpoint_every": 2},
    "methods": [{"name": "fedavg", "local_steps": 1}],
}


class Stop(CoterieError):
    """In the place of a kill."""


def test_a_run_that_was_stopped_counts_them_all(tmp_path: Path) -> None:
    attack = get_attack("scaled", INFINITE)
    experiment = Experiment.from_config(CONFIG).with_(attack=attack)

    def stop(simulator: Simulator, snapshot: object) -> None:
        if simulator.t == 4:
            raise Stop("stopped")

    with pytest.raises(Stop):
        runs.start(experiment, tmp_path / "stopped", progress=stop)
    assert not runs.has_ended(tmp_path / "stopped")
    runs.resume(tmp_path / "stopped")
    told = json.loads((tmp_path / "stopped/status.json").read_text())
    assert told["unsent"] == 4 * 2  # two liars of five in each of four rounds


def test_the_best_round_is_brought_back_with_the_count_of_all() -> None:
    fed = coterie.load("digits", clients=5, validation=0.2)
    result = coterie.simulate(
        coterie.FedAvg(local_steps=1, lr=1e-30, merging="median"),
        fed,
        "mlr",
        attack=get_attack("scaled", INFINITE),
        rounds=4,
        eval_every=2,
        keep="best",
    )
    assert result.kept == 0  # nobody learns anything
    assert result.simulator.unsent == 4 * 2


def test_a_grid_says_how_many(tmp_path: Path) -> None:
    experiment = Experiment.from_config(CONFIG)
    attacks = [get_attack("scaled", {"factor": 1e300}), get_attack("scaled", {"factor": 2.0})]
    for attack, said in zip(attacks, (True, False), strict=True):
        grid = attack_into(experiment, [attack], [0.0, 0.4], tmp_path / f"{said}")
        assert grid.cells["FedAvg", "scaled", 0.4].unsent == ((8,) if said else (0,))
        text = attack_markdown(grid)
        assert ("; 8 lies not sent |" in text) == said
        assert ("as a hub refuses it" in text) == said
        page = (tmp_path / f"{said}/report.html").read_text()
        assert ("8 lies not sent" in page) == said
        lines = grid_plain(grid)["cells"]
        assert [line["lies_not_sent"] for line in lines if "lies_not_sent" in line] == (
            [[8]] if said else []
        )


def test_cells_of_several_seeds() -> None:
    few = Cell((0.5, 0.5), (None, None), (), (4, 27))
    assert cell_text(few) == "50.00 ± 0.00; 4–27 lies not sent"
    assert cell_text(Cell((0.5,), (None,), (), (0,))) == "50.00"
