"""Memory, start-up and seconds per round as the number of clients N grows while a round takes about
100 of them.

python bench/scale.py                        # N = 10³ … 10⁶, all methods: table and figure
python bench/scale.py --clients 1000000 --method fedavg

MLR on 60 numbers and 10 classes (610 parameters); random rows, 5 to 15 training rows and 2 test
rows a client, as arrays in files that are mapped; the clients' states in a file; S = 100, B = 5,
R = 20 local steps (pFedMe and lp-proj: R = 20, K = 5); pFedMe and lp-proj train the sampled clients
only; dFedU draws 50 edges of a ring for a round, and their 100 ends train. "10 nearest" is by the
clients' label shares. Every cell is a process of its own. "Start-up" is from the arrays in their
files to a simulator and its step-size conditions, graphs included (compiling is not). "Peak" is the
most memory that was ever resident (VmHWM), "after start-up" what was then; "ms a round" is the
median of 100 rounds after 10; N take turns, and of REPEATS processes the median counts. 1,000
clients are evaluated once. "CPU" is the time of the process on all cores, so waiting is left out.
"Checkpoint" is the time of one after 10 rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, CLASSES, COHORT, REPEATS, ROUNDS, WARM = 60, 10, 100, 3, 100, 10
SIZES = (1_000, 10_000, 100_000, 1_000_000)
METHODS = ("fedavg", "fedu, ring", "fedu, 10 nearest", "pfedme", "lp-proj-1", "dfedu, ring")
HERE = Path(__file__).parent


def make(clients: int, folder: Path) -> None:
    """Random rows, some at a time."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    counts = {"train": rng.integers(5, 16, clients), "test": np.full(clients, 2)}
    counts["validation"] = np.zeros(clients, np.int64)
    for name, each in counts.items():
        offsets = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
        np.save(folder / f"{name}.offsets.npy", offsets)
        rows = int(offsets[-1])
        if not rows:
            np.save(folder / f"{name}.x.npy", np.zeros((0, FEATURES), np.float32))
            np.save(folder / f"{name}.y.npy", np.zeros(0, np.int32))
            continue
        x = np.lib.format.open_memmap(folder / f"{name}.x.npy", "w+", np.float32, (rows, FEATURES))
        for begin in range(0, rows, 1 << 16):
            part = x[begin : begin + (1 << 16)]
            part[:] = rng.random(part.shape, np.float32)
        np.save(folder / f"{name}.y.npy", rng.integers(0, CLASSES, rows).astype(np.int32))
    facts = {"name": "random", "task": "classification", "classes": CLASSES, "facts": {}}
    (folder / "federation.json").write_text(json.dumps(facts))


def status(key: str) -> float:
    """MB of VmHWM or VmRSS."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1000


def cell(clients: int, name: str, data: Path, store: str) -> dict[str, float]:
    """One process: a method on a federation."""
    import coterie
    from coterie.data.mapped import load_mapped
    from coterie.runs.checkpoint import Checkpoints

    base = status("VmRSS")
    begun = time.perf_counter()
    federation = load_mapped(data)
    near = lambda: coterie.graph.build("nearest", federation, neighbours=10)
    ring = lambda: coterie.graph.ring(clients)
    steps: dict[str, Any] = {"local_steps": 20, "lr": 0.01}
    inner: dict[str, Any] = {"trains": "sampled"}
    method, graph = {
        "fedavg": lambda: (coterie.FedAvg(**steps), None),
        "fedu, ring": lambda: (coterie.FedU(**steps, neighbours="all"), ring()),
        "fedu, 10 nearest": lambda: (coterie.FedU(**steps, neighbours="all"), near()),
        "pfedme": lambda: (coterie.PFedMe(**inner, local_rounds=20, inner_steps=5), None),
        "lp-proj-1": lambda: (coterie.get_method("lp-proj-1", inner), None),
        "dfedu, ring": lambda: (coterie.DFedU(**steps, edges=COHORT // 2), ring()),
    }[name]()
    options = coterie.Training(
        rounds=10_000,
        cohort=None if name.startswith("dfedu") else COHORT,
        batch_size=5,
        store=store,
        eval_clients=1000,
        seed=1,
    )
    with tempfile.TemporaryDirectory() as folder:
        sim = coterie.Simulator(method, federation, "mlr", options, graph, folder=Path(folder))
        sim.conditions()
        ready = time.perf_counter() - begun
        started = status("VmRSS")
        for _ in range(WARM):
            sim.advance(1)
        spent, busy = [], time.process_time()
        for _ in range(ROUNDS):
            at = time.perf_counter()
            sim.advance(1)
            spent.append(time.perf_counter() - at)
        busy = time.process_time() - busy
        checkpoints = Checkpoints(Path(folder), "", {})
        checkpoints.write(sim)
        for _ in range(10):
            sim.advance(1)
        at = time.perf_counter()
        checkpoints.write(sim)
        saved = time.perf_counter() - at
        at = time.perf_counter()
        sim.evaluate()
        looked = time.perf_counter() - at
    return {
        "start": ready,
        "base": base,
        "started": started,
        "round": 1e3 * float(np.median(spent)),
        "busy": 1e3 * busy / ROUNDS,
        "peak": status("VmHWM"),
        "checkpoint": 1e3 * saved,
        "evaluation": looked,
    }


def in_a_process(clients: int, name: str, data: Path, store: str) -> dict[str, float]:
    words = ["--clients", str(clients), "--method", name, "--data", str(data), "--store", store]
    command = [sys.executable, __file__, "--cell", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "unknown")
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores ({cpu}), Python {platform.python_version()}, load {load:.1f}"


def table(found: dict[tuple[str, int], dict[str, float]], store: str) -> list[str]:
    lines = [
        f"Python bench/scale.py, store {store!r}, {machine()}.",
        "",
        "| method | N | start-up, s | ms a round | of N = 10³ | CPU ms a round | peak, MB |"
        " after start-up, MB | checkpoint, ms | evaluation, s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines[0] = lines[0].replace("Python bench", "`python bench", 1).replace(".py,", ".py`,", 1)
    for (name, n), c in found.items():
        first = found.get((name, SIZES[0]), c)["round"]
        lines.append(
            f"| {name} | {n:,} | {c['start']:.1f} | {c['round']:.2f} | {c['round'] / first:.2f} |"
            f" {c['busy']:.2f} | {c['peak']:.0f} | {c['started']:.0f} | {c['checkpoint']:.0f} |"
            f" {c['evaluation']:.1f} |"
        )
    return lines


def figure(found: dict[tuple[str, int], dict[str, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "scale"
    import matplotlib.pyplot as plt

    panels = {"peak": ("peak memory, MB", 2000), "round": ("ms a round", None)}
    panels["start"] = ("start-up, s", 30)
    made, axes = plt.subplots(1, len(panels), figsize=(12, 3.6))
    for axis, (key, (title, goal)) in zip(axes, panels.items(), strict=True):
        for name in dict.fromkeys(name for name, _ in found):
            mine = [(n, c[key]) for (m, n), c in found.items() if m == name]
            axis.plot(*zip(*mine, strict=True), marker="o", label=name)
        if goal is not None:
            axis.axhline(goal, color="grey", linestyle=":", label="goal")
        axis.set(xscale="log", xlabel="clients N", title=title, ylim=(0, None))
    axes[0].legend(fontsize=7)
    made.tight_layout()
    made.savefig(path, metadata={"Date": None})


def medians(runs: dict[tuple[str, int], list[dict[str, float]]]) -> dict[Any, dict[str, float]]:
    middle = lambda got: {k: float(np.median([g[k] for g in got])) for k in got[0]}
    return {key: middle(got) for key, got in runs.items()}


def write(runs: dict[tuple[str, int], list[dict[str, float]]], store: str) -> None:
    """Table and figure of what there is so far: a run that is stopped leaves what it has."""
    found = medians(runs)
    text = "\n".join(table(found, store)) + "\n"
    (HERE / "scale.result.md").write_text(text, encoding="utf-8")
    figure(found, HERE / "scale.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int)
    parser.add_argument("--method", choices=METHODS)
    parser.add_argument("--store", default="file", choices=("file", "host"))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cell", action="store_true")
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(cell(given.clients, given.method, given.data, given.store)))
        return
    sizes = SIZES if given.clients is None else (given.clients,)
    methods = METHODS if given.method is None else (given.method,)
    root = Path(tempfile.mkdtemp(prefix="scale-"))
    runs: dict[tuple[str, int], list[dict[str, float]]] = {}
    try:
        for n in sizes:
            make(n, root / str(n))
        for _ in range(given.repeats):
            for name in methods:
                for n in sizes:
                    got = in_a_process(n, name, root / str(n), given.store)
                    print(name, n, {k: round(v, 2) for k, v in got.items()}, flush=True)
                    runs.setdefault((name, n), []).append(got)
                    if given.clients is None and given.method is None:
                        write(runs, given.store)
    finally:
        shutil.rmtree(root)
    print("\n".join(table(medians(runs), given.store)))


if __name__ == "__main__":
    main()
