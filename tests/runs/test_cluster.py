"""Grids on the workers of a Dask cluster: the folders of runs on one machine, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie import InvalidInput
from coterie.deploy.keys import authority
from coterie.runs import run as runs
from coterie.runs.cluster import hand
from coterie.runs.cluster.address import Scheduler
from coterie.runs.cluster.drive import shares
from coterie.runs.compare import compare_into
from tests.support.dask_lab import Lab, lab
from tests.test_grid import FEDU, PROJECTED, alive, experiment, linux, quiet, written

pytest.importorskip("distributed")


def compared(lab: Lab, folder: Path, *methods: Any, **training: Any) -> dict[str, list]:
    compare_into(
        experiment(*methods, **training), folder, say=quiet, cluster=Scheduler(lab.address)
    )
    return written(folder)


def command(toml: Path, folder: Path, cluster: str) -> subprocess.Popen[str]:
    given = ("compare", str(toml), "-o", str(folder), "--cluster", cluster)
    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *given],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(pid: int) -> list[int]:
    """Whichever thread started them."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


def until(what: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_workers_write_what_one_process_does(tmp_path: Path) -> None:
    compare_into(experiment(FEDU), tmp_path / "one", say=quiet)
    with lab(tmp_path / "lab") as cluster:
        assert compared(cluster, tmp_path / "two", FEDU) == written(tmp_path / "one")
        assert len(written(tmp_path / "two")) == 2 * 2 * 3
        assert not list((tmp_path / "two").rglob(".cluster-*"))


LONG = {"rounds": 4000, "eval_every": 200, "checkpoint_every": 200}


@linux
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "process", "command", "command, gently"])
def test_whoever_is_killed_nothing_is_lost(victim: str, tmp_path: Path) -> None:
    chosen = experiment(FEDU, PROJECTED, **LONG)
    compare_into(chosen, tmp_path / "one", say=quiet)
    (tmp_path / "experiment.toml").write_text(chosen.to_toml())
    folder = tmp_path / "two"
    with lab(tmp_path / "lab") as cluster:
        start = lambda: command(tmp_path / "experiment.toml", folder, cluster.address)
        begun = start()
        until(lambda: begun.poll() is not None or list(folder.rglob("checkpoints/*.json")))
        processes = [p for worker in cluster.workers for p in children(worker.pid)]
        assert processes
        busy = next(worker for worker in cluster.workers if children(worker.pid))
        dies = {"worker": busy.pid, "process": processes[0]}.get(victim, begun.pid)
        os.kill(dies, signal.SIGTERM if "gently" in victim else signal.SIGKILL)
        _, said = begun.communicate(timeout=300)
        assert "Traceback" not in said
        if victim.startswith("command"):
            assert begun.returncode == (130 if "gently" in victim else -signal.SIGKILL), said
            until(lambda: not any(map(alive, processes)), 60)
            assert not all(map(runs.has_ended, (folder / "runs").iterdir()))
            begun = start()
            _, said = begun.communicate(timeout=300)
        assert begun.returncode == 0, said
        assert written(folder) == written(tmp_path / "one")
    until(lambda: not any(map(alive, processes)), 60)


@linux
@pytest.mark.slow
def test_a_scheduler_that_is_gone_is_a_sentence_and_runs_are_saved(tmp_path: Path) -> None:
    chosen = experiment(FEDU, **LONG | {"rounds": 1_000_000})
    (tmp_path / "experiment.toml").write_text(chosen.to_toml())
    folder = tmp_path / "two"
    with lab(tmp_path / "lab", workers=1) as cluster:
        begun = command(tmp_path / "experiment.toml", folder, cluster.address)
        until(lambda: begun.poll() is not None or list(folder.rglob("checkpoints/*.json")))
        processes = children(cluster.workers[0].pid)
        cluster.scheduler.kill()
        _, said = begun.communicate(timeout=180)
        assert begun.returncode == 2, said
        assert "Traceback" not in said
        assert "is gone or gave up" in " ".join(said.split())
        until(lambda: not any(map(alive, processes)), 120)


@pytest.mark.slow
def test_it_is_encrypted_with_the_keys_of_a_federation(tmp_path: Path) -> None:
    compare_into(experiment(FEDU), tmp_path / "one", say=quiet)
    authority.init(tmp_path / "keys", "lab")
    authority.issue(tmp_path / "keys", "hand", ips=["127.0.0.1"], role="peer")
    own = tmp_path / "keys" / "nodes" / "hand"
    tls = [
        f"--tls-{what}={own / f}"
        for what, f in (("ca-file", "ca.pem"), ("cert", "node.pem"), ("key", "node.key"))
    ]
    with lab(tmp_path / "lab", *tls, workers=1, scheme="tls") as cluster:
        where = Scheduler(str(cluster.file), own)
        compare_into(experiment(FEDU), tmp_path / "two", say=quiet, cluster=where)
        assert written(tmp_path / "two") == written(tmp_path / "one")
        authority.init(tmp_path / "other", "other")
        authority.issue(tmp_path / "other", "stranger", ips=["127.0.0.1"], role="peer")
        stranger = Scheduler(cluster.address, tmp_path / "other" / "nodes" / "stranger")
        with pytest.raises(InvalidInput, match="no Dask scheduler answers at tls://"):
            compare_into(experiment(FEDU), tmp_path / "three", say=quiet, cluster=stranger)


@pytest.mark.slow
def test_workers_that_cannot_do_it_are_refused_and_nothing_is_run(tmp_path: Path) -> None:
    blind = tmp_path / "blind.py"
    blind.write_text(
        "from coterie.runs.cluster import hand\nhand.sees = lambda root, token: False\n"
    )
    for given, sentence in (
        (("--nthreads", "2"), r"has 2 threads, but must have 1"),
        (("--preload", str(blind)), r"the worker tcp://127.0.0.1:\d+ does not see the folder"),
    ):
        place = tmp_path / given[0].strip("-")
        with lab(place, workers=0) as cluster:
            cluster.hire(1, *given)
            with pytest.raises(InvalidInput, match=sentence):
                compared(cluster, place / "runs", FEDU)
            assert not list((place / "runs" / "runs").iterdir())


def test_a_folder_is_seen_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hand, "SIGHT", 0.2)
    assert not hand.sees(str(tmp_path), "token")
    (tmp_path / "token").touch()
    assert hand.sees(str(tmp_path), "token")


def test_cores_of_a_machine_are_dealt_out_once() -> None:
    seen = lambda host, *cores: {"host": host, "cores": list(cores)}
    found = {
        "a": seen("one", 0, 1, 2),
        "b": seen("one", 0, 1, 2),
        "c": seen("one", 3, 4),  # its own, as a batch system gives them
        "d": seen("two", 0, 1, 2),
        "e": seen("mac"),
    }
    assert shares(found) == {"a": [0, 2], "b": [1], "c": [3, 4], "d": [0, 1, 2], "e": []}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("here:1",), r"--cluster is 'here:1', but must be the address of a Dask scheduler"),
        (("tcp://10.0.0.1:8786",), r"another machine and not encrypted"),
        (("tcp://10.0.0.1:8786", None, False), r"or say --insecure"),
        (("tls://10.0.0.1:8786", None, True), r"--insecure is for plain TCP"),
        (("tls://10.0.0.1:8786",), r"there is no certificate for it; give a folder with --cluster"),
        (("tls://h:1", Path("nowhere")), r"--cluster-keys is 'nowhere', but there is no ca.pem"),
        (("tcp://127.0.0.1:1", Path("nowhere")), r"where nothing is encrypted"),
        (("none.json",), r"'none.json', which is no scheduler file of Dask's: No such file"),
    ],
)
def test_addresses_that_are_refused(given: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Scheduler(*given).security()


def test_a_scheduler_file_and_what_may_be_said(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": "tcp://127.0.0.1:8786"}))
    assert Scheduler(str(file)).address == "tcp://127.0.0.1:8786"
    assert Scheduler("tcp://[::1]:8786").security() is None
    assert Scheduler("tcp://node7:8786", insecure=True).address == "tcp://node7:8786"
    file.write_text("[]")
    with pytest.raises(InvalidInput, match="it holds no address"):
        _ = Scheduler(str(file)).address


def test_a_scheduler_that_does_not_answer_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.runs.cluster import drive

    monkeypatch.setattr(drive, "ANSWER", 0.3)
    with pytest.raises(InvalidInput, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1:"):
        compare_into(
            experiment(FEDU), tmp_path / "runs", say=quiet, cluster=Scheduler("tcp://127.0.0.1:1")
        )


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--cluster", "tcp://127.0.0.1:1", "--jobs", "2"), "--jobs is 2 and --cluster is"),
        (("--insecure",), "--insecure is given, but it is for --cluster, which is not."),
        (("--cluster-keys", "k"), "--cluster-keys is given, but it is for --cluster"),
    ],
)
def test_what_does_not_go_together(given: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from coterie.cli.main import app

    told = CliRunner().invoke(app, ["compare", "-d", "digits", "-o", str(tmp_path / "o"), *given])
    assert isinstance(told.exception, InvalidInput)
    assert sentence in str(told.exception)
    assert not (tmp_path / "o").exists()


def test_dask_is_not_imported_unless_asked_for() -> None:
    code = (
        "import sys, coterie.cli.main, coterie.runs.attack, coterie.runs.cluster.hand;"
        "assert 'distributed' not in sys.modules and 'dask' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, coterie.runs.cluster.hand; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = (
        "import sys; sys.modules['distributed'] = None\n"
        "from coterie import InvalidInput\n"
        "from coterie.cli.console import cluster_of\n"
        "try: import coterie.runs.cluster.library\n"
        "except InvalidInput as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'coterie[cluster]'" in told.stdout
