"""The grid: one resumable command, tables per attack, Local beside all; fairness and byte measures
on hand-made numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from coterie import InvalidInput
from coterie.adversary import draw_malicious, get_attack
from coterie.report.attacked import attack_markdown, cell_text
from coterie.report.fairness import Fairness, correlation, entropy, jain
from coterie.runs.attack import Cell, attack_into
from coterie.runs.experiment import Experiment
from coterie.runs.remake import gather

CONFIG = {
    "name": "small",
    "data": {"name": "digits", "clients": 5},
    "training": {"rounds": 3, "eval_every": 3, "batch_size": 5},
    "seeds": [0, 1],
    "methods": [{"name": "fedavg", "local_steps": 2}, {"name": "fedu", "local_steps": 2}],
}


def test_the_grid_is_complete_resumable_and_paired(tmp_path: Path) -> None:
    experiment = Experiment.from_config(CONFIG)
    attacks = [get_attack("sign-flip"), get_attack("label-flip")]
    begun: list[str] = []

    def begin(label: str, number: int, count: int) -> None:
        begun.append(f"{number + 1}/{count} {label}")

    grid = attack_into(experiment, attacks, [0.0, 0.4], tmp_path / "g", begin=begin)
    assert len(begun) == 2 * (
        1 + 2 * (1 + 2)
    )  # two seeds: Local unharmed; two methods unharmed and under two attacks
    assert begun[-1].startswith("14/14 ")
    assert grid.labels == ["Local", "FedAvg", "FedU"]
    clean = {label: grid.cells[label, "sign-flip", 0.0] for label in grid.labels}
    for label in grid.labels:
        assert grid.cells[label, "label-flip", 0.0] == clean[label], (
            "nobody malicious: the attack must not matter"
        )
    assert grid.cells["FedAvg", "sign-flip", 0.4] != clean["FedAvg"]
    # Local is the same run, looked at without the malicious clients.
    local = grid.cells["Local", "sign-flip", 0.4]
    assert local == grid.cells["Local", "label-flip", 0.4]
    page = (tmp_path / "g" / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert gather([tmp_path / "g"]).html() == page, "a report is made of its runs alone"
    runs = sorted((tmp_path / "g" / "runs").rglob("status.json"))
    assert len(runs) == 14
    stamps = [p.stat().st_mtime_ns for p in runs]
    again = attack_into(experiment, attacks, [0.0, 0.4], tmp_path / "g")
    assert again.cells == grid.cells
    assert [p.stat().st_mtime_ns for p in runs] == stamps, "finished runs are taken as they are"
    assert (
        attack_into(experiment, attacks, [0.0, 0.4], tmp_path / "g", keep_models=False).cells
        == grid.cells
    )
    assert not list((tmp_path / "g").rglob("*.safetensors"))
    malicious = (tmp_path / "g/runs/fedavg/sign-flip-0.4-seed1/malicious.json").read_text()
    assert [int(k) for k in malicious.strip("[]\n ").split(",")] == np.flatnonzero(
        draw_malicious(1, 5, 0.4)
    ).tolist()
    text = attack_markdown(grid)
    assert "## sign-flip" in text
    assert "| method | nobody malicious | 40% malicious |" in text
    # The change in brackets is that of the very same clients.
    assert all(
        cell.changes == ()
        for (label, _, f), cell in grid.cells.items()
        if label == "Local" or f == 0
    )
    harmed, calm = (
        pq.read_table(tmp_path / "g/runs/fedavg" / run / "clients.parquet")
        .to_pandas()
        .query("split == 'test'")
        .groupby("round")
        .get_group(3)
        for run in ("sign-flip-0.4-seed1", "unharmed-seed1")
    )
    both = harmed.merge(calm, on=["client", "view"])
    assert set(both["client"]) == set(np.flatnonzero(~draw_malicious(1, 5, 0.4)))
    assert grid.cells["FedAvg", "sign-flip", 0.4].changes[1] == pytest.approx(
        (both["score_x"] - both["score_y"]).mean()
    )


def test_a_collapse_is_said_with_its_round_and_never_a_number() -> None:
    assert cell_text(Cell((None, None), (7, 9))) == "collapsed at rounds 7–9"
    assert cell_text(Cell((0.5, None), (None, 3))) == "50.00; 1 of 2 collapsed at round 3"
    assert cell_text(Cell((0.5, 0.6), (None, None))) == "55.00 ± 7.07"
    assert (
        cell_text(Cell((0.5, None), (None, 3), (-0.024, None)))
        == "50.00 (−2.4); 1 of 2 collapsed at round 3"
    )
    assert (
        cell_text(Cell((0.5,), (None,), (-0.0001,))) == "50.00 (0.0)"
    )  # no sign where there is nothing to tell


def test_fairness_on_hand_made_numbers() -> None:
    scores, losses, alone = (
        np.array([0.5, 1.0, np.nan, 0.0]),
        np.array([1.0, 0.0, np.nan, 1.0]),
        np.array([0.4, 0.9, 0.3, 0.1]),
    )
    f = Fairness.of(scores, losses, alone)
    assert (f.worst, f.best) == (0.0, 1.0)
    assert f.score_variance == pytest.approx(1 / 6)
    assert f.loss_variance == pytest.approx(2 / 9)
    assert f.jain == pytest.approx(1.5**2 / (3 * 1.25))
    assert f.loss_jain == pytest.approx(4 / 6)
    assert f.collaboration == pytest.approx(np.corrcoef([0.5, 1.0, 0.0], [0.4, 0.9, 0.1])[0, 1])
    assert f.entropy == pytest.approx(-(np.log(1 / 3) / 3 + 2 / 3 * np.log(2 / 3)) / np.log(3))
    assert np.isnan(correlation(np.ones(3), np.arange(3.0)))
    assert jain(np.zeros(3)) == entropy(np.zeros(3)) == 1.0


def test_with_clients_held_out_the_liars_are_those_of_the_runs(tmp_path: Path) -> None:
    """They are drawn among those that train: the grid must leave out the very same clients."""
    chosen = Experiment.from_config(
        {
            "data": {"name": "digits", "clients": 8},
            "training": {"rounds": 2, "eval_every": 2, "batch_size": 8, "held_out": 3},
            "method": {"name": "fedavg", "local_steps": 1},
        }
    )
    attack = get_attack("same-value")
    grid = attack_into(chosen, [attack], [0.4], tmp_path, say=lambda s: None)
    unharmed, attacked = (
        tmp_path / "runs" / "fedavg" / name for name in ("unharmed-seed0", "same-value-0.4-seed0")
    )
    malicious = json.loads((attacked / "malicious.json").read_text())
    assert len(malicious) == 2

    def honest(run: Path) -> float:
        rows = pq.read_table(run / "clients.parquet", filters=[("split", "=", "test")]).to_pylist()
        last = [r["score"] for r in rows if r["round"] == 2 and r["client"] not in malicious]
        assert len(last) == 3
        return float(np.mean(last))

    cell = grid.cells["FedAvg", "same-value", 0.4]
    assert cell.scores == (pytest.approx(honest(attacked)),)
    assert cell.change == pytest.approx(honest(attacked) - honest(unharmed))


@pytest.mark.parametrize(
    ("attacks", "fractions", "sentence"),
    [
        (["same-value", "same-value"], [0.2], "the attack same-value is given twice"),
        (["same-value"], [0.2, 0.2], "the fraction 0.2 is given twice"),
    ],
)
def test_the_same_cell_twice_is_refused(
    tmp_path: Path, attacks: list[str], fractions: list[float], sentence: str
) -> None:
    chosen = Experiment.from_config({"data": {"name": "digits", "clients": 8}, "method": "fedavg"})
    with pytest.raises(InvalidInput, match=sentence):
        attack_into(chosen, [get_attack(a) for a in attacks], fractions, tmp_path / "never")
    assert not (tmp_path / "never").exists()
