"""A run folder survives kills, interruptions, damage and changed configs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from coterie import METHODS, Diverged, InvalidInput
from coterie.core import crew
from coterie.runs import run as runs
from coterie.runs import together
from coterie.runs.experiment import Experiment
from coterie.runs.export import export

SIGKILLED = -signal.SIGKILL


def experiment(method: dict, **training: object) -> Experiment:
    return Experiment.from_config(
        {
            "data": {"name": "digits", "clients": 6},
            "graph": {"kind": "ring"},
            "training": {
                "rounds": 300,
                "eval_every": 10,
                "checkpoint_every": 10,
                "batch_size": 8,
                **training,
            },
            "method": method,
        }
    )


CASES = {
    "pfedme": experiment(
        {"name": "pfedme", "local_rounds": 2, "inner_steps": 2, "keep_local": True}, cohort=3
    ),
    "fedu": experiment(
        {"name": "fedu", "local_steps": 2, "neighbours": "all", "channel": "delta"},
        cohort=3,
        store="file",
    ),
    "lp-proj-1": experiment(
        {"name": "lp-proj-1", "local_rounds": 2, "inner_steps": 2, "dsub": 7, "trains": "sampled"},
        cohort=2,
        store="host",
    ),
}
SMALL = experiment({"name": "fedu", "local_steps": 2}, rounds=40)
quiet = lambda sentence: None


def tables(folder: Path) -> dict[str, list]:
    """Everything a run wrote that must not depend on interruptions."""
    return {
        name: pq.read_table(folder / f"{name}.parquet").to_pylist()
        for name in ("rounds", "clients", "ledger", "rows")
    }


def models(folder: Path, out: Path) -> dict[str, dict[str, np.ndarray]]:
    return {
        p.name: load_file(p / "model.safetensors") for p in export(folder, None, out, say=quiet)
    }


def same_bits(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        a[k].keys() == b[k].keys() and all(a[k][n].tobytes() == b[k][n].tobytes() for n in a[k])
        for k in a
    )


def spawn(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_and_resumed_ends_the_same(
    chosen: Experiment, tmp_path: Path, rng: random.Random, attempts: int
) -> None:
    whole = tmp_path / "whole"
    runs.start(chosen, whole, say=quiet)
    config = tmp_path / "experiment.toml"
    config.write_text(chosen.to_toml())
    cut = tmp_path / "cut"
    kills, command = 0, ("run", str(config), "--out", str(cut))
    for _ in range(attempts):
        process = spawn(*command)
        # Once it has begun to save, anything may be going on when the signal comes: a round, an
        # evaluation, a half-written file.
        newest = max(cut.glob("checkpoints/*.json"), default=None)
        while (
            process.poll() is None and max(cut.glob("checkpoints/*.json"), default=None) == newest
        ):
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.25))
        process.kill()
        kills += process.wait() == SIGKILLED
        command = ("resume", str(cut))
    assert kills >= 1, "the run ended before it could be killed: make it longer"
    runs.resume(cut, say=quiet)
    assert tables(cut) == tables(whole)
    assert same_bits(models(cut, tmp_path / "a"), models(whole, tmp_path / "b"))


@pytest.mark.parametrize(
    ("name", "attempts"),
    [("fedu", 1), *(pytest.param(name, 2, marks=pytest.mark.slow) for name in CASES)],
)
def test_killed_at_random_moments_it_ends_with_the_same_bits(
    name: str, attempts: int, tmp_path: Path
) -> None:
    killed_and_resumed_ends_the_same(CASES[name], tmp_path, random.Random(name), attempts)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_survives_many_kills(name: str, tmp_path: Path) -> None:
    known = METHODS[name].public()
    small = {
        k: v
        for k, v in {"local_steps": 2, "local_rounds": 2, "inner_steps": 2, "dsub": 7}.items()
        if k in known
    }
    chosen = experiment({"name": name, **small}, rounds=1500)
    killed_and_resumed_ends_the_same(chosen, tmp_path, random.Random(f"many {name}"), attempts=8)


def test_ctrl_c_leaves_a_folder_that_can_be_resumed(tmp_path: Path) -> None:
    config, folder = tmp_path / "experiment.toml", tmp_path / "run"
    chosen = SMALL.with_(
        training=SMALL.training.replace(rounds=4000, eval_every=40, checkpoint_every=400)
    )
    config.write_text(chosen.to_toml())
    process = spawn("run", str(config), "--out", str(folder))
    while process.poll() is None and not (folder / "parts" / "00000400.rounds.parquet").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "coterie resume" in said
    assert "Traceback" not in said
    _, simulator, _ = runs.load(folder, say=quiet)
    assert 400 <= simulator.t < 4000


@pytest.mark.parametrize("begin", ["start", "resume"])
def test_every_process_of_a_run_names_the_folder_of_the_run(
    begin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others than the first write a folder of their own, which goes when they end."""
    second = SimpleNamespace(
        count=lambda: 2, index=lambda: 1, leads=lambda: False, agreed=lambda value: value
    )
    remedies, folder = [], tmp_path / "run"
    watching = crew.watching
    monkeypatch.setattr(crew, "watching", lambda text: (remedies.append(text), watching(text))[1])

    def ctrl_c(simulator: object, snapshot: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(runs.Interrupted):
        runs.start(SMALL, folder, progress=ctrl_c, say=quiet)
    monkeypatch.setattr(together, "crew", second)
    go_on = {
        "start": lambda: runs.start(SMALL, folder, progress=ctrl_c, say=quiet),
        "resume": lambda: runs.resume(folder, progress=ctrl_c, say=quiet),
    }
    with pytest.raises(runs.Interrupted) as stopped:
        go_on[begin]()
    assert f"coterie resume {folder}" in str(stopped.value)
    assert f"coterie resume {folder}," in remedies[1]


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    runs.start(SMALL, tmp_path / "run", say=quiet)
    before = {p: p.read_bytes() for p in (tmp_path / "run").glob("*.parquet")}
    assert before
    runs.resume(tmp_path / "run", say=quiet)
    assert {p: p.read_bytes() for p in (tmp_path / "run").glob("*.parquet")} == before


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "manifest"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    damage: str, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    runs.start(SMALL, whole, say=quiet)
    runs.start(SMALL, cut, say=quiet)
    (cut / "status.json").unlink()
    newest = sorted((cut / "checkpoints").glob("*.json"))[-1]
    victim = cut / "checkpoints" / json.loads(newest.read_text())["rows"][-1][0]
    if damage == "truncate":
        victim.write_bytes(victim.read_bytes()[:-7])
    elif damage == "flip":
        data = bytearray(victim.read_bytes())
        data[-1] ^= 1
        victim.write_bytes(bytes(data))
    elif damage == "remove":
        victim.unlink()
    else:
        newest.write_text(newest.read_text()[:50])
    said: list[str] = []
    _, simulator, _ = runs.load(cut, say=said.append)
    assert simulator.t == 30
    assert len(said) == 1
    assert "damaged" in said[0]
    assert newest.name in said[0]


def test_all_checkpoints_damaged_begins_again_and_ends_the_same(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    runs.start(SMALL, whole, say=quiet)
    runs.start(SMALL, cut, say=quiet)
    (cut / "status.json").unlink()
    for path in (cut / "checkpoints").glob("*.safetensors"):
        path.write_bytes(b"")
    said: list[str] = []
    runs.resume(cut, say=said.append)
    assert any("begins again" in s for s in said)
    assert tables(cut) == tables(whole)


def test_a_changed_config_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.start(SMALL, folder, say=quiet)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("eta = 0.01", "eta = 0.02"))
    with pytest.raises(InvalidInput, match=r"method\.eta was 0\.01 and is now 0\.02"):
        runs.resume(folder, say=quiet)


def test_resuming_with_other_versions_is_said(tmp_path: Path) -> None:
    runs.start(SMALL, tmp_path / "run", say=quiet)
    said: list[str] = []
    runs.resume(tmp_path / "run", say=said.append)
    assert said == []
    note = tmp_path / "run" / "environment.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "jaxlib": "0.1"}))
    runs.resume(tmp_path / "run", say=said.append)
    assert len(said) == 1
    assert "jaxlib 0.1 (now " in said[0]


def test_an_existing_folder_needs_force(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "precious.txt").write_text("keep me")
    with pytest.raises(InvalidInput, match="not empty"):
        runs.start(SMALL, folder, say=quiet)
    assert [p.name for p in folder.iterdir()] == ["precious.txt"]
    runs.start(SMALL, folder, force=True, say=quiet)
    assert (folder / "precious.txt").read_text() == "keep me"
    assert runs.is_finished(folder)


def test_force_does_not_pick_up_the_old_run(tmp_path: Path) -> None:
    other = SMALL.with_(training=SMALL.training.replace(seed=5))
    runs.start(SMALL, tmp_path / "a", say=quiet)
    runs.start(other, tmp_path / "a", force=True, say=quiet)
    runs.start(other, tmp_path / "b", say=quiet)
    assert tables(tmp_path / "a") == tables(tmp_path / "b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InvalidInput, match="cannot be written"):
        runs.start(SMALL, tmp_path / "locked" / "run", say=quiet)


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is a file"):
        runs.start(SMALL, tmp_path / "file", say=quiet)
    with pytest.raises(InvalidInput, match="cannot be written"):
        runs.start(SMALL, tmp_path / "file" / "run", say=quiet)


def test_divergence_stops_the_run_with_the_broken_condition(tmp_path: Path) -> None:
    wild = experiment({"name": "fedu", "local_steps": 2, "eta": 1e6}, rounds=200)
    with pytest.raises(
        Diverged, match=r"FedU diverged in round \d+.*clients.*‖L‖.*must be < 2 but is"
    ) as caught:
        runs.start(wild, tmp_path / "run", say=quiet)
    assert caught.value.clients
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["round"] == caught.value.round
    assert (tmp_path / "run" / "rounds.parquet").exists()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    runs.start(SMALL, tmp_path / "run", say=quiet)
    with runs.locked(tmp_path / "run"), pytest.raises(InvalidInput, match="another process"):
        runs.resume(tmp_path / "run", say=quiet)


def test_the_folder_runs_again_from_its_own_config(tmp_path: Path) -> None:
    runs.start(SMALL, tmp_path / "a", say=quiet)
    runs.start(Experiment.from_file(tmp_path / "a" / "config.toml"), tmp_path / "b", say=quiet)
    assert tables(tmp_path / "a") == tables(tmp_path / "b")
    assert (tmp_path / "a" / "config.toml").read_text() == (
        tmp_path / "b" / "config.toml"
    ).read_text()


def test_export_of_one_client_and_of_all(tmp_path: Path) -> None:
    finished = runs.start(SMALL, tmp_path / "run", say=quiet)
    (path,) = export(tmp_path / "run", [3], tmp_path / "one.safetensors", say=quiet)
    mine = finished.simulator.models(3)["personal"].tree
    loaded = load_file(path)
    assert {k: v.tobytes() for k, v in loaded.items()} == {
        k: np.asarray(v).tobytes() for k, v in mine.items()
    }
    assert len(export(tmp_path / "run", None, tmp_path / "all", say=quiet)) == 6
    with pytest.raises(InvalidInput, match="client is 6, but must be from 0 to 5"):
        export(tmp_path / "run", [6], tmp_path / "none", say=quiet)
    with pytest.raises(InvalidInput, match="view is 'global'"):
        export(tmp_path / "run", [0], tmp_path / "none", view="global", say=quiet)


def test_exports_load_in_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("safetensors.torch", reason="PyTorch is an extra")
    runs.start(SMALL, tmp_path / "run", say=quiet)
    (path,) = export(tmp_path / "run", [0], tmp_path / "one.safetensors", say=quiet)
    assert {k: tuple(v.shape) for k, v in torch.load_file(path).items()} == {
        "w": (10, 64),
        "b": (10,),
    }
