"""The participants of bench/network.py: their configs, and `coterie peer`, `coterie hub` or
`coterie client` with a note of when each round ends (`python bench/network_sites.py CONFIG TIMES`).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from network_lab import address

HERE = Path(__file__).resolve()
MANY = 100_000
"""Rounds of the plan: more than are ever run; the processes are stopped."""
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)]
"""Five peers: a ring and a chord."""


def take_part(config: Path, times: Path) -> None:
    """A peer, a client, or a hub with its gate, with a note of when each round ended."""
    from coterie.cli.peer import peer
    from coterie.deploy.hub import Hub
    from coterie.deploy.peer import Peer
    from coterie.deploy.zenoh import conduct, gate, join

    ends: list[float] = []

    def noted(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            out = function(*args, **kwargs)
            ends.append(time.monotonic())
            part = times.with_suffix(".part")  # whoever reads must never see half a file
            part.write_text(json.dumps(ends))
            part.replace(times)
            return out

        return wrapper

    Peer.finish, Hub.close = noted(Peer.finish), noted(Hub.close)  # type: ignore[method-assign]
    if config.stem == "hub":
        folder, where = config.with_name("hub-state"), config.read_text().split()
        opened = gate.Gate(config.parent / "keys", folder, where[0], int(where[1]), print)
        folder.mkdir()
        threading.Thread(target=opened.stay, daemon=True).start()
        while not (folder / "hub.json").is_file():
            time.sleep(0.05)
        conduct.run(config.with_name("plan.toml"), folder)
    elif "neighbours" in config.read_text():
        peer(config)
    else:
        join.join([config])


def write_sites(folder: Path, kind: str, hidden: int) -> tuple[Any, Any, list[Path]]:
    """(plan, federation, the participants' configs)."""
    import tomli_w

    import coterie
    from coterie.deploy.keys import authority as keys
    from coterie.deploy.plan import Plan
    from coterie.deploy.problem import Problem
    from coterie.deploy.site import save_own
    from coterie.engine.training import Training
    from coterie.models.base import get_model

    clients = 5 if kind == "peers" else 3
    fed = coterie.load("digits", clients=clients)
    method = coterie.get_method("dfedu" if kind == "peers" else "fedavg", {"local_steps": 5})
    names = tuple(f"site-{k}" for k in range(clients))
    training = Training(rounds=MANY, eval_every=MANY, batch_size=20)
    plan = Plan(
        "bench", names, Problem.of(fed), get_model("mlp", {"hidden": str(hidden)}), training, method
    )
    (folder / "plan.toml").write_text(plan.to_toml())
    keys.init(folder / "keys", "bench")
    everyone = [*names, "hub"] if kind == "star" else list(names)
    paths = []
    for k, name in enumerate(everyone):
        keys.issue(
            folder / "keys",
            name,
            ips=[address(k)],
            role="peer" if kind == "peers" else "hub" if name == "hub" else "client",
        )
        site: dict[str, Any] = {
            "plan": "plan.toml",
            "name": name,
            "folder": f"{name}-state",
            "keys": f"keys/nodes/{name}",
        }
        if name != "hub":
            save_own(fed, k, folder / f"{name}.npz")
            site["data"] = {"path": f"{name}.npz"}
        if kind == "peers":
            # The one with the larger number calls; the other only listens.
            near = sorted({a + b - k for a, b in EDGES if k in (a, b)})
            site |= {"number": k, "listen": f"tls/{address(k)}:7447"}
            site["neighbours"] = [
                {
                    "name": names[l],
                    "number": l,
                    "endpoint": f"tls/{address(l)}:7447" if l < k else "",
                    "weight": 1.0,
                }
                for l in near
            ]
        else:
            site["hub"] = f"{address(clients)}:7447"
        paths.append(folder / f"{name}.toml")
        paths[-1].write_text(f"{address(clients)} 7447" if name == "hub" else tomli_w.dumps(site))
    return plan, fed, paths


if __name__ == "__main__":
    take_part(Path(sys.argv[1]), Path(sys.argv[2]))
