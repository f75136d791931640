"""The papers' tables: every experiment can be made, a cell of each paper runs, results say what
they must.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from coterie.core.errors import InvalidInput
from coterie.runs.experiment import Experiment
from coterie.runs.reproduce import Block, PaperTable, table_of
from coterie.runs.reproduce.base import Printed, all_tables
from coterie.runs.reproduce.carry_out import Wish, carry_out
from coterie.runs.reproduce.result import Measured, order, write
from tests.conftest import Cli

REAL = os.environ.get("COTERIE_DATA")
BLOCKS = [
    pytest.param(table, block, id=f"{table.key}/{block.name}")
    for table in all_tables()
    for block in table.blocks
]


@pytest.mark.parametrize(("table", "block"), BLOCKS)
def test_experiments_can_be_made(table: PaperTable, block: Block) -> None:
    made = Experiment.from_config({**block.settings(table.seeds), "methods": block.methods()})
    assert len(made.contenders) == len(block.methods())
    for line in block.lines:
        assert not line.paper or Printed.read(line.paper) is not None
    tune = {"search": block.search()}
    Experiment.from_config({**block.settings(1), "methods": block.methods(), "tune": tune})
    assert "eta" not in block.search().get("fedu", {})


def tiny(key: str, name: str, *labels: str) -> PaperTable:
    """Some lines of one block."""
    table = table_of(key)
    block = next(b for b in table.blocks if b.name == name)
    lines = tuple(line for line in block.lines if line.label in labels)
    assert len(lines) == len(labels)
    experiment = block.experiment
    if experiment["data"]["name"] == "synthetic":  # 10 of the 100 clients are enough to see it run
        experiment = {**experiment, "data": {**experiment["data"], "clients": 10}}
        training = {k: v for k, v in experiment["training"].items() if k != "cohort"}
        experiment["training"] = training
    small = dataclasses.replace(block, lines=lines, experiment=experiment)
    return dataclasses.replace(table, blocks=(small,))


CELLS: list[Any] = [
    ("pfedme/table-1", "synthetic-mlr", "pFedMe (GM)", "pFedMe (PM)"),
    ("lp-proj/table-4", "synthetic-00", "lp-proj-2", "Local"),
    pytest.param(
        ("fedu/table-3", "har-convex", "FedU", "Local"),
        marks=pytest.mark.skipif(not REAL, reason="COTERIE_DATA does not point to real data"),
    ),
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_of_each_paper(cell: tuple[str, ...], tmp_path: Path) -> None:
    table = tiny(*cell)
    wish = Wish(tmp_path / "runs", quick=True, say=lambda _: None)
    for _ in range(2):  # the second time everything is there
        ((_, done),) = carry_out([table], wish)
        folder = write(table, done, tmp_path, "coterie reproduce x --quick")
    text = (folder / "result.md").read_text()
    for line in table.blocks[0].lines:
        assert f"| {line.label} | {line.paper} |" in text
    assert (folder / "figure.svg").read_text().startswith("<svg")
    rows = (folder / "result.csv").read_text().splitlines()
    assert len(rows) == 1 + len(table.blocks[0].lines)


def line(label: str, paper: str, *scores: float) -> Measured:
    return Measured(label, Printed.read(paper), list(scores), [], [], 0, 0, "", None)


def test_verdicts_and_order() -> None:
    near = line("a", "90.0 ± 0.3", 90.2, 90.8)  # 0.5 away; 2·√(0.3² + 0.42²) = 1.04
    far = line("b", "89.0 ± 0.1", 91.0, 91.1)
    assert near.verdict == "within 2 std"
    assert far.verdict == "outside, +2.05"
    assert line("c", "", 1.0).verdict == ""
    assert (
        "The order has changed: b > a; in the paper a > b. The paper's first, a, is not"
        in order([near, far])
    )
    assert order([near]) == ""


def test_what_is_wrong_is_said_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    code, _, said = cli("reproduce", "fedu/table-9")
    assert code == 2
    assert "fedu/table-3" in said
    code, _, said = cli("reproduce", "pfedme/table-1", "--block", "mars")
    assert code == 2
    assert "synthetic-mlr" in said
    code, out, _ = cli("reproduce", "list")
    assert code == 0
    assert "lp-proj/table-4" in out


def test_data_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COTERIE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told: list[str] = []
    table = tiny("fedu/table-3", "har-convex", "FedU")
    block = table.blocks[0]
    data = {**block.experiment["data"], "download": False}
    experiment = {**block.experiment, "data": data}
    table = dataclasses.replace(table, blocks=(dataclasses.replace(block, experiment=experiment),))
    wish = Wish(tmp_path / "runs", quick=True, say=told.append)
    with pytest.raises(InvalidInput, match="nothing can be done"):
        list(carry_out([table], wish))
    assert "har-convex is left out" in told[0]
    assert not (tmp_path / "runs").exists()
