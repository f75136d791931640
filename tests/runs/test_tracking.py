"""Runs told to TensorBoard, MLflow and Weights & Biases, each read back by its own library where it
can be.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import coterie
from coterie import InvalidInput
from coterie.runs import run as runs
from coterie.runs import tracking
from coterie.runs.experiment import Experiment
from coterie.runs.grid import Planned
from coterie.runs.tracking.base import KEPT, Place, Tracking

Cli = Callable[..., tuple[int, str, str]]
CONFIG: dict[str, Any] = {
    "name": "small",
    "data": {"name": "digits", "clients": 5},
    "training": {"rounds": 4, "eval_every": 2, "batch_size": 8},
    "method": {"name": "fedu", "local_steps": 2},
}


@pytest.fixture(autouse=True)
def _untracked_afterwards() -> Iterator[None]:
    yield
    tracking.use(())


def scores_of(folder: Path) -> dict[int, float]:
    """What the run itself wrote: mean test scores by round."""
    rows = pq.read_table(folder / "rounds.parquet", filters=[("split", "=", "test")]).to_pylist()
    return {r["round"]: r["score"] for r in rows}


def test_tensorboard_has_what_the_run_has(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is an extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cli("run", "experiment.toml", "-o", "here", "--track", "tensorboard")[0] == 0
    events = EventAccumulator(str(tmp_path / "here/tensorboard"))
    events.Reload()
    assert {"test/accuracy", "test/loss", "bytes/up", "gradients"} <= set(events.Tags()["scalars"])
    told = {e.step: e.value for e in events.Scalars("test/accuracy")}
    assert told == pytest.approx(scores_of(tmp_path / "here"), abs=1e-6)
    assert "config/text_summary" in events.Tags()["tensors"] or "config" in events.Tags()["tensors"]
    # Without the option nothing is told.
    assert cli("run", "experiment.toml", "-o", "quiet")[0] == 0
    assert not (tmp_path / "quiet/tensorboard").exists()


def test_mlflow_has_a_run_per_run_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="MLflow is an extra")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "store").as_uri()
    tracking.use([f"mlflow={store}"])
    folder = tmp_path / "run"

    def pull_the_plug(simulator: Any, snapshot: Any) -> None:
        if simulator.t == 4:
            raise KeyboardInterrupt

    training = {**CONFIG["training"], "checkpoint_every": 2}
    experiment = Experiment.from_config({**CONFIG, "training": training})
    with pytest.raises(KeyboardInterrupt):
        runs.start(experiment, folder, progress=pull_the_plug)
    called = json.loads((folder / KEPT).read_text())["mlflow"]
    client = MlflowClient(store)
    assert client.get_run(called).info.status == "FAILED"
    runs.resume(folder, say=lambda sentence: None)
    assert json.loads((folder / KEPT).read_text())["mlflow"] == called
    found = client.get_run(called)
    assert found.info.status == "FINISHED"
    assert found.info.run_name == "run"
    assert found.data.params["method.name"] == "fedu"
    assert found.data.params["training.rounds"] == "4"
    told = {m.step: m.value for m in client.get_metric_history(called, "test/accuracy")}
    assert told == pytest.approx(scores_of(folder))


def test_wandb_stays_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is an extra")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    tracking.use(["wandb"])
    folder = tmp_path / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error", coterie.Notice)
        runs.start(Experiment.from_config(CONFIG), folder)
    (place,) = (folder / "wandb").glob("offline-run-*")
    (file,) = place.glob("*.wandb")
    content = file.read_bytes()
    assert b"test/accuracy" in content
    assert b"fedu" in content
    assert place.name.endswith(json.loads((folder / KEPT).read_text())["wandb"])


class Recorder:
    """A tracker that remembers, or fails."""

    told: list[Any] = []  # noqa: RUF012 - the test looks at it
    fails = False

    def __init__(self, place: Place, config: dict[str, Any], step: int) -> None:
        self.told.append(("begin", place.name, place.group, config["method.name"], step))

    def log(self, step: int, values: dict[str, float]) -> None:
        if self.fails:
            raise ConnectionError("the server has gone\nfor good")
        self.told.append((step, sorted(values)))

    def close(self, *, failed: bool) -> None:
        self.told.append(("close", failed))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr("coterie.runs.tracking.base._sink", lambda name: Recorder)
    monkeypatch.setattr(Recorder, "told", [])
    return Recorder


def test_in_python_a_tracker_is_a_progress(recorder: type[Recorder], tmp_path: Path) -> None:
    fed = coterie.load("digits", clients=5)
    with coterie.tracker("tensorboard", tmp_path, run="mine") as track:
        coterie.simulate(
            coterie.FedU(local_steps=2), fed, rounds=4, eval_every=2, batch_size=8, progress=track
        )
    scores = [
        f"{split}/{what}" for split in ("test", "validation") for what in ("accuracy", "loss")
    ]
    keys = ["bytes/down", "bytes/up", "gradients", *scores]
    assert recorder.told == [
        ("begin", "mine", "", "fedu", 0),
        (0, keys),
        (2, keys),
        (4, keys),
        ("close", False),
    ]


def test_a_tracker_that_fails_does_not_stop_the_run(
    recorder: type[Recorder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "fails", True)
    tracking.use(["mlflow"])
    with pytest.warns(
        coterie.Notice, match="mlflow is told nothing more of 'run': the server has gone$"
    ):
        finished = runs.start(Experiment.from_config(CONFIG), tmp_path / "run")
    assert finished.simulator.t == 4
    assert recorder.told == [("begin", "run", "", "fedu", 0)]


def test_runs_of_a_command_are_grouped_and_other_processes_are_told(
    recorder: type[Recorder], tmp_path: Path
) -> None:
    tracking.use(["wandb=online", "tensorboard"])
    root = tmp_path / "runs" / "mine"
    run = root / "runs" / "fedu" / "unharmed-seed0"
    run.mkdir(parents=True)
    (root / "config.toml").write_text("")
    with tracking.following(run) as made:
        assert [(t.name, t.place.where) for t in made] == [
            ("wandb", "online"),
            ("tensorboard", None),
        ]
        assert {(t.place.name, t.place.group) for t in made} == {("fedu/unharmed-seed0", "mine")}
    order = Planned("a", "a", Experiment.from_config(CONFIG), run).order()
    assert order["track"] == ["wandb=online", "tensorboard"]


def test_what_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = cli("run", "experiment.toml", "-o", "x", "--track", "tensorbord")
    assert code == 2
    assert "tensorboard" in err
    monkeypatch.setattr("coterie.runs.tracking.base._sink", lambda name: Recorder)
    with pytest.raises(InvalidInput, match=r"'onlin'.*online"):
        tracking.use(["wandb=onlin"])
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "coterie.runs.tracking.to_mlflow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[track\]'"):
        tracking.use(["mlflow"])
    with pytest.raises(InvalidInput, match="tracker"):
        Tracking("nothing", Place(Path(), "", "", None))
