"""Five peers over Zenoh, no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coterie import load
from coterie.core.files import make_folder, write_text
from coterie.coupling.graph import from_matrix
from coterie.deploy.demo.outcome import Row, compared, peer_bill
from coterie.deploy.demo.processes import DemoFailed, processes, round_of, wait_for
from coterie.deploy.demo.setting import (
    Say,
    make_keys,
    make_plan,
    neighbour,
    peer_file,
    ring_with_a_chord,
)
from coterie.deploy.ports import free_ports
from coterie.deploy.site import save_own

PEER_METHODS: dict[str, dict[str, Any]] = {"dfedu": {"local_steps": 10}}
KIN = {"name": "kin", "neighbours": 2, "ties": "both", "gossip": 4, "tell": 2}


def with_peers(folder: Path, rounds: int, say: Say, *, learn: bool = False) -> list[Row]:
    """Five peers over Zenoh, no server: dFedU, one peer killed in the middle. With `learn` they
    find their neighbours themselves, and know the address of the first only.
    """
    make_folder(folder)
    fed = load("digits", clients=5)
    names = [f"peer-{k}" for k in range(5)]
    make_keys(folder / "keys", names, "peer")
    ports = free_ports(5)
    ((method, options),) = PEER_METHODS.items()
    plan = make_plan(method, method, options, 5, fed, rounds)
    if learn:
        plan = plan.with_(clients=tuple(names), graph={"kind": "learn", "rule": KIN})
    write_text(folder / "plan.toml", plan.to_toml())
    weights = ring_with_a_chord()
    for k, name in enumerate(names):
        own = folder / name
        own.mkdir()
        save_own(fed, k, own / "data.npz")
        near = ([0] if k else []) if learn else [int(l) for l in np.flatnonzero(weights[k])]
        known = [1.0 if learn else float(weights[k, l]) for l in near]
        pairs = zip(near, known, strict=True)
        peer_file(own, k, ports[k], [neighbour(names[l], l, ports[l], w) for l, w in pairs])
    say(
        "Keys, the plan and five peers' folders are made; starting the peers (mutual TLS, each"
        f" knows only {'the first' if learn else 'its neighbours'}) …"
    )
    with processes(folder / "logs") as running:
        for name in names:
            running.start(name, "peer", "--config", str(folder / name / "peer.toml"))
        victim = names[3]
        status = folder / victim / "state" / "status.json"
        wait_for(
            "the middle of the run",
            lambda: round_of(status) >= rounds // 4,
            300,
            running.running[victim],
        )
        running.kill(victim)
        say(f"{victim} was killed (SIGKILL) in round {round_of(status)}; started again …")
        running.start(victim, "peer", "--config", str(folder / victim / "peer.toml"))
        for name in names:
            process = running.running[name]
            wait_for(f"the end of {name}", lambda process=process: process.poll() is not None, 300)  # type: ignore[misc]
            if process.returncode:
                raise DemoFailed(
                    f"{name} ended with code {process.returncode}: {running.last_words(name)}"
                )
        folders = [folder / name / "state" for name in names]
        graph = plan.rule or from_matrix(weights, "ring with a chord")
        return compared(plan, fed, graph, names, folders, peer_bill(folders))
