"""The commands of the demo, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from coterie.core.errors import CoterieError
from coterie.core.parent import child_of_this


class DemoFailed(CoterieError):
    """Something did not go as it must; the logs in the demo's folder tell more."""

    exit_code = 1


class Processes:
    """The commands of the demo, each in a group of its own, its output in a log file; they
    end with this process, also when it is killed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "coterie", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=child_of_this(),
            )
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        """SIGKILL, as when a machine loses power."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + 15
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def last_words(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    try:
        yield made
    finally:
        made.stop()


def wait_for(
    what: str,
    until: Callable[[], bool],
    seconds: float,
    process: subprocess.Popen[bytes] | None = None,
) -> None:
    end = time.monotonic() + seconds
    while not until():
        if process is not None and process.poll() is not None and not until():
            raise DemoFailed(
                f"while waiting for {what} a process ended with code {process.returncode}; see the"
                " logs."
            )
        if time.monotonic() > end:
            raise DemoFailed(f"{what} did not come within {seconds:.0f} s; see the logs.")
        time.sleep(0.2)


def round_of(status: Path) -> int:
    """The round that a status file shows, −1 if there is none yet."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads(status.read_text())["round"])
    return -1
