"""Seconds per round and memory as the number of clients N grows while the cohort stays at 10, per
kind of store.

python bench/scale.py
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np

import coterie
from coterie.data.federation import Federation, Split

COHORT, EACH, FEATURES, CLASSES = 10, 4, 60, 10


def federation(clients: int) -> Federation:
    rng = np.random.default_rng(0)

    def split(each: int) -> Split:
        x = rng.random((clients * each, FEATURES), dtype=np.float32)
        y = rng.integers(0, CLASSES, clients * each).astype(np.int32)
        return Split(x, y, np.arange(clients + 1, dtype=np.int64) * each)

    return Federation("random", split(EACH), split(0), split(0), "classification", CLASSES)


def main() -> None:
    print(
        "| store | N | ms/round | state of all clients, MB | peak memory of the process so far, MB"
        " |\n|---|---|---|---|---|"
    )
    for store in ("file", "host", "device"):
        for clients in (1_000, 10_000, 100_000):
            with tempfile.TemporaryDirectory() as folder:
                options = coterie.Training(
                    rounds=200, eval_every=200, cohort=COHORT, batch_size=4, store=store
                )
                graph = coterie.graph.ring(clients)
                simulator = coterie.Simulator(
                    coterie.FedU(local_steps=5),
                    federation(clients),
                    "mlr",
                    options,
                    graph,
                    folder=Path(folder),
                )
                for _ in range(3):
                    simulator.advance(1)
                begun, before = time.perf_counter(), simulator.t
                while simulator.t - before < 100:
                    simulator.advance(100 - (simulator.t - before))
                spent = (time.perf_counter() - begun) / (simulator.t - before)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
                state = clients * simulator.store.format.bytes / 1e6
                print(
                    f"| {store} | {clients:,} | {spent * 1e3:.2f} | {state:.0f} | {peak:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
