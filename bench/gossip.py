"""Who finds kin by gossip: made-up sketches in hidden clusters, and MNIST.

python bench/gossip.py            # both tables, some minutes; COTERIE_DATA names MNIST's folder
python bench/gossip.py --made-up  # the first alone

The first table draws sketches of 64 numbers around the centres of clusters, and says how many
neighbours a peer finds, and which share of edges is within a cluster. The second trains dFedU
(logistic regression, 40 rounds of 20 steps of 0.03, η = 0.01, 9 neighbours, seed 0) on MNIST in 4
hidden clusters, and says the mean test accuracy. Bytes are what a peer sends to find its kin.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import coterie
from coterie.coupling.learnt import Evidence, get_rule

MADE_UP = ((40, 4, 6), (1_000, 10, 8), (10_000, 20, 8), (10_000, 20, 12))
BOTH = {"ties": "both"}
RULES: dict[str, dict[str, Any]] = {
    "ties of either, all to all": {},
    "ties of both, all to all": BOTH,
    **{f"gossip = {phases}": {**BOTH, "gossip": phases} for phases in (4, 6, 8)},
    "gossip = 8, `bits` = 1": {**BOTH, "gossip": 8, "bits": 1},
    "gossip = 8, `bits` = 1, `sketch` = 512": {**BOTH, "gossip": 8, "bits": 1, "sketch": 512},
}


def made_up() -> None:
    print("| N | clusters | phases | degree | within | bytes a peer sends | to all instead |")
    print("|---|---|---|---|---|---|---|")
    for n, count, phases in MADE_UP:
        rng = np.random.default_rng(0)
        of = rng.integers(0, count, n)
        sketches = rng.normal(size=(count, 64))[of] + rng.normal(size=(n, 64))
        sketches = sketches.astype(np.float32).astype(np.float64)
        rule = get_rule("kin", {**BOTH, "gossip": phases})
        found = rule.gossiped(Evidence(sketches, np.ones(n, bool)), 0, 5, 10**4)
        assert found is not None
        one, other = found.graph.weights.nonzero()
        print(
            f"| {n:,} | {count} | {phases} | {found.graph.degrees.mean():.1f} |"
            f" {np.mean(of[one] == of[other]):.3f} | {found.up.mean():,.0f} |"
            f" {256 * (n - 1):,} |",
            flush=True,
        )


def mnist() -> None:
    print("| graph | peers | test accuracy, % | bytes a peer sends |\n|---|---|---|---|")
    for clients in (40, 100):
        fed = coterie.load("mnist", clients=clients, hidden=4)
        for label, options in RULES.items():
            rule = coterie.learn_graph("kin", **options)
            method = coterie.DFedU(lr=0.03, local_steps=20, eta=0.01, implicit=True)
            run = coterie.simulate(method, fed, "mlr", graph=rule, rounds=40, eval_every=40)
            rows = run.ledger.rows()
            found = rows[(rows[:, 0] == rule.after) & (rows[:, 4] == 0)]
            score = 100 * np.nanmean(run.client_scores())
            sent = found[:, 2].sum() / clients
            print(f"| {label} | {clients} | {score:.2f} | {sent:,.0f} |", flush=True)


if __name__ == "__main__":
    made_up()
    if "--made-up" not in sys.argv[1:]:
        print()
        mnist()
