"""What both demos begin with: keys and a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem

Say = Callable[[str], None]


def make_keys(folder: Path, names: Sequence[str], role: str) -> None:
    """A CA and an identity for everybody, valid on this machine only."""
    from coterie.deploy.keys import authority as keys

    keys.init(folder, "demo")
    for name in names:
        keys.issue(folder, name, ["localhost"], ["127.0.0.1"], role=role)


def make_plan(
    name: str,
    method: str,
    options: dict[str, Any],
    clients: list[str] | int,
    fed: Federation,
    rounds: int,
) -> Plan:
    return Plan.from_config(
        {
            "name": name,
            "clients": clients,
            "problem": Problem.of(fed).to_config(),
            "model": "mlr",
            "training": {"rounds": rounds, "batch_size": 10, "eval_every": rounds},
            "method": {"name": method, **options},
            "rules": {"on_missing": "wait", "patience": 20.0, "give_up": 600.0},
        }
    )
