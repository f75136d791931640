"""`coterie tune`: what it writes, and that a kill loses nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.runs.experiment import Experiment
from tests.conftest import Cli
from tests.support.tunings import (
    EXPERIMENT,
    TWO,
    cut_short,
    experiment,
    longer,
    rows,
    trials_in,
    tuned,
    values,
)


def test_tune_writes_an_experiment_that_can_be_compared(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    code, out, err = cli("tune", "e.toml", "-o", "out")
    assert code == 0, err
    assert "coterie compare out/tuned.toml" in out
    found = rows(tmp_path / "out")
    assert [row["trial"] for row in found] == [str(i) for i in range(6)]
    assert sum(float(row["steps"]) for row in found) == 48
    best = max(found, key=lambda row: float(row["score"]))
    config = tuned(tmp_path / "out")
    assert config["method"]["lr"] == pytest.approx(float(best["lr"]))
    assert "tune" not in config
    assert config["seeds"] == [0, 1]
    text = (tmp_path / "out" / "tuned.toml").read_text()
    assert "# Runs have seed 1000; reports have 0, 1." in text
    assert (tmp_path / "out" / "trials.svg").read_text().startswith("<svg")
    assert "**complete**" in (tmp_path / "out" / "trials.md").read_text()
    Experiment.from_file(tmp_path / "out" / "tuned.toml")
    # Repeated, nothing is left to do; with another budget the folder is refused.
    before = (tmp_path / "out" / "trials.csv").read_text()
    assert cli("tune", "e.toml", "-o", "out")[0] == 0
    assert (tmp_path / "out" / "trials.csv").read_text() == before
    code, _, err = cli("tune", "e.toml", "-o", "out", "--steps", "8")
    assert (code, "is not empty" in err) == (2, True)


def test_both_locals_stand_beside_the_tuned_methods() -> None:
    from coterie import FedU, Local
    from coterie.runs.contender import Contender
    from coterie.runs.tuning.folder import tuned_experiment

    made = Experiment.from_config({"data": "digits", "methods": ["fedu"], "tune": {"steps": 9}})
    entry = lambda method: type("T", (), {"method": method, "contender": Contender(method)})()
    found = [entry(Local(lr=0.7, local_steps=50)), entry(FedU(lr=0.2, local_steps=5))]
    contenders = tuned_experiment(made, found).methods
    assert contenders == (
        Local(lr=0.7, local_steps=50),
        Local(lr=0.2, local_steps=5),
        FedU(lr=0.2, local_steps=5),
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--folds", "1"], "tune.folds is 1, but must be a whole number ≥ 2"),
        (["--minutes", "1"], "tune.steps is 48 and tune.minutes 1"),
        (["--sampler", "bayes"], "tune.sampler, 'bayes' is unknown"),
        (["-s", "data.validation=0.0"], "no validation data"),
        (["-s", "training.held_out=1"], "training.held_out is 1"),
        (["--jobs", "0"], "jobs is 0"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    cli: Cli, tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    code, _, err = cli("tune", "e.toml", "-o", "out", *arguments)
    assert code == 2
    assert says in " ".join(err.split())
    assert not (tmp_path / "out").exists()


def test_without_optuna_one_sentence_says_what_to_install(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = cli("tune", "e.toml", "-o", "out")
    assert code == 2
    assert "pip install 'coterie[tune]'" in " ".join(err.split())


def test_trials_that_were_under_way_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coterie.runs.tuning.folder import tune_into

    made = experiment(EXPERIMENT)
    tune_into(made, tmp_path / "whole")
    cut_short(made, tmp_path / "cut", monkeypatch)
    left = trials_in(tmp_path / "cut" / "study.db")
    assert (left["COMPLETE"], left["RUNNING"]) == (2, 2)
    tune_into(made, tmp_path / "cut")
    assert values(tmp_path / "cut") == values(tmp_path / "whole")
    assert tuned(tmp_path / "cut") == tuned(tmp_path / "whole")
    assert trials_in(tmp_path / "cut" / "study.db") == {"COMPLETE": 6, "FAIL": 2}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_it_is_taken_up_without_losing_or_repeating_a_trial(
    jobs: int, tmp_path: Path
) -> None:
    """Killed while a batch is under way, after another has ended."""
    text = longer(TWO if jobs > 1 else EXPERIMENT, 60)
    (tmp_path / "e.toml").write_text(text)
    command = [sys.executable, "-m", "coterie", "tune", "e.toml", "--jobs", str(jobs), "-o"]

    def run(folder: str, *, kill: bool) -> int:
        process = subprocess.Popen(
            [*command, folder], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while kill and process.poll() is None:
            found = trials_in(tmp_path / folder / "study.db")
            if found.get("COMPLETE", 0) >= 2 and found.get("RUNNING", 0):
                process.kill()
            time.sleep(0.005)
        return process.wait()

    assert run("whole", kill=False) == 0
    assert run("cut", kill=True) == -signal.SIGKILL
    assert not (tmp_path / "cut" / "tuned.toml").exists()
    if jobs > 1:
        time.sleep(5)  # the processes of a killed command end by themselves
    assert run("cut", kill=False) == 0
    assert values(tmp_path / "cut") == values(tmp_path / "whole")
    assert tuned(tmp_path / "cut") == tuned(tmp_path / "whole")
    states = trials_in(tmp_path / "cut" / "study.db")
    assert "RUNNING" not in states
    assert "WAITING" not in states
