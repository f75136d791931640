"""Folders that one process works on, and processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, own_folder
from coterie.core.parent import VARIABLE

HOLDS = """
import sys, time
from pathlib import Path
from coterie.core.files import locked
from coterie.core.parent import ends_with_parent
ends_with_parent()
with locked(Path(sys.argv[1])):
    Path(sys.argv[1], "held").touch()
    time.sleep(60)
"""
STARTS = f"""
import os, subprocess, sys, time
from coterie.core.parent import child_of_this
subprocess.Popen([sys.executable, "-c", {HOLDS!r}, sys.argv[1]], env=child_of_this())
time.sleep(60)
"""


def until_held(folder: Path) -> None:
    end = time.monotonic() + 30
    while not (folder / "held").exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_who_holds_a_lock_is_named_with_the_command_that_ends_it(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path])
    try:
        until_held(tmp_path)
        for _ in range(2):  # who is refused does not blot out what the lock says
            with pytest.raises(InvalidInput) as refused, locked(tmp_path):
                pass
            found = str(refused.value)
            assert f"is working on the folder '{tmp_path}': `-c {tmp_path}`" in found
            assert f"pid {holder.pid}, since {time.strftime('%Y-%m-%d ')}" in found
            assert f"stop it: `kill {holder.pid}`." in found
        os.kill(int(found.rpartition("kill ")[2].rstrip("`.")), signal.SIGTERM)
        holder.wait(10)
        with locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()


def test_a_child_whose_parent_was_killed_ends_and_lets_the_folder_go(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTS, tmp_path])
    until_held(tmp_path)
    parent.kill()
    parent.wait()
    end = time.monotonic() + 10
    while True:
        try:
            with locked(tmp_path):
                break
        except InvalidInput:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_only_who_is_told_to_watches_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that is told of another parent has been left behind already; its children are not
    told.
    """
    monkeypatch.setenv(VARIABLE, "1")
    left = subprocess.run([sys.executable, "-c", HOLDS, tmp_path], timeout=30)
    assert left.returncode == -signal.SIGTERM


def test_a_folder_of_ones_own_is_closed_to_others(tmp_path: Path) -> None:
    own_folder(tmp_path / "new" / "state")
    assert (tmp_path / "new" / "state").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    own_folder(tmp_path / "open")
    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be made"):
        own_folder(tmp_path / "file")
