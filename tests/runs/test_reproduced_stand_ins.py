"""The papers' tables on data that are not at hand, EMNIST and Fashion-MNIST, tried on stand-ins."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.data.emnist import Emnist
from coterie.data.mnist import FashionMnist
from coterie.runs.reproduce import PaperTable
from coterie.runs.reproduce.base import all_tables
from tests.runs.test_reproduce import carried_out

SETS: dict[str, tuple[Any, int]] = {"emnist": (Emnist, 62), "fashion-mnist": (FashionMnist, 10)}
"""Where pictures are read, and how many classes they have."""
MEANT = [
    (table, block.name)
    for table in all_tables("both")
    for block in table.blocks
    if block.experiment["data"]["name"] in SETS
]
OTHERS = [
    pytest.param(table, name, id=f"{table.key}-{table.protocol}-{name}", marks=pytest.mark.slow)
    for table, name in MEANT
]


def pictures(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), 30).astype(np.uint8)
    return rng.integers(0, 256, (len(y), 28, 28, 1)).astype(np.uint8), y


def small(table: PaperTable, name: str, *labels: str) -> PaperTable:
    """Four clients; some lines, or all."""
    block = next(b for b in table.blocks if b.name == name)
    data = {**block.experiment["data"], "clients": 4, "mean_size": 40}
    training = {k: v for k, v in block.experiment["training"].items() if k != "cohort"}
    training |= {"fraction": 0.5, "batch_size": 8}
    experiment = {**block.experiment, "data": data, "training": training}
    lines = tuple(line for line in block.lines if not labels or line.name in labels)
    made = dataclasses.replace(block, experiment=experiment, lines=lines, alone=not labels)
    return dataclasses.replace(table, blocks=(made,))


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for source, classes in SETS.values():
        monkeypatch.setattr(source, "pictures", lambda self, n=classes: pictures(n))


def test_one_method_of_table_4(tmp_path: Path) -> None:
    table = next(t for t, name in MEANT if t.key == "lp-proj/table-4" and name == "emnist")
    (done,) = carried_out(small(table, "emnist", "lp-proj-2"), tmp_path)
    assert len(done.lines[0].accuracies("last")) == 1


@pytest.mark.parametrize(("table", "name"), OTHERS)
def test_every_line_of_every_block(table: PaperTable, name: str, tmp_path: Path) -> None:
    (done,) = carried_out(small(table, name), tmp_path)
    block = next(b for b in table.blocks if b.name == name)
    assert [run.line.name for run in done.lines] == [line.name for line in block.lines]
    for run in done.lines:
        assert len(run.outcomes) == 1
        assert run.accuracies("last") or run.outcomes[0].collapsed_at is not None
