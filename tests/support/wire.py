"""What goes over the wire in a few short runs, message by message.

wire.json holds what went over it before the deployment was rebuilt on the engine's turns. `python
-m tests.support.wire FILE` records it anew (with XLA_FLAGS as tests/conftest.py sets them); do that
only when a format is meant to change.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.federation import Federation, pack
from coterie.deploy import messages
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem
from tests.support.pinned import machine

CLIENTS, ROUNDS, LOST = 3, 4, (1, 2)
"""In round 1 the answer of client 2 is lost."""
DELTA: dict[str, Any] = {"name": "delta", "share": 0.3}
DOWN = DELTA | {"memory": "copies", "down": True}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "star, plain": ({"name": "fedavg", "local_steps": 2}, {"name": "plain"}),
    "star, errors": ({"name": "fedavg", "local_steps": 2}, {"name": "qsgd", "levels": 7}),
    "star, copies, down": ({"name": "fedavg", "local_steps": 2}, DOWN),
    "graph, plain": ({"name": "fedu", "local_steps": 2}, {"name": "plain"}),
    "graph, copies, down": ({"name": "fedu", "local_steps": 2}, DOWN),
    "peers, plain": ({"name": "dfedu", "local_steps": 2}, {"name": "plain"}),
    "peers, copies": ({"name": "dfedu", "local_steps": 2}, DELTA),
}
Message = tuple[str, str, list[str]]
"""From whom to whom, the envelope (of peers the round), the frames in hexadecimal digits."""


def federation() -> Federation:
    """Clients of one size, so that their programs are compiled once."""
    rng = np.random.default_rng(5)

    def part(count: int) -> Any:
        xs = [rng.standard_normal((count, 4)) + 0.3 * k for k in range(CLIENTS)]
        ys = [np.argmax(x[:, :3] * (k + 1), axis=1).astype(np.int32) for k, x in enumerate(xs)]
        return pack([(x.astype(np.float32), y) for x, y in zip(xs, ys, strict=True)])

    return Federation("three", part(12), part(0), part(4), classes=3)


def plan_of(case: str) -> Plan:
    method, channel = CASES[case]
    peers = case.startswith("peers")
    return Plan.from_config(
        {
            "name": "wire",
            "clients": CLIENTS if peers else [f"site-{k}" for k in range(CLIENTS)],
            "problem": Problem.of(federation()).to_config(),
            "model": "mlr",
            "training": {"rounds": ROUNDS, "batch_size": 5, "eval_every": 100},
            "method": method,
            "channel": channel,
        }
    )


def recorded(case: str, folder: Path) -> list[Message]:
    plan = plan_of(case)
    return between_peers(plan, folder) if plan.peers else with_hub(plan, folder)


def with_hub(plan: Plan, folder: Path) -> list[Message]:
    fed = federation()
    hub = Hub(plan, folder / "hub", say=lambda sentence: None)
    clients = [Client(plan, k, fed.subset(np.array([k])), folder / f"{k}") for k in range(CLIENTS)]
    found: list[Message] = []

    def say(way: str, message: Any) -> None:
        # The fingerprint changes with every option that a method gets.
        text = messages.envelope(dataclasses.replace(message, plan=""))
        found.append((way, text, [f.hex() for f in message.frames]))

    def ask(requests: dict[int, messages.Request]) -> None:
        for k, request in requests.items():
            say(f"hub to {k}", request)
            reply = clients[k].answer(request)
            say(f"{k} to hub", reply)
            if (hub.t, k) != LOST:
                hub.take(k, reply)

    while not hub.done:
        ask(hub.requests())
        if hub.missing and hub.t != LOST[0]:  # who lost track gets a whole copy
            ask(hub.requests())
        hub.close()
    ask(hub.farewells())
    hub.end()
    return found


def between_peers(plan: Plan, folder: Path) -> list[Message]:
    fed = federation()
    peers = [
        Peer(
            plan,
            f"p{k}",
            k,
            [Neighbour(f"p{l}", l, 1.0) for l in range(CLIENTS) if l != k],
            fed.subset(np.array([k])),
            folder / f"{k}",
            say=lambda sentence: None,
        )
        for k in range(CLIENTS)
    ]
    found: list[Message] = []
    for _ in range(ROUNDS):
        for peer in peers:
            t, wire = peer.begin()
            found.append((peer.name, str(t), [wire.hex()]))
            for other in peers:
                if other is not peer:
                    other.hear(peer.name, t, wire)
        for peer in peers:
            peer.finish()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = {case: recorded(case, Path(folder) / case) for case in CASES}
    lines = [
        json.dumps(case) + ": [\n" + ",\n".join(map(json.dumps, run)) + "\n]"
        for case, run in runs.items()
    ]
    begins = '{\n"platform": ' + json.dumps(machine())
    Path(sys.argv[1]).write_text(",\n".join([begins, *lines]) + "\n}\n")


if __name__ == "__main__":
    main()
