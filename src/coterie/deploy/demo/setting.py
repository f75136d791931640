"""What demos and `coterie chaos` begin with: keys, a plan, and a folder for everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

from coterie.core.files import write_text
from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem

Say = Callable[[str], None]
EDGES = {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (3, 4): 1.0, (4, 0): 1.0, (1, 3): 0.5}
"""A ring of five with a chord."""


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


def client_file(own: Path, place: str, plan: str, state: str, file: str) -> Path:
    """A client's config in its own folder `own`, whose name is the client's; beside that folder are
    the keys and the plan. `place` is the gate's host:port.
    """
    site = {
        "plan": f"../{plan}",
        "name": own.name,
        "folder": state,
        "keys": f"../keys/nodes/{own.name}",
        "hub": place,
        "share_scores": True,
        "data": {"path": "data.npz"},
    }
    write_text(own / file, tomli_w.dumps(site))
    return own / file


def peer_file(own: Path, number: int, port: int, neighbours: Sequence[dict[str, Any]]) -> Path:
    """A peer's config, in the same way."""
    site = {
        "plan": "../plan.toml",
        "name": own.name,
        "number": number,
        "folder": "state",
        "keys": f"../keys/nodes/{own.name}",
        "listen": f"tls/127.0.0.1:{port}",
        "data": {"path": "data.npz"},
        "neighbours": list(neighbours),
    }
    write_text(own / "peer.toml", tomli_w.dumps(site))
    return own / "peer.toml"


def neighbour(name: str, number: int, port: int, weight: float) -> dict[str, Any]:
    """As a peer's config names one; `port` is where it is called."""
    endpoint = f"tls/127.0.0.1:{port}"
    return {"name": name, "number": number, "endpoint": endpoint, "weight": weight}


def ring_with_a_chord() -> NDArray[np.float64]:
    """The weights of `EDGES`."""
    weights = np.zeros((5, 5))
    for (k, l), w in EDGES.items():
        weights[k, l] = weights[l, k] = w
    return weights
