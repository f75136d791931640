"""The experiment of `coterie demo`: six methods on digits, with equal gradient steps for all."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.experiment import Experiment


def demo_experiment(rounds: int = 60, seeds: Iterable[int] = (0,)) -> Experiment:
    """20 clients with 2–3 digits each and few samples; every method takes 20 gradient steps per client and round."""
    inner = {"local_rounds": 4, "inner_steps": 5}
    return Experiment.from_config(
        {
            "name": "digits, 20 clients with 2–3 labels",
            "data": {"name": "digits", "clients": 20, "validation": 0.1, "test": 0.5},
            "model": "mlr",
            "graph": {"kind": "similar"},
            "training": {"rounds": rounds, "eval_every": 5, "batch_size": 20},
            "seeds": list(seeds),
            "methods": [
                {"name": "local"},
                {"name": "fedavg"},
                {"name": "pfedme", **inner, "lam": 5.0, "lr": 0.3, "personal_lr": 0.05},
                {"name": "fedu", "eta": 0.03},
                {"name": "lp-proj-1", **inner, "lam": 1.0, "dsub": 50},
                {"name": "graph-proj", "eta": 0.03, "dsub": 50},
            ],
        }
    )
