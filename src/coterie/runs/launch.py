"""Several processes of one run on this machine, each with its share of the cores: started, watched,
and ended together.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from coterie.core.crew import cores_of, port_for_all
from coterie.core.errors import CoterieError, InvalidInput

GRACE = 10.0
"""Seconds in which processes may end by themselves once one of them is gone."""


class Ended(CoterieError):
    """A process of a launched run was killed or failed."""


def launch(command: Sequence[str], processes: int, remedy: str) -> None:
    """Run `coterie COMMAND` in so many processes. The first prints; the others are quiet unless
    they fail. When one is gone, the others are ended. Ctrl-C stops all of them at a checkpoint.
    """
    if processes < 1:
        raise InvalidInput(f"--processes is {processes}, but must be at least 1.")
    # Held until the end, or another program could take it before the first process listens.
    with port_for_all() as held:
        where = f"127.0.0.1:{held.getsockname()[1]}"
        if not hasattr(socket, "SO_REUSEPORT"):  # Windows: held, nobody at all could have it
            held.close()
        started = [_start(command, i, processes, where) for i in range(processes)]
        try:
            _watch(started, remedy)
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
            for process in started:
                process.wait()


def _start(
    command: Sequence[str], index: int, processes: int, where: str
) -> subprocess.Popen[bytes]:
    cores = cores_of(index, processes)
    crew = ["--processes", processes, "--process", index, "--coordinator", where]
    quiet = subprocess.DEVNULL if index else None

    def bind() -> None:
        os.sched_setaffinity(0, cores)

    return subprocess.Popen(
        [sys.executable, "-m", "coterie", *command, *map(str, crew)],
        stdout=quiet,
        stderr=quiet,
        preexec_fn=bind if cores else None,  # no cores, e.g. on Windows: nothing to bind to
    )


def _watch(started: Sequence[subprocess.Popen[bytes]], remedy: str) -> None:
    """Wait for all; when one fails, the others have a little time to say so themselves."""
    failed: list[int] = []
    until = float("inf")
    # A signal goes to all processes of the terminal, and each of them stops at a checkpoint.
    before = {s: signal.signal(s, lambda *_: None) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        while any(process.poll() is None for process in started) and time.monotonic() < until:
            if not failed:
                failed = [i for i, process in enumerate(started) if process.poll()]
                until = time.monotonic() + GRACE if failed else until
            time.sleep(0.05)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    leader = started[0].poll()
    if leader is not None and leader > 0:  # it has said why
        sys.exit(leader)
    if any(process.poll() != 0 for process in started):
        gone = failed[0] if failed else next(i for i, p in enumerate(started) if p.poll() != 0)
        raise Ended(f"process {gone} of {len(started)} is gone, so the run has stopped; {remedy}")
