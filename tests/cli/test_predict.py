"""`coterie export` and `coterie predict`: a folder that predicts from raw rows, long after the
training table is gone.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coterie.core.errors import Notice
from coterie.data.prepared import inputs_of
from coterie.models.exported.model import read
from coterie.runs.run import load
from tests.support.clinic import rows, train, write_csv

Cli = Callable[..., tuple[int, str, str]]
quiet = lambda _: None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best round on validation data counts."""
    training = {"rounds": 4, "eval_every": 1, "batch_size": 8, "keep": "best"}
    return train(tmp_path_factory.mktemp("fedu"), training=training)


@pytest.fixture(scope="module")
def global_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A method whose personal models come from data, and which has a global one."""
    method = {"name": "per-fedavg", "local_steps": 2}
    return train(tmp_path_factory.mktemp("maml"), method=method)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def numpy_answer(run: Path, number: int, columns: dict[str, Any]) -> tuple[list[str], Any]:
    """What the run's own model says, by NumPy alone."""
    _, simulator, _ = load(run, say=quiet, data=False)
    p = simulator.models(number)[simulator.method.model_views[0]].tree
    prepared = simulator.everybody.facts["prepared"]
    z = inputs_of(prepared, columns) @ p["w"].T + p["b"]
    e = np.exp(z - z.max(1, keepdims=True))
    return [prepared.labels[i] for i in z.argmax(1)], e / e.sum(1, keepdims=True)


def test_a_folder_predicts_what_the_run_would(cli: Cli, run: Path, tmp_path: Path) -> None:
    code, out, err = cli("export", str(run), "--client", "east/wing", "-o", "there")
    assert code == 0, err
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == [
        "card.json",
        "card.md",
        "model.json",
        "model.safetensors",
        "preprocessing.json",
        "schema.json",
    ]
    new = rows(30, seed=5)
    write_csv(tmp_path / "new.csv", new)
    shutil.move(tmp_path / "there", tmp_path / "anywhere")
    code, out, err = cli("predict", "anywhere", "new.csv", "--proba", "--keep", "patient")
    assert code == 0, err
    found = table(out)
    labels, chances = numpy_answer(run, 0, new)  # clients are numbered by name
    assert [row["prediction"] for row in found] == labels
    assert [row["patient"] for row in found] == new["patient"]
    for i, label in enumerate(("ill", "well")):
        got = [float(row[f"probability_{label}"]) for row in found]
        np.testing.assert_allclose(got, chances[:, i], atol=1e-5)


def test_it_works_in_a_process_of_its_own_without_what_training_needs(
    cli: Cli, run: Path, tmp_path: Path
) -> None:
    assert cli("export", str(run), "-c", "north", "-o", "there")[0] == 0
    write_csv(tmp_path / "new.csv", {k: v for k, v in rows(5).items() if k != "answer"})
    code = (
        "import sys; sys.argv = ['coterie', 'predict', 'there', 'new.csv']\n"
        "from coterie.cli import main\nmain()\n"
        "heavy = {'coterie.engine', 'coterie.runs', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(table(done.stdout)) == 5


def test_to_files_and_by_each_rows_own_model(cli: Cli, run: Path, tmp_path: Path) -> None:
    code, out, _ = cli("export", str(run), "--all", "-o", "all")
    assert code == 0
    assert "3 models" in out
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == ["east%2Fwing", "north", "south"]
    new = rows(20, seed=3)
    write_csv(tmp_path / "new.csv", new)
    to = ("--client-column", "site", "-o", "out.parquet", "-k", "site", "-k", "patient")
    code, out, err = cli("predict", "all", "new.csv", *to)
    assert code == 0, err
    assert "20 predictions written to out.parquet" in out
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found["site"] == new["site"]
    assert found["patient"] == new["patient"]
    for number, site in enumerate(("east/wing", "north", "south")):
        mine = [i for i, name in enumerate(new["site"]) if name == site]
        want, _ = numpy_answer(run, number, {k: [v[i] for i in mine] for k, v in new.items()})
        assert [found["prediction"][i] for i in mine] == want
    code, _, err = cli("predict", "all", "new.csv")
    assert code == 2
    assert "--client-column" in err


def test_rows_of_a_strange_site(cli: Cli, run: Path, global_run: Path, tmp_path: Path) -> None:
    assert cli("export", str(run), "--all", "-o", "all")[0] == 0
    new = rows(6, site=["north", "west", "west", "south", "north", "west"])
    write_csv(tmp_path / "new.csv", new)
    ask = ("predict", "all", "new.csv", "--client-column", "site", "--proba")
    code, _, err = cli(*ask)
    assert code == 2
    assert "names 'west', of which 'all' has no model" in err
    assert "--fallback" in err
    code, _, err = cli(*ask, "--fallback", "global")
    assert code == 2
    assert "has no shared model" in err
    code, _, err = cli(*ask, "--fallback", "nobody")
    assert code == 2
    assert "must be 'global' or 'mean'" in err
    code, out, err = cli(*ask, "--fallback", "mean")
    assert code == 0, err
    assert "3 rows of 'west' got the mean of all clients' answers" in " ".join(err.split())
    each = np.mean([numpy_answer(run, k, new)[1] for k in range(3)], 0)
    got = [float(row["probability_ill"]) for row in table(out)]
    np.testing.assert_allclose(np.array(got)[[1, 2, 5]], each[[1, 2, 5], 0], atol=1e-5)

    assert cli("export", str(global_run), "--all", "-o", "shared")[0] == 0
    assert (tmp_path / "shared/@global/model.json").is_file()
    ask = ("predict", "shared", "new.csv", "--client-column", "site", "--proba")
    code, out, _ = cli(*ask, "--fallback", "global")
    assert code == 0
    by_all = table(out)
    code, out, _ = cli("predict", "shared/@global", "new.csv", "--proba")
    assert [row["prediction"] for row in table(out)][1:3] == [r["prediction"] for r in by_all][1:3]


def test_models_that_come_from_data_are_kept_at_the_end(
    cli: Cli, global_run: Path, tmp_path: Path
) -> None:
    """Per-FedAvg's personal model is a gradient step on training rows, which are gone here."""
    assert (global_run / "models.safetensors").is_file()
    for view in ("personal", "global"):
        to = ("--view", view, "-o", f"{view}.safetensors")
        assert cli("export", str(global_run), "-c", "south", *to)[0] == 0
    from safetensors.numpy import load_file

    one, other = (load_file(tmp_path / f"{v}.safetensors") for v in ("personal", "global"))
    assert not np.array_equal(one["w"], other["w"])
    shutil.copytree(global_run, tmp_path / "cut")
    (tmp_path / "cut/models.safetensors").unlink()
    code, _, err = cli("export", "cut", "-c", "south")
    assert code == 2
    assert "the data are read" in " ".join(err.split())
    assert "'rows.csv' does not exist" in err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"heat": None}, "the feature column 'heat' is not in the table"),
        ({"heat": ["warm"] * 4}, "the column 'heat' holds text such as 'warm', but held numbers"),
        ({"smoker": ["maybe"] * 4}, "the column 'smoker' holds 'maybe', but held true/false"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(
    cli: Cli, run: Path, tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    assert cli("export", str(run), "-c", "north", "-o", "there")[0] == 0
    new = {k: v for k, v in (rows(4) | change).items() if v is not None}
    write_csv(tmp_path / "new.csv", new)
    code, _, err = cli("predict", "there", "new.csv", "-o", "out.csv")
    assert code == 2
    assert sentence in " ".join(err.split())
    assert not (tmp_path / "out.csv").exists()


def test_an_unknown_category_is_said_and_is_none_of_the_known(run: Path, tmp_path: Path) -> None:
    from coterie.models.exported.model import predict
    from coterie.runs.export import export

    (place,) = export(run, ["north"], tmp_path / "there", say=quiet)
    model = read(place)
    with pytest.warns(Notice, match="'violet', which training did not know"):
        strange = predict(model, rows(2, colour=["violet", "violet"]))
    nothing = predict(model, rows(2, colour=[None, None]))
    np.testing.assert_array_equal(strange.probabilities, nothing.probabilities)


def test_the_card_tells_facts_and_no_rows(cli: Cli, run: Path, tmp_path: Path) -> None:
    assert cli("export", str(run), "-c", "south", "-o", "there")[0] == 0
    card = json.loads((tmp_path / "there/card.json").read_text())
    assert card["data"]["rows of all"] == {"train": 78, "validation": 12, "test": 30}
    assert card["data"]["rows"] == {"train": 26, "validation": 4, "test": 10}
    assert sum(card["data"]["training rows of each class"].values()) == 26
    score = card["score"]
    right = round(score["value"] * 10)
    z = 1.959963984540054
    middle = (right / 10 + z * z / 20) / (1 + z * z / 10)
    assert (score["low"] + score["high"]) / 2 == pytest.approx(middle)
    scores = pq.read_table(run / "clients.parquet").to_pandas()
    kept = json.loads((run / "status.json").read_text())["kept"]
    assert card["round"] == kept
    mine = scores[(scores.split == "test") & (scores["round"] == kept) & (scores.client == 2)]
    assert mine.score.tolist() == [pytest.approx(score["value"])]
    assert card["bytes"]["up"] > 0
    text = (tmp_path / "there/card.md").read_text()
    assert "accuracy" in text
    assert "10 rows are few" in text
    everything = "".join(
        p.read_text() for p in (tmp_path / "there").glob("*.[jm]*") if "safe" not in p.name
    )
    for patient, heat in zip(rows()["patient"], rows()["heat"], strict=True):
        assert f'"{patient}"' not in everything
        assert heat is None or str(heat) not in everything


def test_a_folder_is_written_whole_or_not_at_all(cli: Cli, run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep me")
    code, _, err = cli("export", str(run), "-c", "north", "-o", "mine")
    assert code == 2
    assert "is not empty and holds something else" in err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert cli("export", str(run), "-c", "north", "-o", "there")[0] == 0
    assert cli("export", str(run), "-c", "south", "-o", "there")[0] == 0
    assert json.loads((tmp_path / "there/model.json").read_text())["client"] == "south"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    weights = tmp_path / "there/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"1234")
    write_csv(tmp_path / "new.csv", rows(2))
    code, _, err = cli("predict", "there", "new.csv")
    assert code == 2
    assert "was changed or damaged since it was exported" in err


def test_predict_refuses_what_is_no_model(cli: Cli, run: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "new.csv", rows(2))
    for place, sentence in (("nowhere", "does not exist"), (str(run), "has no model.json")):
        code, _, err = cli("predict", place, "new.csv")
        assert code == 2
        assert sentence in " ".join(err.split())
    assert cli("export", str(run), "-c", "north", "-o", "there")[0] == 0
    code, _, err = cli("predict", "there", "new.csv", "-o", "out.xlsx")
    assert code == 2
    assert "must end in .csv or .parquet" in err
    code, _, err = cli("predict", "there", "new.csv", "-k", "nobody")
    assert code == 2
    assert "'nobody' is not in the table" in err


def test_onnx_beside_the_rest_or_alone(cli: Cli, run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is an extra")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is for tests")
    for place in ("there", "one.onnx"):
        code, _, err = cli("export", str(run), "-c", "south", "-o", place, "--onnx")
        assert code == 0, err
    single = tmp_path / "one.onnx"
    assert (tmp_path / "there/model.onnx").read_bytes() == single.read_bytes()
    found = runtime.InferenceSession(single)
    facts = found.get_modelmeta().custom_metadata_map
    assert (facts["site"], facts["method"], facts["target"]) == ("south", "fedu", "answer")
    assert [i.name for i in found.get_inputs()] == ["when", "heat", "colour", "smoker"]


@pytest.mark.slow
def test_batch_normalisation_goes_along(cli: Cli, tmp_path: Path) -> None:
    """Statistics come from a client's training rows, which are gone when models are exported."""
    run = train(tmp_path, model={"name": "mlp", "hidden": "6", "norm": "batch"})
    assert cli("export", str(run), "--all", "-o", "all")[0] == 0
    write_csv(tmp_path / "new.csv", rows(9))
    code, out, err = cli("predict", "all", "new.csv", "--client-column", "site", "--proba")
    assert code == 0, err
    north = read(tmp_path / "all/north").parameters
    assert north.statistics["layer0"]["var"].shape == (6,)
    x = read(tmp_path / "all/north").inputs_of(tmp_path / "new.csv")
    p, s = north.parameters, north.statistics["layer0"]
    h = x @ p["layer0"]["w"].T + p["layer0"]["b"]
    h = (h - s["mean"]) / np.sqrt(s["var"] + 1e-5)
    h = np.maximum(h * p["layer0"]["norm"]["scale"] + p["layer0"]["norm"]["shift"], 0)
    z = h @ p["layer1"]["w"].T + p["layer1"]["b"]
    e = np.exp(z - z.max(1, keepdims=True))
    got = np.array([float(row["probability_ill"]) for row in table(out)])
    mine = [i for i, site in enumerate(rows(9)["site"]) if site == "north"]
    np.testing.assert_allclose(got[mine], (e / e.sum(1, keepdims=True))[mine, 0], atol=1e-5)
