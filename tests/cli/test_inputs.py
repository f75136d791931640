"""A run knows what it was made from: a changed data file, graph matrix or Ω file is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Cli = Callable[..., tuple[int, str, str]]

TABLE = """
[data]
name = "table"
path = "rows.csv"
client = "site"
target = "answer"
[training]
rounds = 2
eval_every = 2
batch_size = 8
[method]
name = "fedu"
local_steps = 1
"""


def rows(shift: float = 0.0) -> str:
    rng = np.random.default_rng(1)
    lines = ["site,heat,answer"]
    for i in range(60):
        heat = rng.normal()
        lines.append(f"S{i % 3},{heat + (shift if i == 7 else 0.0):.5f},{'ab'[int(heat > 0)]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def table(cli: Cli, tmp_path: Path) -> Cli:
    (tmp_path / "rows.csv").write_text(rows())
    (tmp_path / "table.toml").write_text(TABLE)
    return cli


def refused(answer: tuple[int, str, str], *words: str) -> None:
    code, _, err = answer
    assert code == 2, err
    assert err.count("\n") == 1, err
    for word in words:
        assert word in err, err


COMMANDS = {
    "compare": ("compare", "table.toml", "-o", "here"),
    "attack": ("attack", "table.toml", "-a", "sign-flip", "-f", "0.4", "-o", "here"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_runs_on_other_data_are_not_taken_as_they_are(
    table: Cli, tmp_path: Path, name: str
) -> None:
    command = COMMANDS[name]
    assert table(*command)[0] == 0
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "here/runs").rglob("rounds.parquet")}
    assert before
    (tmp_path / "rows.csv").write_text(rows(0.5))
    refused(table(*command), "rows.csv", "the data", "--force")
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert table(*command, "--force")[0] == 0
    assert all(p.stat().st_mtime_ns > then for p, then in before.items())
    assert table(*command)[0] == 0


def test_a_run_does_not_go_on_with_other_data(table: Cli, tmp_path: Path) -> None:
    assert table("run", "table.toml", "-o", "here")[0] == 0
    assert table("resume", "here")[0] == 0
    (tmp_path / "rows.csv").write_text(rows(0.5))
    refused(table("resume", "here"), "rows.csv")
    assert table("export", "here", "--all")[0] == 0, "models are there without the data"
    (tmp_path / "rows.csv").write_text(rows())
    assert table("resume", "here")[0] == 0


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        (("-s", 'graph.kind="matrix"', "-s", 'graph.matrix="m.npy"'), "m.npy"),
        (("-s", 'method={name="mocha", omega="file", omega_file="m.npy"}'), "m.npy"),
    ],
    ids=["graph", "omega"],
)
def test_a_changed_matrix_is_noticed(
    table: Cli, tmp_path: Path, settings: tuple[str, ...], file: str
) -> None:
    matrix = np.ones((3, 3)) - np.eye(3)
    if "mocha" in settings[-1]:
        matrix = np.eye(3)
    np.save(tmp_path / file, matrix)
    assert table("run", "table.toml", "-o", "here", *settings)[0] == 0
    np.save(tmp_path / file, 2 * matrix)
    refused(table("resume", "here"), file)


def test_a_folder_of_before_has_no_hash_and_still_works(table: Cli, tmp_path: Path) -> None:
    assert table("run", "table.toml", "-o", "here")[0] == 0
    noted = json.loads((tmp_path / "here/inputs.json").read_text())
    assert len(noted["data"]["sha256"]) == 64
    (tmp_path / "here/inputs.json").unlink()
    (tmp_path / "rows.csv").write_text(rows(0.5))
    assert table("resume", "here")[0] == 0
