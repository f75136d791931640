"""What a run, and a command with several, tells of itself while it is under way.

`live.json` lies in a run's folder as long as a process works on it: which one, how far it is, and
its evaluations so far. `plan.json` lies in the folder of a command: its process and all its runs.
Nothing that is computed depends on them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.engine.simulate import Simulator, Snapshot

LIVE, PLAN = "live.json", "plan.json"
OFTEN = 0.5
"""Seconds between two writes."""
SILENT = 600.0
"""Seconds after which a process of another machine that says nothing counts as gone."""


def who() -> dict[str, Any]:
    """This process."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time()}


def alive(told: dict[str, Any]) -> bool:
    """Whether the process that told something is still there; of another machine's it is only known
    when it last spoke.
    """
    if told.get("host") != socket.gethostname() or os.name == "nt":
        return bool(time.time() - float(told.get("at", 0.0)) < SILENT)
    try:
        os.kill(int(told["pid"]), 0)
    except (ProcessLookupError, KeyError, ValueError):
        return False
    except PermissionError:  # somebody else's, but there
        return True
    return True


def _write(path: Path, value: Any) -> None:
    """Whole or not at all, but not awaited on the disk: it is soon written again. A run does not
    fail because of it.
    """
    temporary = path.with_name(f".{path.name}.part")
    with contextlib.suppress(OSError):
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(path)


class Live:
    """A run tells how far it is; called like any other progress."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self.path = folder / LIVE
        self.begun = self.first = time.time()
        self.since: int | None = None
        """The first round that was told, at the time `first`; a run that goes on begins there."""
        self.curve: list[list[float | None]] = []
        self.last = -OFTEN
        self._tell(simulator)

    def __call__(self, simulator: Simulator, snapshot: Snapshot | None) -> None:
        if self.since is None:
            self.since, self.first = simulator.t, time.time()
        if snapshot is not None:
            self.curve.append([snapshot.round, _score(snapshot), snapshot.up, snapshot.down])
        if time.monotonic() - self.last >= OFTEN:
            self._tell(simulator)

    def _tell(self, simulator: Simulator) -> None:
        self.last = time.monotonic()
        _write(
            self.path,
            {
                **who(),
                "begun": self.begun,
                "since": self.since,
                "first": self.first,
                "round": simulator.t,
                "rounds": simulator.training.rounds,
                "metric": metric_told(simulator),
                "curve": self.curve,
            },
        )

    def end(self) -> None:
        """Nothing works on the folder any more."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def metric_told(simulator: Simulator) -> dict[str, Any]:
    """What is needed to show scores without the run's code."""
    return {**simulator.metric.told(), "percent": simulator.metric.percent}


def _score(snapshot: Snapshot) -> float | None:
    """The clients' mean test score; None without one."""
    found = snapshot.scores.get("test")
    if found is None or np.isnan(found.score[0]).all():
        return None
    return float(np.nanmean(found.score[0]))


@contextlib.contextmanager
def planned(folder: Path, runs: Sequence[Path]) -> Iterator[None]:
    """While a command works on its runs, its folder says which these are."""
    names = [str(run.relative_to(folder)) for run in runs]
    _write(folder / PLAN, {**who(), "runs": names})
    try:
        yield
    finally:
        _write(folder / PLAN, {"runs": names})
