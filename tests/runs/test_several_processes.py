"""One run by several processes on this machine: it ends with the models of a run by one, and a
process that is killed stops it with a sentence.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core import crew
from coterie.runs import launch
from coterie.runs.run import load

EXPERIMENT = """
name = "several"
[data]
name = "synthetic"
clients = 7
mean_size = 40
[graph]
kind = "ring"
[training]
rounds = {rounds}
eval_every = 5
checkpoint_every = 5
fraction = 0.6
precision = "{precision}"
store = "{store}"
[method]
name = "fedu"
local_steps = {steps}
"""


def coterie(*arguments: Any, **more: Any) -> subprocess.Popen[str]:
    env = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *map(str, arguments)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **more,
    )


def done(*arguments: Any, code: int = 0) -> str:
    process = coterie(*arguments)
    said, _ = process.communicate(timeout=500)
    assert process.returncode == code, said
    return said


def experiment(
    folder: Path, *, rounds: int, store: str, steps: int = 3, precision: str = "float64"
) -> Path:
    path = folder / "several.toml"
    given = {"rounds": rounds, "store": store, "steps": steps, "precision": precision}
    path.write_text(EXPERIMENT.format(**given))
    return path


def models(folder: Path) -> Any:
    _, simulator, _ = load(folder)
    return np.concatenate([leaf.reshape(7, -1) for leaf in simulator.all_models().leaves], 1)


EXACT = {"rtol": 1e-10, "atol": 1e-12}


@pytest.mark.parametrize(
    ("store", "precision", "close"),
    [
        ("host", "float32", {"rtol": 1e-5, "atol": 1e-6}),
        pytest.param("host", "float64", EXACT, marks=pytest.mark.slow),
        pytest.param("device", "float64", EXACT, marks=pytest.mark.slow),
    ],
)
def test_two_processes_end_with_the_models_of_one(
    store: str, precision: str, close: dict[str, float], tmp_path: Path
) -> None:
    toml = experiment(tmp_path, rounds=5, store=store, precision=precision)
    done("run", toml, "-o", tmp_path / "one", "-s", "training.devices=1")
    said = done("launch", toml, "-o", tmp_path / "two", "--processes", 2)
    assert said.count("by samples") == 1, "one process prints"
    np.testing.assert_allclose(models(tmp_path / "one"), models(tmp_path / "two"), **close)
    files = lambda run: {p.name for p in (tmp_path / run).iterdir()} - {".lock"}
    assert files("one") == files("two")


@pytest.mark.slow
def test_a_killed_process_stops_the_run_and_three_go_on(tmp_path: Path) -> None:
    toml = experiment(tmp_path, rounds=400, store="device", steps=200)
    done("run", toml, "-o", tmp_path / "one", "-s", "training.devices=1")
    run = tmp_path / "killed"
    process = coterie("launch", toml, "-o", run, "--processes", 2)
    until = time.monotonic() + 300
    while not (run / "checkpoints" / "00000010.json").exists():
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    listed = subprocess.run(
        ["pgrep", "-f", f"{run}.*--process 1 "], capture_output=True, text=True, check=True
    )
    os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert re.search(r"process 1 of 2 is gone|another of the 2 processes of this run is gone", said)
    assert "go on with: coterie" in said
    assert "Traceback" not in said
    done("launch", run, "--processes", 3)
    np.testing.assert_allclose(models(tmp_path / "one"), models(run), **EXACT)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--processes", 2, "--process", 2), r"--process is 2, but must be from 0 to 1\."),
        (("--processes", 0), r"--processes is 0, but must be at least 1\."),
        (("--processes", 2, "--coordinator", "here"), r"must be host:port"),
    ],
)
def test_what_cannot_be(given: tuple[Any, ...], sentence: str, tmp_path: Path) -> None:
    toml = experiment(tmp_path, rounds=1, store="device")
    said = done("run", toml, "-o", tmp_path / "never", *given, code=2)
    assert re.search(sentence, " ".join(said.split())), said
    assert not (tmp_path / "never").exists()


def test_a_port_that_another_program_has_is_one_sentence(tmp_path: Path) -> None:
    toml = experiment(tmp_path, rounds=1, store="device")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{other.getsockname()[1]}"
        place = ("--processes", 2, "--process", 0, "--coordinator", where)
        said = " ".join(done("run", toml, "-o", tmp_path / "never", *place, code=2).split())
    assert f"--coordinator is '{where}', but process 0 cannot listen there: " in said
    assert not (tmp_path / "never").exists()


@pytest.mark.skipif(not hasattr(socket, "SO_REUSEPORT"), reason="no port can be held here")
def test_nobody_takes_the_port_before_the_first_process_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[bool] = []

    def start(*given: Any) -> subprocess.Popen[bytes]:
        with socket.socket() as other:
            try:
                other.bind(("127.0.0.1", int(given[-1].rpartition(":")[2])))
                taken.append(True)
            except OSError:
                taken.append(False)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr(launch, "_start", start)
    launch.launch(["run"], 2, "again")
    assert taken == [False, False]


@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="asks Linux who listens")
def test_processes_of_one_machine_are_not_reached_from_another(tmp_path: Path) -> None:
    toml = experiment(tmp_path, rounds=1, store="device")
    with crew.port_for_all() as held:
        port = held.getsockname()[1]
        place = ("--processes", 2, "--process", 0, "--coordinator", f"127.0.0.1:{port}")
        process = coterie("run", toml, "-o", tmp_path / "waits", *place)
        until = time.monotonic() + 100
        while not (there := listening(port)):
            assert time.monotonic() < until
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        process.kill()
        process.communicate()
    assert there == {"0000000000000000FFFF00000100007F"}, "loopback only"


def listening(port: int) -> set[str]:
    """The addresses at which somebody listens to a port, as Linux writes them."""
    lines = [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    places = [line[1].split(":") for line in lines if line[3] == "0A"]
    return {address for address, number in places if int(number, 16) == port}
