"""pFedMe's shared model w over compressed links: when it moves fast and comes down late, it swings;
what steadies it.

    python experiments/bytes/pfedme-swing/experiment.py        # → result.md

MNIST, logistic regression, pFedMe as in bytes/mnist-mlr but for what is told, seed 100, mean test
accuracy of all clients after 100 rounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import coterie
from coterie.channel import get_channel

FAST: dict[str, Any] = {
    "lam": 0.01,
    "lr": 10.0,
    "personal_lr": 0.1,
    "local_rounds": 4,
    "inner_steps": 5,
    "inner_start": "memory",
}
COPIES = {"memory": "copies"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "whole": ({}, None),
    "5%": ({}, {}),
    "1%": ({}, {"share": 0.01}),
    "5%, copies of updates": ({}, COPIES),
    "5% up, copies of updates; whole models down": ({}, {**COPIES, "down": False}),
    "whole, beta = 0.1": ({"beta": 0.1}, None),
    "1%, beta = 0.1": ({"beta": 0.1}, {"share": 0.01}),
    "5%, copies of updates, beta = 0.1": ({"beta": 0.1}, COPIES),
    "whole, a tenth of lr": ({"lr": 1.0}, None),
    "1%, a tenth of lr": ({"lr": 1.0}, {"share": 0.01}),
    "5%, copies of updates, a tenth of lr": ({"lr": 1.0}, COPIES),
}


def main() -> None:
    federation = coterie.load("mnist", downsample=0.2)
    print("| pFedMe | w | personal |\n|---|---|---|")
    for name, (more, channel) in CASES.items():
        method = coterie.PFedMe(**{**FAST, **more})
        through = "plain" if channel is None else get_channel("delta", {"share": 0.05, **channel})
        result = coterie.simulate(
            method,
            federation,
            "mlr",
            channel=through,
            rounds=100,
            eval_every=100,
            batch_size=20,
            seed=100,
        )
        personal, shared = (
            100 * float(np.nanmean(view)) for view in result.snapshots[-1].scores["test"].score
        )
        print(f"| {name} | {shared:.1f} | {personal:.2f} |", flush=True)


if __name__ == "__main__":
    main()
