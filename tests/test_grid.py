"""Several runs at a time, in processes of their own: the same folders, the same sentences, and
nobody left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from coterie import InvalidInput
from coterie.adversary import get_attack
from coterie.cli.progress import Bars
from coterie.runs import run as runs
from coterie.runs.attack import attack_into
from coterie.runs.compare import compare_into
from coterie.runs.experiment import Experiment
from coterie.runs.export import export
from coterie.runs.grid import Board, Planned, Workers, _shares_of_cores

quiet = lambda sentence: None
FEDU = {"name": "fedu", "local_steps": 2}
PROJECTED = {
    "name": "lp-proj-2",
    "local_rounds": 2,
    "inner_steps": 1,
    "dsub": 7,
    "trains": "sampled",
}
linux = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc"
)


def experiment(*methods: dict, **training: object) -> Experiment:
    chosen = {"rounds": 10, "eval_every": 10, "batch_size": 8, **training}
    config = {
        "seeds": [0, 1],
        "data": {"name": "digits", "clients": 6},
        "graph": {"kind": "ring"},
        "training": chosen,
        "methods": list(methods),
    }
    return Experiment.from_config(config)


def written(folder: Path) -> dict[str, list]:
    """All that the runs below a folder wrote, but for times."""
    names = ("rounds", "clients", "ledger")
    return {
        str(p.relative_to(folder)): pq.read_table(p).to_pylist()
        for p in sorted(folder.rglob("*.parquet"))
        if p.stem in names
    }


def test_two_at_a_time_write_what_one_after_the_other_does(tmp_path: Path) -> None:
    chosen = experiment(FEDU, PROJECTED)
    one = compare_into(chosen, tmp_path / "one", say=quiet)
    two = compare_into(chosen, tmp_path / "two", say=quiet, jobs=2, keep_models=False)
    assert len(list((tmp_path / "one").rglob("*.hub.safetensors"))) == 3 * 2
    assert not list((tmp_path / "two").rglob("*.safetensors"))
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert len(written(tmp_path / "two")) == 3 * 2 * 3
    assert [
        (e.label, [o.seed for o in e.outcomes], [o.last().tolist() for o in e.outcomes])
        for e in one.entries
    ] == [
        (e.label, [o.seed for o in e.outcomes], [o.last().tolist() for o in e.outcomes])
        for e in two.entries
    ]


@pytest.mark.slow
def test_a_grid_of_attacks_does_too_and_a_collapse_is_no_accident(tmp_path: Path) -> None:
    chosen = experiment({"name": "fedavg", "local_steps": 2, "lr": 3e38}).with_(seeds=(0,))
    attacks = [get_attack("sign-flip")]
    one, two = (
        attack_into(chosen, attacks, [0.0, 0.5], tmp_path / str(jobs), say=quiet, jobs=jobs)
        for jobs in (1, 2)
    )
    assert one.cells == two.cells
    assert one.cells["FedAvg", "sign-flip", 0.5].collapses


def test_dropped_models_leave_the_scores_and_are_not_looked_for(tmp_path: Path) -> None:
    chosen = experiment(FEDU)
    kept = compare_into(chosen, tmp_path, say=quiet)
    run = next((tmp_path / "runs").glob("fedu*"))
    assert export(run, [0], tmp_path / "models", say=quiet)
    scores = written(tmp_path)
    dropped = compare_into(
        chosen, tmp_path, say=quiet, keep_models=False
    )  # of runs that had ended before, too
    assert not list((tmp_path / "runs").rglob("*.safetensors"))
    assert written(tmp_path) == scores
    assert [o.last().tolist() for e in kept.entries for o in e.outcomes] == [
        o.last().tolist() for e in dropped.entries for o in e.outcomes
    ]
    for look in (
        lambda: export(run, [0], tmp_path / "models", say=quiet),
        lambda: runs.resume(run, say=quiet),
    ):
        with pytest.raises(
            InvalidInput, match=r"the models of .* were deleted when it had ended \(--drop-models\)"
        ):
            look()
    assert written(tmp_path) == scores


def test_models_of_a_run_that_goes_on_are_never_dropped(tmp_path: Path) -> None:
    planned = experiment(FEDU, rounds=2, eval_every=1).with_(seeds=())
    run = tmp_path / "run"
    runs.start(planned.single(planned.contenders[0], 0), run, say=quiet)
    (run / "status.json").unlink()  # as if it were under way
    runs.drop_models(run)
    assert list(run.rglob("*.safetensors"))


def test_a_refusal_in_another_process_is_one_sentence_here(tmp_path: Path) -> None:
    chosen = experiment({**PROJECTED, "dsub": 100_000})
    with pytest.raises(InvalidInput, match="dsub is 100000"):
        compare_into(chosen, tmp_path / "runs", say=quiet, jobs=2)


def test_at_least_one_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="jobs is 0, but must be a whole number ≥ 1"):
        compare_into(experiment(FEDU), tmp_path / "runs", say=quiet, jobs=0)


def test_a_process_keeps_to_a_family_and_helps_others_at_the_end(tmp_path: Path) -> None:
    single = experiment(FEDU)
    plan = [
        Planned(f"{family}{i}", family, single, tmp_path / f"{family}{i}")
        for family, count in (("a", 4), ("b", 1))
        for i in range(count)
    ]
    crew = Workers(2, plan, len(plan), None, quiet)
    given = [planned.label for slot in (0, 1, 1, 0, 1) if (planned := crew._next(slot))]
    assert given == ["a0", "b0", "a3", "a1", "a2"]
    assert crew._next(0) is None


def test_cores_are_dealt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 6}, raising=False)
    assert _shares_of_cores(2) == [[0, 2, 6], [1, 3]]
    assert _shares_of_cores(7) == [[0], [1], [2], [3], [6], [0], [1]]


def test_bars_show_several_runs() -> None:
    with Progress(TextColumn("{task.description}"), console=Console(quiet=True)) as progress:
        bars = Bars(progress)
        assert isinstance(bars, Board)
        bars.overall(1, 4)
        for slot, label in enumerate(("a", "b")):
            bars.show(slot, label, None, None, None)
            bars.show(slot, label, 5, 10, "accuracy 90.0%")
        assert {t.description: (t.completed, t.total) for t in progress.tasks} == {
            "all runs": (1, 4),
            "a": (5, 10),
            "b": (5, 10),
        }
        bars.show(0, "c", None, None, None)
        bars.show(1, "", None, None, None)
        assert {t.description for t in progress.tasks} == {"all runs", "c"}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@linux
@pytest.mark.parametrize(
    "case",
    [
        "stopped",
        pytest.param("killed", marks=pytest.mark.slow),
        pytest.param("lost a process", marks=pytest.mark.slow),
    ],
)
def test_whatever_ends_the_command_runs_are_saved_and_nobody_is_left_behind(
    case: str, tmp_path: Path
) -> None:
    chosen = experiment(FEDU, rounds=100_000, checkpoint_every=10)
    (tmp_path / "experiment.toml").write_text(chosen.to_toml())
    folder = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "coterie",
        "compare",
        str(tmp_path / "experiment.toml"),
        "-o",
        str(folder),
        "--jobs",
        "2",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    places = [folder / "runs" / name for name in ("local-seed0", "fedu-seed0")]  # a family each
    while process.poll() is None and not all(
        list((place / "checkpoints").glob("*.json")) for place in places
    ):
        time.sleep(0.02)
    workers = children(process.pid)
    assert len(workers) == 2
    victim = workers[0] if case == "lost a process" else process.pid
    os.kill(victim, signal.SIGTERM if case == "stopped" else signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    if case == "stopped":
        assert process.returncode == 130
        assert "0 of 4 runs have ended" in said
    elif case == "lost a process":
        assert process.returncode == 2
        assert "ended with code -9; nothing else is lost: repeat the command." in " ".join(
            said.split()
        )
    else:
        assert process.returncode == -signal.SIGKILL
    patience = time.monotonic() + 30
    while any(map(alive, workers)) and time.monotonic() < patience:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    for place in places:
        assert runs.load(place, say=quiet)[1].t >= 10
