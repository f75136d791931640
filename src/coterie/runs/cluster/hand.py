"""What a worker of a Dask cluster does with a run: it hands it to a process of its own
(`coterie.runs.worker`) and passes on what that tells.

So JAX never starts in Dask's process. Dask cannot stop a thread, but this process can be asked to:
it saves a checkpoint and ends when nobody wants the run any more, or when the worker is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, TypedDict

from coterie import __version__
from coterie.core.errors import InvalidInput
from coterie.core.files import locked
from coterie.core.queues import heard

SIGHT = 5.0
"""Seconds that a new file may take to be seen by other machines."""
PATIENCE = 60.0
"""Seconds that a process has for a last checkpoint."""
LOCKED = 120.0
"""Seconds to wait for a folder that a worker had which is gone: its process saves and ends, and a
file server may need a while to notice that a machine is.
"""
IDLE = 30.0
"""Seconds after which a process with nothing to do is ended."""
NEWS = 0.5
"""Seconds between two reports of how far a run is."""


class Facts(TypedDict):
    """What all runs of a command have in common."""

    root: str
    """A folder that all must see, in which the command has put a file named `token`."""
    token: str
    """Also the topic under which workers tell how far they are."""
    folder: str
    """The command's working directory, from which relative paths count."""
    data: str | None
    """The command's COTERIE_DATA."""
    files: list[str]
    """Files of --import."""
    cores: dict[str, list[int]]
    """The cores of each worker, by its address."""


class Gone(Exception):
    """The process that did a run has died."""


def sees(root: str, token: str) -> bool:
    """Whether this machine sees the command's folder."""
    until = time.monotonic() + SIGHT
    while not (Path(root) / token).is_file():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def look(root: str, token: str) -> dict[str, Any]:
    """What a command must know of a worker before it gives it anything."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return {
        "sees": sees(root, token),
        "host": socket.gethostname(),
        "cores": cores,
        "version": __version__,
    }


def unlocked(folder: Path, seconds: float, wanted: Any = lambda: True) -> bool:
    """Wait until no process works on a folder."""
    until = time.monotonic() + seconds
    while folder.is_dir() and wanted():
        try:
            with locked(folder):
                return True
        except InvalidInput:
            if time.monotonic() > until:
                return False
        time.sleep(0.2)
    return True


class Hand:
    """A process that does one run after the other."""

    def __init__(self, facts: Facts, cores: list[int]) -> None:
        self.setup = (facts["token"], tuple(cores))
        env = dict(os.environ)
        if facts["data"]:
            env.setdefault("COTERIE_DATA", facts["data"])
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "coterie.runs.worker"),
                *(",".join(map(str, cores)), *facts["files"]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            bufsize=1,
            env=env,
            cwd=facts["folder"] if Path(facts["folder"]).is_dir() else None,
            start_new_session=True,
        )
        self.events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it was killed while it wrote
                self.events.put(json.loads(line))
        self.events.put(None)

    def give(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it has died: `_listen` will say so
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def dismiss(self) -> None:
        """If it is at work, it saves what it has and ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_turn = threading.Lock()
"""One run at a time, however many threads the worker has: they would fight for the cores."""
_kept: Hand | None = None
_used = 0


def do(order: dict[str, Any], number: int, facts: Facts) -> dict[str, Any]:
    """Do a run, or go on with it. Gives what was said, or the error that ended it; nothing, if it
    was not wanted any more.
    """
    from coterie.runs.cluster.library import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        """Whether the command still waits for the run, and the worker may go on with it."""
        task = worker.state.tasks.get(key)
        at_work = task is not None and task.state in ("executing", "long-running")
        return at_work and worker.status.name in ("running", "paused")

    while not _turn.acquire(timeout=0.2):
        if not wanted():
            return {}
    try:
        if not sees(facts["root"], facts["token"]):
            return refused(f"the worker {worker.address}", facts["root"])
        if not unlocked(Path(order["folder"]), LOCKED, wanted):
            return {
                "error": "CoterieError",
                "text": f"another process is working on the folder {order['folder']!r}; wait for it"
                " or stop it.",
            }
        hand = _hired(facts, worker.address)
        hand.give(order)
        tell = lambda event: worker.log_event(facts["token"], {"number": number, **event})
        try:
            return _watched(hand, wanted, tell)
        except BaseException:
            _dismiss()
            raise
    finally:
        _turn.release()


def refused(who: str, root: str) -> dict[str, Any]:
    return {
        "error": "InvalidInput",
        "text": f"{who} does not see the folder {root!r}; the runs' folders must lie on a file"
        " system that all machines share.",
    }


def _watched(hand: Hand, wanted: Any, tell: Any) -> dict[str, Any]:
    said: list[str] = []
    told = 0.0
    tell({})
    for event in heard(hand.events, wanted):
        if event is None:
            code = hand.process.wait()
            raise Gone(f"ended with code {code}")
        if "error" in event:
            _dismiss()
            return event
        if "say" in event:
            said.append(event["say"])
        elif "ended" in event:
            _rest(hand)
            return {"said": said}
        elif time.monotonic() - told > NEWS:
            told = time.monotonic()
            tell(event)
    _dismiss()
    return {}


def _hired(facts: Facts, address: str) -> Hand:
    """The process at hand, if it was started for the same command: it has programs and data."""
    global _kept, _used
    _used += 1
    cores = facts["cores"].get(address, [])
    if _kept is not None and (
        _kept.setup != (facts["token"], tuple(cores)) or _kept.process.poll() is not None
    ):
        _dismiss()
    if _kept is None:
        _kept = Hand(facts, cores)
    return _kept


def _dismiss() -> None:
    global _kept
    hand, _kept = _kept, None
    if hand is not None:
        hand.dismiss()


def _rest(hand: Hand) -> None:
    """End the process when nothing comes for a while."""
    then = _used

    def end() -> None:
        with _turn:
            if _kept is hand and _used == then:
                _dismiss()

    timer = threading.Timer(IDLE, end)
    timer.daemon = True
    timer.start()
