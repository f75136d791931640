"""Runs as they are seen from outside: read from their folders, which may change meanwhile. Neither
data nor JAX is needed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import tomllib
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from coterie.core.errors import InvalidInput
from coterie.core.metrics import METRICS
from coterie.runs.watching.live import LIVE, PLAN, alive

State = Literal["waiting", "running", "finished", "collapsed", "stopped"]
ENDED: tuple[State, ...] = ("finished", "collapsed")
DEEPEST = 6
"""Folders below the one that is looked at."""
Point = tuple[int, float | None, float, float]
"""Round, value of the metric, bytes up, bytes down."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """A run from outside; values of the metric are as people know them."""

    name: str
    """Its folder, from the one that is looked at."""
    method: str
    seed: int | None
    state: State
    round: int
    rounds: int
    metric: dict[str, Any]
    curve: tuple[Point, ...] = ()
    seconds: float | None = None
    """Since it was begun, or gone on with; None if it does not run."""
    left: float | None = None
    """About how many more seconds it will take; None: not known."""
    why: str = ""
    """Why it collapsed."""

    @property
    def value(self) -> str:
        """The newest value of the metric, for people."""
        last = next((v for _, v, _, _ in reversed(self.curve) if v is not None), None)
        if last is None:
            return ""
        return f"{100 * last:.2f}%" if self.metric.get("percent") else f"{last:.4g}"

    @property
    def bytes(self) -> float:
        """Sent by all clients until the newest evaluation, up and down."""
        return self.curve[-1][2] + self.curve[-1][3] if self.curve else 0.0


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run; those of commands hold runs, or will."""
    of_command = (folder / "runs").is_dir() or (folder / PLAN).is_file()
    return not of_command and "method" in _config(folder)


def see(folder: Path, name: str = "") -> Seen:
    """How a run is now."""
    config = _config(folder)
    training = config.get("training", {})
    status, live = _json(folder / "status.json"), _json(folder / LIVE)
    running = bool(live) and alive(live)
    rounds = int(status.get("rounds") or live.get("rounds") or training.get("rounds") or 0)
    points = {p[0]: p for p in [*_written(folder), *_told(live)]}
    metric = live.get("metric") or status.get("metric") or _metric(config, points)
    sign = 1.0 if metric.get("higher", True) else -1.0
    curve = tuple(
        (t, None if score is None or score != score else sign * score, up, down)
        for t, score, up, down in (points[t] for t in sorted(points))
    )
    state: State = "stopped"
    if status.get("finished"):
        state = "finished"
    elif status.get("diverged"):
        state = "collapsed"
    elif running:
        state = "running"
    done = int(live.get("round", 0)) if running else max(points, default=0)
    seconds = left = None
    if running:
        seconds = max(0.0, time.time() - float(live["begun"]))
        since = done if live["since"] is None else int(live["since"])
        spent = max(0.0, float(live["at"]) - float(live["first"]))
        left = spent / (done - since) * (rounds - done) if done > since else None
    return Seen(
        name or folder.name,
        str(config.get("method", {}).get("name", "?")),
        training.get("seed"),
        state,
        done,
        rounds,
        metric,
        curve,
        seconds,
        left,
        str(status.get("diverged") or ""),
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _metric(config: dict[str, Any], points: dict[int, Point]) -> dict[str, Any]:
    """Of a folder that does not say it: what the config names, else the task's usual one, which the
    sign of the scores tells.
    """
    name = config.get("training", {}).get("metric")
    if name not in METRICS:
        negative = any(p[1] is not None and p[1] < 0 for p in points.values())
        name = "mse" if negative else "accuracy"
    return {**METRICS[name].told(), "percent": METRICS[name].percent}


def _told(live: dict[str, Any]) -> list[Point]:
    return [(int(t), score, float(up), float(down)) for t, score, up, down in live.get("curve", [])]


def _written(folder: Path) -> list[Point]:
    """Mean test scores of the tables; those that are being written are left for the next time."""
    files = [folder / "rounds.parquet"]
    if not files[0].is_file():
        files = sorted((folder / "parts").glob("*.rounds.parquet"))
    found: dict[int, Point] = {}
    for file in files:
        try:
            rows = pq.read_table(file, filters=[("split", "=", "test")]).to_pylist()
        except (pa.ArrowException, OSError, ValueError):
            continue
        for r in rows:  # the first view is the one that a method is judged by
            found.setdefault(int(r["round"]), (int(r["round"]), r["score"], r["up"], r["down"]))
    return list(found.values())


@dataclasses.dataclass(frozen=True)
class Overview:
    """All runs in a folder, and those that are planned."""

    runs: tuple[Seen, ...]
    busy: bool
    """Whether a process works on any of them, or on the command that they belong to."""
    reports: tuple[str, ...] = ()

    @property
    def over(self) -> bool:
        """Nothing is to come."""
        return bool(self.runs) and all(run.state in ENDED for run in self.runs)


class Watcher:
    """Looks at a folder again and again; what has ended is read once."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InvalidInput(f"the folder {str(root)!r} does not exist.")
        self.root = root
        self.ended: dict[str, tuple[int, Seen]] = {}

    def look(self) -> Overview:
        """How everything is now."""
        found: dict[str, Seen] = {}
        reports, planned, busy = [], [], False
        for folder in self._folders():
            name = folder.relative_to(self.root).as_posix()
            if (folder / "report.html").is_file():
                reports.append(name)
            told = _json(folder / PLAN)
            if told:
                busy |= "pid" in told and alive(told)
                planned += [(folder / str(run)).relative_to(self.root) for run in told["runs"]]
            if is_run(folder):
                found[name] = self._see(folder, name)
        for path in planned:
            name = path.as_posix()
            if name not in found:
                found[name] = Seen(name, "", None, "waiting", 0, 0, {})
        busy |= any(run.state == "running" for run in found.values())
        return Overview(tuple(found[name] for name in sorted(found)), busy, tuple(reports))

    def _folders(self) -> list[Path]:
        """Folders with a config.toml; links are not followed."""
        found = []
        for place, inner, files in os.walk(self.root, followlinks=False):
            depth = len(Path(place).relative_to(self.root).parts)
            hidden = ("checkpoints", "parts", "tuning")
            inner[:] = [] if depth >= DEEPEST else sorted(d for d in inner if d not in hidden)
            if "config.toml" in files:
                found.append(Path(place))
        return found

    def _see(self, folder: Path, name: str) -> Seen:
        try:
            stamp = (folder / "status.json").stat().st_mtime_ns
        except OSError:
            return see(folder, name)
        if self.ended.get(name, (None, None))[0] == stamp:
            return self.ended[name][1]
        found = see(folder, name)
        if found.state in ENDED:
            self.ended[name] = (stamp, found)
        return found
