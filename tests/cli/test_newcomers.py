"""`coterie adapt` without anybody's training data: from a run's folder, and from what `coterie
export --newcomers` wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from coterie.runs.kit import read_kit
from tests.support.clinic import rows, train, write_csv

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(
    scope="module",
    params=[
        "fedu",
        pytest.param("pfedme", marks=pytest.mark.slow),
        pytest.param("per-fedavg", marks=pytest.mark.slow),
        pytest.param("mocha", marks=pytest.mark.slow),
        pytest.param("fedrep", marks=pytest.mark.slow),
        pytest.param("graph-proj", marks=pytest.mark.slow),
    ],
)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"dsub": 5} if request.param == "graph-proj" else {}
    folder = tmp_path_factory.mktemp(request.param)
    return train(folder, method={"name": request.param, **options})


def test_a_kit_gives_what_the_run_gives(cli: Cli, run: Path, tmp_path: Path) -> None:
    new = rows(40, seed=8, site=["west"] * 25 + ["far west"] * 15)
    write_csv(tmp_path / "new.csv", new)
    ask = ("-d", "new.csv", "--client", "site", "--rounds", "2")
    code, out, err = cli("adapt", str(run), *ask, "-o", "by-run")
    assert code == 0, err
    assert "2 models written to by-run" in out
    assert cli("export", str(run), "--newcomers", "-o", "kit")[0] == 0
    code, _, err = cli("adapt", "kit", *ask, "-o", "by-kit")
    assert code == 0, err
    for site in ("west", "far west"):
        one, other = (
            load_file(tmp_path / by / site / "model.safetensors") for by in ("by-run", "by-kit")
        )
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-6, atol=1e-7)
    card = json.loads((tmp_path / "by-kit/west/card.json").read_text())
    assert card["adapted"] == {"rounds": 2, "rows": 19}
    assert card["score"]["rows"] == 6
    assert card["client"] == "west"
    code, out, err = cli("predict", "by-kit/west", "new.csv", "--proba")
    assert code == 0, err
    assert len(out.splitlines()) == 41


def test_a_kit_holds_states_of_members_only_on_graphs(cli: Cli, run: Path, tmp_path: Path) -> None:
    assert cli("export", str(run), "--newcomers", "-o", "kit")[0] == 0
    kit = read_kit(tmp_path / "kit")
    text = (tmp_path / "kit/card.md").read_text()
    on_graph = kit.graph is not None
    assert len(kit.saved.rows[0][0]) == (3 if on_graph else 0)
    assert ("the states of all 3 members" in text) == on_graph
    code, _, err = cli("export", str(run), "--newcomers", "--onnx")
    assert code == 2
    assert "--onnx is given with --newcomers" in err


def test_one_clients_model_is_not_enough(cli: Cli, run: Path, tmp_path: Path) -> None:
    assert cli("export", str(run), "-c", "north", "-o", "there")[0] == 0
    write_csv(tmp_path / "new.csv", rows(10))
    code, _, err = cli("adapt", "there", "-d", "new.csv")
    assert code == 2
    assert "holds the model of 'north' alone" in " ".join(err.split())
    assert "--newcomers" in err
