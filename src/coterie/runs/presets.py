"""Experiments that need no file: `coterie demo`, and the default comparison on somebody's own
table.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.data.base import get_source
from coterie.models.build import build_model
from coterie.runs.experiment import Experiment

INNER = {"local_rounds": 4, "inner_steps": 5}
"""pFedMe and lp-proj then take 20 gradient steps a round, as many as the others."""


def demo_experiment(rounds: int = 60, seeds: Iterable[int] = (0,)) -> Experiment:
    """20 clients with 2–3 digits each and few samples; every method takes 20 gradient steps per
    client and round.
    """
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
                {"name": "pfedme", **INNER, "lam": 5.0, "lr": 0.3, "personal_lr": 0.05},
                {"name": "fedu", "eta": 0.03},
                {"name": "lp-proj-1", **INNER, "lam": 1.0, "dsub": 50},
                {"name": "graph-proj", "eta": 0.03, "dsub": 50},
            ],
        }
    )


def own_data(
    path: Path, client: str | None, target: str | None, methods: list[str] | None = None
) -> dict[str, Any]:
    """The config that compares the default methods on a table with a client column, or on a folder
    with a table per client.

    The coupling of the graph methods follows the number of clients, so that mixing is stable: η ‖L‖
    μR = ½ on the complete graph, at most η = 0.03; FedU is there with a tenth of it too, and the
    answer picks among all by validation data.
    """
    if target is None:
        raise InvalidInput(
            f"{str(path)!r} is your own data: say which column to predict with --target."
        )
    if path.is_dir():
        if client is not None:
            raise InvalidInput(
                f"{str(path)!r} is a folder with a client per table, so --client {client} has no"
                " meaning; leave it out."
            )
        data = {"name": "folder", "path": str(path), "target": target}
    else:
        if client is None:
            raise InvalidInput(
                f"{str(path)!r} is your own table: say which column names the client with --client."
            )
        data = {"name": "table", "path": str(path), "client": client, "target": target}
    federation = get_source(data["name"], {k: v for k, v in data.items() if k != "name"}).load(0)
    eta = min(0.03, 0.5 / federation.clients)
    dsub = max(1, min(50, build_model("mlr", federation.shape).parameters() // 2))
    defaults: dict[str, dict[str, Any]] = {
        "local": {},
        "fedavg": {},
        "pfedme": {**INNER, "lam": 5.0, "lr": 0.3, "personal_lr": 0.05},
        "fedu": {"eta": eta},
        "fedu, weaker": {"eta": eta / 10},
        "lp-proj-2": {
            **INNER,
            "lam": 1.0,
            "lr": 0.3,
            "personal_lr": 0.05,
            "projection": "orthogonal",
            "dsub": dsub,
        },
        "graph-proj": {"eta": eta, "dsub": dsub},
    }
    return {
        "name": path.stem,
        "data": data,
        "model": "mlr",
        "training": {"rounds": 60, "eval_every": 10, "batch_size": 20},
        "methods": [{"name": m.split(",")[0], **defaults.get(m, {})} for m in methods or defaults],
    }
