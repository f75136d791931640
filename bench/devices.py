"""When does it pay to spread clients over devices? One device against all, in one run, alternating.

    python bench/devices.py --write

FedAvg with logistic regression and a perceptron, by the number of clients in a round: seconds of a
round (median of 7 alternating repeats of blocks of rounds), and the operations of its local work as
`engine/prepare.py` counts them. The rule (`engine/mesh.py`, WORK) is read off this table: below it
several devices are no quicker. pFedMe, FedU and LeNet show what is gained where there is much work.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import coterie
from coterie.data.federation import Federation, Split
from coterie.engine import mesh

FEDAVG = {"local_steps": 20, "lr": 0.03}
PFEDME = {"lam": 15.0, "lr": 0.005, "personal_lr": 0.05, "local_rounds": 20, "inner_steps": 5}
ROWS: list[tuple[str, dict[str, Any], int, int, str, dict[str, Any]]] = [
    *(("fedavg", FEDAVG, n, 60, "mlr", {}) for n in (2, 4, 10, 20, 40, 100)),
    *(("fedavg", FEDAVG, n, 784, "mlp", {"hidden": "100"}) for n in (2, 4, 10, 20)),
    ("fedu", FEDAVG, 30, 561, "mlr", {}),
    ("pfedme", PFEDME, 100, 60, "mlr", {}),
    ("fedavg", FEDAVG, 10, 784, "lenet", {}),
]
REPEATS = 7


def federation(clients: int, features: int) -> Federation:
    rng = np.random.default_rng(0)

    def split(each: int) -> Split:
        x = rng.random((clients * each, features), dtype=np.float32)
        y = rng.integers(0, 10, clients * each).astype(np.int32)
        return Split(x, y, np.arange(clients + 1, dtype=np.int64) * each)

    return Federation("random", split(500), split(0), split(20), "classification", 10)


def seconds(simulators: list[Any]) -> list[float]:
    """Seconds of a round of each, taken in turns."""
    for s in simulators:
        s._block(2)
        s.t += 2
    begun = time.perf_counter()
    simulators[0]._block(3)
    count = max(1, min(50, int(0.5 / ((time.perf_counter() - begun) / 3))))
    taken: list[list[float]] = [[] for _ in simulators]
    for _ in range(REPEATS):
        for found, s in zip(taken, simulators, strict=True):
            begun = time.perf_counter()
            s._block(count)
            jax.block_until_ready(s.hub_state)
            found.append((time.perf_counter() - begun) / count)
    return [statistics.median(found) for found in taken]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="into bench/devices.result.md")
    arguments = parser.parse_args()
    there = jax.device_count()
    lines = [
        "# One device or all",
        "",
        f"`python bench/devices.py`: {there} devices ({jax.devices()[0].platform}),"
        f" load {os.getloadavg()[0]:.1f} at the beginning; the rule spreads at"
        f" {mesh.WORK / 1e6:.0f} million operations a round and more.",
        "",
        "| method | model | clients | operations, millions | one, ms | all, ms | ratio | rule |",
        "|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name, options, clients, features, model, more in ROWS:
        spec, fed = coterie.get_model(model, more), federation(clients, features)
        method, made = coterie.get_method(name, options), []
        for devices in (1, there, None):
            training = coterie.Training(rounds=500, eval_every=500, devices=devices)
            made.append(coterie.Simulator(method, fed, spec, training))
        chosen = made.pop().spec.devices
        one, all_ = seconds(made)
        operations = 6 * clients * 20 * (100 if name == "pfedme" else 20)
        operations *= made[0].model.parameters()
        lines.append(
            f"| {name} | {model} | {clients} | {operations / 1e6:,.0f} | {1e3 * one:.2f} |"
            f" {1e3 * all_:.2f} | {one / all_:.2f} | {'spread' if chosen > 1 else 'one'} |"
        )
        print(lines[-1], flush=True)
    if arguments.write:
        Path(__file__).with_suffix(".result.md").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
