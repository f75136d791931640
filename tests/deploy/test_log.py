"""Logs: sentences for people, JSON lines for machines, put aside when they are full."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy import log


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_every_sentence_and_for_how_it_ends(tmp_path: Path) -> None:
    heard: list[str] = []
    path = tmp_path / "log.json"

    def ends() -> None:
        with log.also_to(path, heard.append, role="client", name="ward-a") as say:
            say("ready: 100% \n\x1b[31m")
            raise log.GaveUp("nobody came.")

    with pytest.raises(log.GaveUp):
        ends()
    first, last = lines(path)
    assert heard == ["ready: 100% \n\x1b[31m"]
    assert "\x1b" not in path.read_text()
    assert (first["message"], first["level"]) == (heard[0], "info")
    assert (last["message"], last["level"]) == ("nobody came.", "error")
    assert (first["role"], first["name"]) == ("client", "ward-a")
    assert datetime.fromisoformat(first["time"]).tzinfo is not None
    assert path.stat().st_mode & 0o777 == 0o600
    with log.also_to(path, heard.append, role="client") as say:
        say("again")
    assert len(lines(path)) == 3
    with log.also_to(None, heard.append) as say:
        say("not on file")
    assert len(lines(path)) == 3


def test_full_logs_are_put_aside_and_the_oldest_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LARGEST", 2000)
    monkeypatch.setattr(log, "KEPT", 2)
    path = tmp_path / "log.json"
    with log.also_to(path, lambda sentence: None) as say:
        for k in range(200):
            say(f"sentence {k}")
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["log.json", "log.json.1", "log.json.2"]
    assert all(f.stat().st_size <= 2000 and f.stat().st_mode & 0o777 == 0o600 for f in files)
    told = [int(one["message"].split()[1]) for f in reversed(files) for one in lines(f)]
    assert told == list(range(told[0], 200))
    monkeypatch.setattr(log, "KEPT", 1)
    plain = log.Log(tmp_path / "plan.log", lambda sentence: None)
    for k in range(100):
        plain.say(f"sentence {k}")
    assert (tmp_path / "plan.log.1").is_file()
    assert (tmp_path / "plan.log").read_text().endswith(" sentence 99\n")


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"the log .* cannot be written: No such file"):
        log.also_to(tmp_path / "no" / "log", print).__enter__()
