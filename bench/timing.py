"""Contenders in turn, several times, and the machine they ran on."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.contenders import OURS, Contender
from bench.problems import Problem

LEAST = 0.15
"""Seconds that one repeat takes at least, by doing several rounds where they are short."""

FEW, HOPELESS = 4, 3.0
"""A number of threads that takes so many times longer than another on a few clients is out."""


class Absent(Exception):
    """A contender that cannot play."""


class Process:
    """A worker (contenders/worker.py) at the other end of two pipes."""

    def __init__(self, contender: Contender) -> None:
        if not contender.python.exists():
            raise Absent(f"not there; install: {contender.install}")
        root = Path(__file__).parents[1]
        command = [contender.python, "-m", "bench.contenders.worker", contender.module]
        self.process = subprocess.Popen(
            [*command, contender.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("COTERIE_BENCH_LOUD") else subprocess.DEVNULL,
            text=True,
            bufsize=1,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        self.contender = contender

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(question), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise Absent("its process ended (COTERIE_BENCH_LOUD=1 shows what it said)")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            hint = f"; install: {self.contender.install}" if "ModuleNotFound" in line else ""
            raise Absent(f"it said: {found['error']}{hint}")
        return found

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


@dataclasses.dataclass
class Entry:
    """A contender with a number of threads (0: as it likes) on one problem."""

    contender: Contender
    threads: int
    seconds: list[float] = dataclasses.field(default_factory=list)
    """Of a round, one per repeat."""
    cpu: list[float] = dataclasses.field(default_factory=list)
    """The same of all the process's cores together: other work on the machine hardly adds to it."""
    count: int = 1
    """Rounds in a repeat; 0: with this number of threads it was hopeless, and only tried on a few
    clients; its seconds are scaled to all.
    """
    process: Process | None = None

    @property
    def key(self) -> str:
        return self.contender.name + (f"-{self.threads}" if self.threads else "")

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def once(self, rounds: int) -> tuple[float, float]:
        """Seconds of a round, by the clock and of cores."""
        assert self.process
        found = self.process.ask(rounds=rounds, threads=self.threads)
        return found["seconds"] / rounds, found["cpu"] / rounds

    def repeat(self) -> None:
        seconds, cpu = self.once(self.count)
        self.seconds.append(seconds)
        self.cpu.append(cpu)


@dataclasses.dataclass
class Row:
    """All that was measured of one problem."""

    problem: Problem
    entries: dict[str, Entry]
    missing: dict[str, str]
    """Contenders that could not play, and why."""
    facts: dict[str, Any]
    load: float

    def best(self, name: str) -> Entry | None:
        """The entry of a contender with the number of threads that suits it best."""
        found = [e for e in self.entries.values() if e.contender.name == name and e.seconds]
        return min(found, key=lambda e: e.median) if found else None

    def ratio(self, entry: Entry, cpu: bool = False) -> tuple[float, float, float]:
        """Its time over ours: median, smallest and largest over the repeats."""
        ours = self.entries[OURS.name]
        pairs = (entry.cpu, ours.cpu) if cpu else (entry.seconds, ours.seconds)
        if not entry.count:  # tried apart from the repeats
            found = [statistics.median(pairs[0]) / statistics.median(pairs[1])]
        else:
            found = [theirs / mine for theirs, mine in zip(*pairs, strict=True)]
        return statistics.median(found), min(found), max(found)


class Players:
    """The processes of a run: kept from problem to problem, but for contenders that cannot change
    theirs.
    """

    def __init__(self) -> None:
        self.there: dict[str, Process] = {}

    def process(self, contender: Contender) -> Process:
        if contender.name not in self.there:
            self.there[contender.name] = Process(contender)
        return self.there[contender.name]

    def entries(self, contender: Contender, problem: Problem) -> list[Entry]:
        """A contender with the problem ready, once per number of threads."""
        process = self.process(contender)
        mine = [Entry(contender, k, process=process) for k in contender.threads or (0,)]
        if len(mine) > 1:
            self._probe(mine, problem)
        process.ask(prepare=problem.json())
        for entry in (e for e in mine if e.count):
            entry.once(1)
            entry.count = max(1, round(LEAST / entry.once(1)[0]))
        return mine

    def _probe(self, mine: list[Entry], problem: Problem) -> None:
        """On a few of the clients: numbers of threads that are hopeless are not asked again. On a
        busy machine threads that wait for each other can take a hundred times as long.
        """
        few = min(FEW, problem.trainers)
        small = dataclasses.replace(problem, clients=few, cohort=None)
        for entry in mine:
            assert entry.process
            entry.process.ask(prepare=small.json())
            entry.once(1)
            seconds, cpu = entry.once(1)
            scale = problem.trainers / few
            entry.seconds, entry.cpu = [seconds * scale], [cpu * scale]
        best = min(entry.median for entry in mine)
        for entry in mine:
            if entry.median > HOPELESS * best:
                entry.count = 0
            else:
                entry.seconds, entry.cpu = [], []

    def end(self, contender: Contender) -> None:
        if contender.name in self.there:
            self.there.pop(contender.name).close()

    def close(self) -> None:
        for process in self.there.values():
            process.close()


def measure(
    players: Players, problem: Problem, asked: list[Contender], repeats: int, facts: bool = True
) -> Row:
    """Every contender once, then all of them again, `repeats` times."""
    entries: list[Entry] = []
    missing: dict[str, str] = {}
    for contender in (c for c in asked if c.plays(problem)):
        try:
            entries += players.entries(contender, problem)
        except Absent as reason:
            missing[contender.name] = str(reason)
            players.end(contender)
    load = os.getloadavg()[0]
    for i in range(repeats):
        for entry in [e for e in entries if e.count][:: 1 if i % 2 == 0 else -1]:
            if entry.contender.name in missing:
                continue
            try:
                entry.repeat()
            except Absent as reason:
                missing[entry.contender.name] = str(reason)
                players.end(entry.contender)
    ours = next(e for e in entries if e.contender is OURS)
    known = ours.process.ask(facts=True) if facts and ours.process else {}
    for contender in asked:
        if contender.restarts:
            players.end(contender)
    entries = [e for e in entries if e.contender.name not in missing]
    return Row(problem, {e.key: e for e in entries}, missing, known, load)


def machine() -> list[str]:
    """Lines that say what this is."""
    text = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    models = {l.partition(":")[2].strip() for l in text.splitlines() if l.startswith("model name")}
    caches = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    sizes = [" ".join(l.split()) for l in caches.splitlines() if l.startswith(("L1d", "L2", "L3"))]
    meminfo = Path("/proc/meminfo")
    kilobytes = int(meminfo.read_text().split()[1]) if meminfo.exists() else 0
    return [
        f"{os.cpu_count()} cores of {', '.join(models) or platform.machine()}; {'; '.join(sizes)};"
        f" {kilobytes / 2**20:.0f} GB",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()},"
        f" {', '.join(versions())}",
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; load before: "
        + ", ".join(f"{load:.1f}" for load in os.getloadavg()),
    ]


def versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("coterie", "jax", "jaxlib", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return found


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
