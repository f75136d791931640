"""A Dask cluster on loopback: a scheduler and workers as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coterie.deploy.ports import free_port


class Lab:
    """Ended as a whole; what it wrote is in a folder."""

    def __init__(self, folder: Path, *given: str, scheme: str = "tcp") -> None:
        self.folder, self.given = folder, given
        self.address = f"{scheme}://127.0.0.1:{free_port()}"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--scheduler-file", str(self.file))
        self._until(self.file.is_file)

    def _until(self, there: Any) -> None:
        until = time.monotonic() + 60
        while not there():
            assert time.monotonic() < until, self.said()
            assert self.scheduler.poll() is None, self.said()
            time.sleep(0.05)

    def _start(self, what: str, *more: str) -> subprocess.Popen[bytes]:
        scheme, _, port = self.address.rpartition(":")
        where = ["--host", scheme, "--port", port] if what == "scheduler" else [self.address]
        log = (self.folder / f"{what}{len(self.workers)}.log").open("wb")
        given = (*where, "--no-dashboard", *self.given, *more)
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{what}", *given],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
        )

    def hire(self, count: int = 1, *more: str) -> None:
        """Workers with one thread, or with what is said."""
        given = ("--no-nanny", *(("--nthreads", "1") if "--nthreads" not in more else ()), *more)
        self.workers += [self._start("worker", *given) for _ in range(count)]
        self._until(lambda: self.log("scheduler0").count("Register worker") >= len(self.workers))

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def said(self) -> str:
        return "\n".join(p.read_text() for p in sorted(self.folder.glob("*.log")))

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def lab(folder: Path, *given: str, workers: int = 2, scheme: str = "tcp") -> Iterator[Lab]:
    folder.mkdir()
    made = Lab(folder, *given, scheme=scheme)
    try:
        made.hire(workers)
        yield made
    finally:
        made.close()
