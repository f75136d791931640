"""Models of 11 and 21 million parameters: 100 clients (and 1,000) whose states lie in a file, 4 of
them in a round.

python bench/big.py                          # all rows, into bench/big.result.md
python bench/big.py --depth 18 --method ditto

ResNet-18 and ResNet-34 (`resnet`, depth 18 and 34, group normalisation) on random pictures of
16×16×3, 10 classes; 8 training rows and 2 test rows a client; a cohort of 4, batches of 4, 2
gradient steps a round (lp-proj: 2 mini-batches with 1 inner step each; Ditto: 2 steps on each of
its models). FedU has the complete graph, and the delta channel with its defaults (1% of the
numbers, 8 bits each, both ways). Every row is a process of its own. N states would take "all
states"; what a round works on are the 4 of its cohort, "cohort". "P" is what the projection keeps.
"Peak" is the most memory that was ever resident (VmHWM), less what there was when JAX had started
("base"); "× cohort" is their ratio, P apart. "s a round" is the median of ROUNDS rounds after one
that compiles; "CPU" is the time of the process on all cores. Bytes are of one client in one round,
up and down. "Checkpoint" is the time of one after ROUNDS rounds, "evaluation" that of 10 clients
with compiling, "all" the peak once those are done, too, less the base.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.scale import machine, status

COHORT, ROUNDS, ROWS, TESTED, SEEN = 4, 5, 8, 2, 10
DEPTHS = (18, 34)
LP: dict[str, Any] = {"trains": "sampled", "local_rounds": 2, "inner_steps": 1}
STEPS: dict[str, Any] = {"local_steps": 2, "lr": 0.01}
METHODS: dict[str, tuple[str, dict[str, Any], str]] = {
    "lp-proj-2, layer": ("lp-proj-2", LP | {"projection": "layer", "dsub": 100}, "plain"),
    "lp-proj-2, block": (
        "lp-proj-2",
        LP | {"projection": "block", "dsub": 1000, "blocks": 1000},
        "plain",
    ),
    "lp-proj-2, srht": ("lp-proj-2", LP | {"projection": "srht", "dsub": 1000}, "plain"),
    "ditto": ("ditto", STEPS, "plain"),
    "fedu, delta": ("fedu", STEPS, "delta"),
}
HERE = Path(__file__).parent


def offered() -> list[str]:
    """The rows that this coterie has."""
    from coterie.coupling.projection import KINDS

    return [name for name in METHODS if not name.endswith("srht") or "srht" in KINDS]


def federation(clients: int = 100) -> Any:
    from coterie.data import from_arrays

    rng = np.random.default_rng(0)
    many = ROWS + TESTED
    x = rng.random((clients * many, 16, 16, 3), np.float32)
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    owner = np.repeat(np.arange(clients), many)
    return from_arrays("random", x, y, owner, test=TESTED / many, validation=0.0, classes=10)


def rounds(
    depth: int,
    way: tuple[str, dict[str, Any], str],
    folder: str,
    clients: int = 100,
    cohort: int = COHORT,
    devices: int | None = None,
) -> tuple[Any, dict[str, Any]]:
    """A simulator of a method (its name, options and channel) with a model, after its rounds, and
    what they took in this process.
    """
    import jax

    import coterie

    jax.numpy.zeros(1).block_until_ready()
    base = status("VmRSS")
    method, options, channel = way
    fed = federation(clients)
    training = coterie.Training(
        rounds=1000, cohort=cohort, batch_size=4, store="file", eval_clients=SEEN, devices=devices
    )
    begun = time.perf_counter()
    sim = coterie.Simulator(
        coterie.get_method(method, options),
        fed,
        coterie.get_model("resnet", {"depth": depth}),
        training,
        folder=Path(folder),
        channel=channel,
    )
    drawn = getattr(sim.method, "drawn", None)
    found: dict[str, Any] = {
        "base": base,
        "parameters": sim.template.size,
        "state": sim.store.format.bytes / 1e6,
        "p": 0.0 if drawn is None else 4e-6 * drawn.numbers(),
        "start": time.perf_counter() - begun,
        "devices": sim.spec.devices,
    }
    begun = time.perf_counter()
    sim.advance(1)
    found["first"] = time.perf_counter() - begun
    spent, busy = [], time.process_time()
    for _ in range(ROUNDS):
        at = time.perf_counter()
        sim.advance(1)
        spent.append(time.perf_counter() - at)
    found |= {
        "round": float(np.median(spent)),
        "busy": (time.process_time() - busy) / ROUNDS,
        "peak": status("VmHWM"),
    }
    totals = sim.ledger.totals()
    for direction in ("up", "down"):
        found[direction] = totals[direction] / ((ROUNDS + 1) * cohort)
    return sim, found


def cell(depth: int, name: str, clients: int, devices: int | None) -> dict[str, Any]:
    """One process: a method with a model."""
    from coterie.runs.checkpoint import Checkpoints

    with tempfile.TemporaryDirectory() as folder:
        sim, found = rounds(depth, METHODS[name], folder, clients, devices=devices)
        at = time.perf_counter()
        Checkpoints(Path(folder), "", {}).write(sim)
        found["checkpoint"] = time.perf_counter() - at
        at = time.perf_counter()
        sim.evaluate()
        found["evaluation"] = time.perf_counter() - at
        found["all"] = status("VmHWM")
    return found


def in_a_process(depth: int, name: str, clients: int, devices: int | None) -> dict[str, Any]:
    words = ["--depth", str(depth), "--method", name, "--clients", str(clients)]
    words += ["--devices", str(devices)] if devices else []
    done = subprocess.run(
        [sys.executable, "-m", "bench.big", "--cell", *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=HERE.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(found: dict[tuple[int, str, int], dict[str, Any]]) -> list[str]:
    lines = [
        f"`python bench/big.py`, {machine()}.",
        "",
        "| ResNet | method | N | parameters, M | all states, MB | cohort, MB | P, MB |"
        " peak − base, MB | × cohort | s a round | CPU s a round | up, kB | down, kB |"
        " first round, s | checkpoint, s | evaluation, s | all, MB |",
        "|" + "---|" * 17,
    ]
    for (depth, name, clients), c in found.items():
        cohort, above = COHORT * c["state"], c["peak"] - c["base"]
        lines.append(
            f"| {depth} | {name} | {clients:,} | {c['parameters'] / 1e6:.1f} |"
            f" {clients * c['state']:,.0f} | {cohort:.0f} | {c['p']:.0f} | {above:.0f} |"
            f" {(above - c['p']) / cohort if cohort else float('nan'):.1f} | {c['round']:.1f} |"
            f" {c['busy']:.1f} | {c['up'] / 1e3:,.1f} | {c['down'] / 1e3:,.1f} | {c['first']:.0f} |"
            f" {c['checkpoint']:.1f} | {c['evaluation']:.1f} | {c['all'] - c['base']:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--depth", type=int, choices=DEPTHS)
    parser.add_argument("--method", choices=METHODS)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--devices", type=int)
    parser.add_argument("--cell", action="store_true")
    given = parser.parse_args()
    if given.cell:
        print(json.dumps(cell(given.depth, given.method, given.clients, given.devices)))
        return
    whole = given.depth is None and given.method is None and given.devices is None
    depths = DEPTHS if given.depth is None else (given.depth,)
    names = offered() if given.method is None else (given.method,)
    cells = [(depth, name, given.clients) for depth in depths for name in names]
    if whole:
        cells.insert(len(names), (DEPTHS[0], "ditto", 1000))
    found: dict[tuple[int, str, int], dict[str, Any]] = {}
    for key in cells:
        got = found[key] = in_a_process(*key, given.devices)
        print(*key, {k: round(v, 2) for k, v in got.items()}, flush=True)
        if whole:  # a run that is stopped leaves what it has
            text = "\n".join(table(found)) + "\n"
            (HERE / "big.result.md").write_text(text, encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
