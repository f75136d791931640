"""Runs seen from outside: while they train, when they have ended, and when they were killed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie import InvalidInput
from coterie.runs import run as runs
from coterie.runs.experiment import Experiment
from coterie.runs.watching.live import LIVE, PLAN, alive, planned, who
from coterie.runs.watching.seen import Seen, Watcher, see

Cli = Callable[..., tuple[int, str, str]]
CONFIG = {
    "name": "small",
    "data": {"name": "digits", "clients": 5},
    "training": {"rounds": 4, "eval_every": 2, "batch_size": 8},
    "method": {"name": "fedu", "local_steps": 2},
}


def gone() -> dict[str, Any]:
    """A process of this machine that has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return {**who(), "pid": done.pid}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Seen]]:
    """A run, and how it was seen at every step."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    seen: list[Seen] = []

    def look(simulator: Any, snapshot: Any) -> None:
        seen.append(see(folder))

    runs.start(Experiment.from_config(CONFIG), folder, progress=look)
    return folder, seen


def test_a_run_is_seen_while_it_trains(
    watched: tuple[Path, list[Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = watched
    assert {s.state for s in seen} == {"running"}
    assert {s.rounds for s in seen} == {4}
    assert seen[0].seconds is not None
    assert seen[0].metric["title"] == "accuracy"
    ended = see(folder)
    assert (ended.state, ended.round, ended.left) == ("finished", 4, None)
    assert [p[0] for p in ended.curve] == [0, 2, 4]
    assert ended.value.endswith("%")
    assert ended.bytes > 0
    assert not (folder / LIVE).exists()
    assert json.loads((folder / "status.json").read_text())["metric"]["percent"]


def test_rounds_that_were_told_make_the_time_that_is_left(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[method]\nname = "fedu"\n[training]\nrounds = 10\n')
    live = {
        **who(),
        "round": 6,
        "rounds": 10,
        "since": 2,
        "curve": [[0, -4.0, 0, 0], [6, -2.0, 5, 7]],
    }
    live |= {"begun": live["at"] - 30, "first": live["at"] - 20}
    live["metric"] = {"name": "mse", "title": "squared error", "higher": False, "percent": False}
    (tmp_path / LIVE).write_text(json.dumps(live))
    seen = see(tmp_path)
    assert (seen.state, seen.round) == ("running", 6)
    assert seen.left == pytest.approx(20 / 4 * 4)
    assert seen.value == "2", "errors are shown without a minus"
    assert seen.bytes == 12
    (tmp_path / LIVE).write_text(json.dumps(live | gone()))
    assert see(tmp_path).state == "stopped"
    (tmp_path / "status.json").write_text(json.dumps({"diverged": "NaN at last", "round": 6}))
    assert (see(tmp_path).state, see(tmp_path).why) == ("collapsed", "NaN at last")


def test_a_process_of_another_machine_is_believed_for_a_while() -> None:
    assert alive(who())
    assert not alive(gone())
    elsewhere = {**gone(), "host": "elsewhere"}
    assert alive(elsewhere)
    assert not alive({**elsewhere, "at": 0.0})


def test_half_written_files_are_left_for_the_next_time(watched: tuple[Path, list[Seen]]) -> None:
    folder, _ = watched
    broken = folder.parent / "broken"
    (broken / "parts").mkdir(parents=True)
    (broken / "config.toml").write_text((folder / "config.toml").read_text())
    (broken / "parts" / "00000002.rounds.parquet").write_bytes(b"PAR1 and no more")
    (broken / LIVE).write_text('{"round": ')
    assert (see(broken).state, see(broken).curve) == ("stopped", ())


def test_a_command_says_what_is_still_to_come(
    watched: tuple[Path, list[Seen]], tmp_path: Path
) -> None:
    folder, _ = watched
    root = tmp_path / "command"
    (root / "runs").mkdir(parents=True)
    (root / "config.toml").write_text('[[methods]]\nname = "fedu"\n')
    (root / "runs" / "a").symlink_to(folder)  # links are not followed
    watcher = Watcher(root)
    with planned(root, [root / "runs" / name for name in ("a", "b")]):
        seen = watcher.look()
        assert [(run.name, run.state) for run in seen.runs] == [
            ("runs/a", "waiting"),
            ("runs/b", "waiting"),
        ]
        assert seen.busy
        assert not seen.over
    assert not watcher.look().busy
    (root / PLAN).write_text(json.dumps({**gone(), "runs": ["runs/b"]}))
    assert not watcher.look().busy
    with pytest.raises(InvalidInput, match="does not exist"):
        Watcher(tmp_path / "nowhere")


def test_watch_ends_when_the_runs_do(
    cli: Cli, tmp_path: Path, watched: tuple[Path, list[Seen]]
) -> None:
    folder, _ = watched
    code, out, _ = cli("watch", str(folder))
    assert code == 0
    assert "finished · round 4 of 4 · accuracy" in out
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    (stopped / "config.toml").write_text((folder / "config.toml").read_text())
    code, out, _ = cli("watch", str(stopped), "--every", "0.1")
    assert (code, "stopped" in out) == (1, True)
    assert cli("watch", str(tmp_path / "nowhere"))[0] == 2
    before = sorted(p.name for p in folder.iterdir())
    cli("watch", str(folder), "--once")
    assert sorted(p.name for p in folder.iterdir()) == before, "it only reads"


def test_the_table_of_a_terminal_names_hostile_runs_as_they_are() -> None:
    from rich.console import Console

    from coterie.cli.watch import _table
    from coterie.runs.watching.seen import Overview

    run = Seen("[red]a[/red]", "fedu", 0, "running", 3, 10, {"title": "AUC", "percent": True})
    run = dataclasses.replace(run, curve=((3, 0.5, 1000.0, 234.0),), left=75.0)
    console = Console(width=80, record=True, quiet=True)
    console.quiet = False
    with console.capture() as captured:
        console.print(_table(Overview((run,), True), "here"))
    text = captured.get()
    for part in ("[red]a[/red]", "running", "3/10", "75 s", "50.00%", "1.2 kB", "AUC"):
        assert part in text
    assert "0 of 1 runs have ended" in text
