"""A learnt graph and many clients: what a round costs, and what learning the graph costs.

python bench/learnt.py

FedU over a graph that is learnt ("kin", 9 neighbours; neighbours that were not sampled count with
their last models), 100 clients a round, logistic regression on made-up rows (20 numbers, 10 rows a
client, 3 labels), states in memory beside the device. A round is timed in the second half of 40,
after the graph was learnt; the medians of 5 runs, N alternating. "Learning" is one call of the rule
with sketches of 64 numbers of all N clients.
"""

from __future__ import annotations

import time

import numpy as np

import coterie
from coterie.coupling.learnt import Evidence

SIZES, REPEATS, ROUNDS, COHORT = (300, 1_000, 3_000, 10_000), 5, 40, 100
RULE = coterie.learn_graph("kin", after=5)


def federation(n: int) -> coterie.Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10 * n, 20)).astype(np.float32)
    y = np.argmax(x[:, :3], axis=1).astype(np.int32)
    owner = np.repeat(np.arange(n), 10)
    return coterie.from_arrays("many", x, y, owner, classes=3, test=0.2)


def round_seconds(fed: coterie.Federation) -> float:
    options = {"rounds": ROUNDS, "cohort": COHORT, "batch_size": 5, "store": "host"}
    method = coterie.FedU(local_steps=5, neighbours="all")
    simulator = coterie.Simulator(method, fed, "mlr", coterie.Training(**options), RULE)
    times = []
    while simulator.t < ROUNDS:
        begun = time.perf_counter()
        done = simulator.advance(1)
        if simulator.t > ROUNDS // 2:
            times.append((time.perf_counter() - begun) / done)
    return float(np.median(times))


def learning_seconds(n: int) -> float:
    sketches = np.random.default_rng(1).normal(size=(n, 64))
    begun = time.perf_counter()
    RULE.graph(Evidence(sketches, np.ones(n, bool)))
    return time.perf_counter() - begun


if __name__ == "__main__":
    made = {n: federation(n) for n in SIZES}
    rounds: dict[int, list[float]] = {n: [] for n in SIZES}
    learning: dict[int, list[float]] = {n: [] for n in SIZES}
    for _ in range(REPEATS):
        for n, fed in made.items():
            rounds[n].append(round_seconds(fed))
            learning[n].append(learning_seconds(n))
    print("| clients | ms a round | times that of the fewest | learning the graph, s |")
    print("|---|---|---|---|")
    first = float(np.median(rounds[SIZES[0]]))
    for n in SIZES:
        found = float(np.median(rounds[n]))
        print(
            f"| {n:,} | {1000 * found:.1f} | {found / first:.2f} |"
            f" {float(np.median(learning[n])):.2f} |"
        )
