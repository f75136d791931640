"""Flower's processes, started, watched and stopped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from coterie.core.errors import CoterieError

Say = Callable[[str], None]
REASONS = ("code:", "error", "failed", "exception")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
LONGEST_PAUSE = 10.0
STEADY = 60.0
"""A process that lived this many seconds is started again at once when it dies."""


class Failed(CoterieError):
    """A run or a process that did not come to its end."""

    exit_code = 1


def environment(home: Path, **more: str) -> dict[str, str]:
    """For Flower's processes: nothing is sent to Flower's makers, and its commands are found beside
    this Python.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    flower = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
        "PATH": path,
    }
    return {**os.environ, **flower, **more}


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(
            1, signal.SIGKILL
        )  # PR_SET_PDEATHSIG: whoever kills the supervisor must not leave an identity in use


class Child:
    """One supervised process, in a group of its own; its output goes to a file."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        env: dict[str, str],
        log: Path,
        say: Say,
    ) -> None:
        self.name, self.command, self.env, self.log, self.say = name, command, env, log, say
        self.process: subprocess.Popen[bytes] | None = None
        self.began, self.due, self.pause, self.deaths, self.from_here = 0.0, 0.0, 1.0, 0, 0

    def keep(self) -> bool:
        """Start it if it does not run and may; True when it has died since the last look."""
        self._turn_log()
        if self.process is not None and self.process.poll() is None:
            return False
        died = self.process is not None
        if died:
            assert self.process is not None
            code, self.process = self.process.returncode, None
            lived = time.monotonic() - self.began
            self.pause = 1.0 if lived > STEADY else min(2 * self.pause, LONGEST_PAUSE)
            self.deaths = 0 if lived > STEADY else self.deaths + 1
            self.due = time.monotonic() + self.pause
            why = (
                f"was killed by signal {-code}"
                if code < 0
                else f"ended with code {code}{self._last()}"
            )
            self.say(f"{self.name} {why}; it is started again in {self.pause:.0f} s.")
        if self.process is None and time.monotonic() >= self.due:
            self.from_here = self.log.stat().st_size if self.log.is_file() else 0
            with self.log.open("ab") as f:
                options: dict[str, Any] = {
                    "stdin": subprocess.DEVNULL,
                    "stdout": f,
                    "stderr": f,
                    "env": self.env,
                    "start_new_session": True,
                }
                self.process = subprocess.Popen(
                    list(self.command()), preexec_fn=_die_with_parent, **options
                )
            self.began = time.monotonic()
        return died

    def _turn_log(self, most: int = 20_000_000) -> None:
        """Keep the last so many bytes of what it says; the file is written at its end, so it may be
        cut under the writer.
        """
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > most:
                shutil.copyfile(self.log, self.log.with_name(f"{self.log.name}.1"))
                os.truncate(self.log, 0)
                self.from_here = 0

    def _last(self) -> str:
        """The last line that looks like a reason, of what this process has said."""
        with contextlib.suppress(OSError):
            lines = COLOUR.sub(
                "", self.log.read_bytes()[self.from_here :][-20_000:].decode(errors="replace")
            ).splitlines()
            found = [
                line.strip()
                for line in lines
                if any(w in line.lower() for w in REASONS) and "retrying" not in line
            ]
            if found and "code: 2004" in found[-1]:
                return (
                    " (the hub refuses it: its key is not registered there, or another process uses"
                    " it or did so a minute ago)"
                )
            if found:
                return f" ({found[-1].rpartition('ERROR :')[2].strip()[:160]})"
        return ""

    def tell(self, sign: int) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)

    def drop(self) -> None:
        """Kill it; it is started again soon."""
        if self.process is not None:
            self.stop(0.0)
            self.process, self.due = None, time.monotonic() + 1.0

    def stop(self, seconds: float = 5.0) -> None:
        """Politely, then not; its children too, should it have died before them."""
        if self.process is None:
            return
        self.tell(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.tell(signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set."""
    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
