"""What it brings to train clients in groups that fit the caches (engine/side_by_side.py), and to do
several runs at a time (runs/grid.py).

    python -m bench.groups

Random data, batches of 20, 20 gradient steps a round, all clients in every round. "all at once" is
one `vmap` over all clients. The best of three is taken for each, in turn, in one run on one
machine.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import jax

import coterie
from bench.contenders.ours import federation
from bench.problems import Problem
from coterie.runs.compare import compare_into
from coterie.runs.experiment import Experiment

PROBLEMS = {
    "mlr, 100 clients": ("mlr", 100),
    "mlr, 1000 clients": ("mlr", 1000),
    "mlp, 100 clients": ("mlp", 100),
}
METHODS = {
    "Local": coterie.Local(lr=0.03, local_steps=20),
    "pFedMe": coterie.PFedMe(lam=1.0, lr=1.0, personal_lr=0.03, local_rounds=4, inner_steps=5),
    "lp-proj-2": coterie.LpProj2(
        lam=1.0, lr=0.1, personal_lr=0.03, local_rounds=4, inner_steps=5, dsub=50
    ),
}


def seconds_a_round(simulator: coterie.Simulator) -> float:
    begun = time.perf_counter()
    done = simulator.advance(4)
    jax.block_until_ready(simulator.store.rows)  # type: ignore[attr-defined]
    return (time.perf_counter() - begun) / done


def groups() -> None:
    print(
        "| problem | method | clients in a group | s/round | all at once, s/round | ratio"
        " |\n|---|---|---|---|---|---|"
    )
    for problem, (model, clients) in PROBLEMS.items():
        data = federation(Problem("", model, clients, 784, samples=100))
        for name, method in METHODS.items():
            options = {"rounds": 1000, "eval_every": 1000, "batch_size": 20}
            ours = coterie.Simulator(method, data, model, coterie.Training(**options))
            whole = coterie.Simulator(
                method, data, model, coterie.Training(**options, clients_at_once=clients)
            )
            for simulator in (ours, whole):
                simulator.advance(1)  # compiles
            times = [(seconds_a_round(ours), seconds_a_round(whole)) for _ in range(3)]
            grouped, at_once = (min(t) for t in zip(*times, strict=True))
            print(
                f"| {problem} | {name} | {ours.spec.at_once} | {grouped:.3f} | {at_once:.3f} |"
                f" {at_once / grouped:.1f} |",
                flush=True,
            )


def several_runs() -> None:
    methods = [
        {"name": "fedu", "local_steps": 20},
        {"name": "lp-proj-2", "dsub": 21},
        {"name": "pfedme", "local_rounds": 4},
    ]
    training = {"rounds": 100, "eval_every": 50, "cohort": 10, "batch_size": 20}
    config = {
        "seeds": list(range(6)),
        "data": {"name": "synthetic", "clients": 100},
        "training": training,
        "methods": methods,
    }
    experiment = Experiment.from_config(config)
    print("\n| runs at a time | runs | seconds, programs compiled before |\n|---|---|---|")
    for jobs in (1, 1, os.cpu_count() or 2):  # the first compiles
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            found = compare_into(
                experiment, Path(folder), force=True, say=lambda sentence: None, jobs=jobs
            )
            print(
                f"| {jobs} | {sum(len(e.outcomes) for e in found.entries)} |"
                f" {time.perf_counter() - begun:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    from coterie.core.program_cache import use_users_cache

    use_users_cache()
    groups()
    several_runs()
