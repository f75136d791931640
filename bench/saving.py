"""What it costs a hub to save a round, when it has many behind it.

python bench/saving.py                 # 100 clients, after 0 and 5,000 rounds

A hub of `coterie.deploy` (FedAvg, 610 parameters), without a wire: its bill is filled, then rounds
are billed and saved as they are at the end of a round. Seconds are the median of five; bytes are
those written in all files of the hub's folder, as the kernel counts them for this process.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np


def written() -> int:
    """Bytes that this process has handed to the kernel."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


def measured(clients: int, rounds: int, folder: Path) -> tuple[float, int]:
    from coterie.deploy.hub import Hub
    from coterie.deploy.plan import Plan
    from coterie.deploy.problem import Problem
    from coterie.engine.training import Training
    from coterie.methods.base import get_method
    from coterie.models.base import get_model

    problem = Problem("classification", (60,), tuple(map(str, range(10))))
    names = tuple(f"site-{k}" for k in range(clients))
    training = Training(rounds=10_000, batch_size=20)
    method = get_method("fedavg", {"local_steps": 2})
    hub = Hub(Plan("saving", names, problem, get_model("mlr"), training, method), folder)

    def bill(t: int, *, save: bool = True) -> None:
        rows = hub.ledger.copy()
        rows.add(t, np.arange(clients), 2440, 2440, 2)
        hub.kept = dataclasses.replace(hub.kept, ledger=rows)
        if save:
            hub._save(hub.kept)

    for t in range(rounds):
        bill(t, save=False)
    bill(rounds)
    seconds, sizes = [], []
    for t in range(rounds + 1, rounds + 6):
        began, before = time.perf_counter(), written()
        bill(t)
        seconds.append(time.perf_counter() - began)
        sizes.append(written() - before)
    return statistics.median(seconds), int(statistics.median(sizes))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, nargs="+", default=[0, 5000])
    given = parser.parse_args()
    print("| clients | rounds before | seconds per save | bytes written per save |")
    print("|---|---|---|---|")
    for rounds in given.rounds:
        with tempfile.TemporaryDirectory() as folder:
            seconds, size = measured(given.clients, rounds, Path(folder) / "hub")
        print(f"| {given.clients:,} | {rounds:,} | {seconds:.4f} | {size:,} |")


if __name__ == "__main__":
    main()
