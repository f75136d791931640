"""Tuning on the workers of a Dask cluster: the trials of one machine, whoever is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from coterie import InvalidInput
from coterie.core.files import locked
from coterie.runs import inputs
from coterie.runs.cluster.address import Scheduler
from coterie.runs.reproduce.carry_out import Wish, carry_out
from coterie.runs.tuning.folder import PlannedTuning, tune_into
from coterie.runs.tuning.workshop import Workshop
from tests.conftest import Cli
from tests.runs.test_cluster import children, until
from tests.runs.test_reproduce import tiny
from tests.support.dask_lab import lab
from tests.support.tunings import (
    EXPERIMENT,
    TWO,
    cut_short,
    experiment,
    longer,
    trials_in,
    tuned,
    values,
)
from tests.test_grid import alive, linux, quiet

pytest.importorskip("distributed")
METHODS = ("local", "fedavg")


def own(folder: Path, method: str) -> Path:
    return folder / "studies" / method / "study.db"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cut", "fresh"])
def test_workers_tune_as_one_process_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short, they go on with the first method and begin the second."""
    made, whole, folder = experiment(TWO), tmp_path / "whole", tmp_path / name
    tune_into(made, whole, say=quiet)
    if name == "cut":
        cut_short(made, folder, monkeypatch)
    with lab(tmp_path / "lab") as cluster:
        tune_into(made, folder, say=quiet, cluster=Scheduler(cluster.address))
    assert values(folder) == values(whole)
    assert tuned(folder) == tuned(whole)
    for method in METHODS:
        with sqlite3.connect(own(folder, method)) as study:
            assert study.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert not list(folder.rglob(".cluster-*"))
    if name == "cut":
        assert trials_in(own(folder, "local")) == {"COMPLETE": 6, "FAIL": 2}
    else:
        assert not (folder / "study.db").exists()
    # Nothing is left to do: nobody is asked, not even a scheduler that is gone.
    tune_into(made, folder, say=quiet, cluster=Scheduler("tcp://127.0.0.1:1"))


def test_what_a_cluster_began_goes_on_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the trials are in the files that workers write."""
    made, cut = experiment(EXPERIMENT), tmp_path / "cut"
    tune_into(made, tmp_path / "whole", say=quiet)
    cut_short(made, cut, monkeypatch)
    workshop = Workshop.of(made, cut).moved_out(0)
    (cut / "study.db").unlink()
    with locked(workshop.folder), pytest.raises(InvalidInput, match="another process is working"):
        tune_into(made, cut, say=quiet)
    tune_into(made, cut, say=quiet)
    assert values(cut) == values(tmp_path / "whole")
    assert not (cut / "study.db").exists()


def test_trials_on_other_data_are_refused(tmp_path: Path) -> None:
    made = experiment(EXPERIMENT)
    other = experiment(EXPERIMENT.replace("clients = 3", "clients = 4"))
    tune_into(made, tmp_path / "out", say=quiet)
    workshop = Workshop.of(made, tmp_path / "out").moved_out(0)
    inputs.note(workshop.folder, other)
    with pytest.raises(InvalidInput, match=r"that 'local' was tuned with on the cluster is not"):
        PlannedTuning("local", workshop, 0, None).refuse_other_inputs()
    with pytest.raises(InvalidInput, match=r"was changed since .* or tune anew with --force"):
        tune_into(made, tmp_path / "out", say=quiet)
    tune_into(made, tmp_path / "out", say=quiet, force=True)
    assert not workshop.folder.exists()


def test_time_that_was_spent_before_counts(tmp_path: Path) -> None:
    """A method that another worker goes on with has what is left of its share."""
    made = experiment(EXPERIMENT.replace("steps = 48", "minutes = 5.0"))
    workshop = Workshop.of(made, tmp_path).own(0)
    workshop.folder.mkdir(parents=True)
    study = workshop.asked.study(0, workshop.settings, workshop.storage())
    study.spent(300.0, 0.0)
    workshop.tune(0, 300.0, lambda done, total, note: None)
    again = workshop.asked.study(0, workshop.settings, workshop.storage())
    assert again.finished
    assert {trial.state for trial in again.trials()} == {"cut"}


@pytest.mark.parametrize("command", [("tune", "e.toml"), ("reproduce", "fedu/table-3")])
def test_commands_that_take_a_cluster_refuse_what_does_not_go_with_it(
    cli: Cli, command: tuple[str, ...]
) -> None:
    code, _, said = cli(*command, "--cluster", "tcp://10.0.0.1:8786")
    assert (code, "another machine and not encrypted" in " ".join(said.split())) == (2, True)
    code, _, said = cli(*command, "--cluster", "tcp://127.0.0.1:1", "--jobs", "2")
    assert (code, "--jobs is 2 and --cluster is" in " ".join(said.split())) == (2, True)


@pytest.mark.slow
def test_a_papers_table_is_run_by_workers(tmp_path: Path) -> None:
    table = tiny("pfedme/table-1", "synthetic-mlr", "pFedMe (GM)", "pFedMe (PM)")
    found = []
    with lab(tmp_path / "lab") as cluster:
        for name, where in (("one", None), ("two", Scheduler(cluster.address))):
            wish = Wish(tmp_path / name, quick=True, say=quiet, cluster=where)
            ((_, done),) = carry_out([table], wish)
            outcomes = [o for e in done[0].comparison.entries for o in e.outcomes]
            found.append([o.last().tolist() for o in outcomes])
    assert found[0] == found[1]


LONG = 'name = "e"' + longer(TWO, 200)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["worker", "process", "command", "command, gently"])
def test_whoever_is_killed_no_trial_is_lost_or_repeated(victim: str, tmp_path: Path) -> None:
    tune_into(experiment(LONG), tmp_path / "whole", say=quiet)
    (tmp_path / "e.toml").write_text(LONG)
    folder = tmp_path / "cut"
    with lab(tmp_path / "lab") as cluster:
        given = ("tune", "e.toml", "-o", str(folder), "--cluster", cluster.address)
        start = lambda: subprocess.Popen(
            [sys.executable, "-m", "coterie", *given],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

        def under_way() -> bool:
            found = trials_in(own(folder, "local"))
            return found.get("COMPLETE", 0) >= 2 and found.get("RUNNING", 0) > 0

        begun = start()
        until(lambda: begun.poll() is not None or under_way())
        processes = {worker.pid: children(worker.pid) for worker in cluster.workers}
        assert all(processes.values())
        first = cluster.workers[0].pid
        dies = {"worker": first, "process": processes[first][0]}.get(victim, begun.pid)
        os.kill(dies, signal.SIGTERM if "gently" in victim else signal.SIGKILL)
        _, said = begun.communicate(timeout=300)
        assert "Traceback" not in said
        if victim.startswith("command"):
            assert begun.returncode == (130 if "gently" in victim else -signal.SIGKILL), said
            until(lambda: not any(alive(p) for each in processes.values() for p in each), 60)
            assert not (folder / "tuned.toml").exists()
            begun = start()
            _, said = begun.communicate(timeout=300)
        assert begun.returncode == 0, said
        assert values(folder) == values(tmp_path / "whole")
        assert tuned(folder) == tuned(tmp_path / "whole")
        for method in METHODS:
            states = trials_in(own(folder, method))
            assert not {"RUNNING", "WAITING"} & set(states)
