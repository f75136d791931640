"""Five peers on a ring with a chord, for tests: in this process, and as processes of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tomli_w
from safetensors.numpy import load_file

import coterie
from coterie.channel import get_channel
from coterie.coupling import graph as graphs
from coterie.data.federation import Federation, pack
from coterie.deploy.keys import authority as keys
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.ports import free_ports
from coterie.deploy.problem import Problem
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from coterie.engine.training import Training
from coterie.methods.base import get_method
from coterie.methods.graph import GraphMethod
from coterie.models.base import get_model

N = 5
EDGES = {(0, 1): 1.0, (1, 2): 0.5, (2, 3): 1.0, (3, 4): 2.0, (0, 4): 1.0, (1, 3): 0.7}
NAMES = tuple(f"p{k}" for k in range(N))
OPTIONS: dict[str, dict[str, Any]] = {"dfedu": {}, "graph-proj": {"dsub": 8, "hub": False}}


@functools.cache
def the_digits() -> Federation:
    return coterie.load("digits", clients=N)


@functools.cache
def little() -> Federation:
    """Clients of one size, so that their programs are the same and are compiled once."""
    rng = np.random.default_rng(3)

    def part(count: int) -> Any:
        xs = [rng.standard_normal((count, 4)) + 0.3 * k for k in range(N)]
        return pack(
            [
                (x.astype(np.float32), np.argmax(x[:, :3] * (k + 1), axis=1).astype(np.int32))
                for k, x in enumerate(xs)
            ]
        )

    return Federation("little", part(12), part(2), part(4), classes=3)


def make_plan(
    digits: Federation,
    method: str = "dfedu",
    channel: str = "plain",
    rules: dict[str, Any] | None = None,
    model: Any = "mlr",
    **training: Any,
) -> Plan:
    turns = {"pick": "cyclic", "values": "int4"} if channel == "turns" else {}
    made = (
        get_channel("delta", {"share": 0.2, **turns})
        if channel in ("delta", "turns")
        else get_channel(channel)
    )
    given = {"rounds": 4, "eval_every": 2, "batch_size": 5, **training}
    options = Training.from_config(given)
    rule = Rules.from_config(rules or {})
    spec = get_model(model) if isinstance(model, str) else get_model(*model)
    way = get_method(method, OPTIONS.get(method, {}))
    graph = isinstance(way, GraphMethod)
    peers = isinstance(way, GraphMethod) and not way.hub_between
    edges = (
        {}
        if peers or not graph
        else {"edges": [[NAMES[k], NAMES[l], w] for (k, l), w in EDGES.items()]}
    )
    return Plan(
        "ring", N if peers else NAMES, Problem.of(digits), spec, options, way, made, edges, rule
    )


def neighbours(k: int) -> list[Neighbour]:
    others = {(set(edge) - {k}).pop(): w for edge, w in EDGES.items() if k in edge}
    return [Neighbour(NAMES[l], l, w) for l, w in sorted(others.items())]


def open_peer(
    plan: Plan, digits: Federation, k: int, folder: Path, say: Callable[[str], None] = print
) -> Peer:
    return Peer(
        plan, NAMES[k], k, neighbours(k), digits.subset(np.array([k])), folder / NAMES[k], say=say
    )


def everyone(plan: Plan, digits: Federation, folder: Path) -> dict[str, Peer]:
    return {NAMES[k]: open_peer(plan, digits, k, folder) for k in range(N)}


def deliver(peers: dict[str, Peer], senders: Iterable[str]) -> None:
    for name in senders:
        t, _ = peers[name].begin()
        for other in peers[name].recipients:
            if other in peers:
                peers[other].hear(name, t, peers[name].letter(other, t))


def one_round(peers: dict[str, Peer]) -> None:
    deliver(peers, peers)
    for peer in peers.values():
        peer.finish()


def simulated(plan: Plan, digits: Federation) -> Simulator:
    weights = np.zeros((N, N))
    for (k, l), w in EDGES.items():
        weights[k, l] = weights[l, k] = w
    simulator = Simulator(
        plan.method,
        digits,
        plan.model,
        plan.training,
        plan.rule or graphs.from_matrix(weights, "edges"),
        channel=plan.channel,
    )
    list(drive(simulator))
    return simulator


def flats(peer: Peer) -> dict[str, Any]:
    return {view: np.asarray(model.flat()) for view, model in peer.models().items()}


def same(a: Peer, b: Peer) -> bool:
    return all(np.array_equal(x, flats(b)[view]) for view, x in flats(a).items())


GO_ON = {"on_missing": "go-on", "patience": 3.0, "staleness": 2}


def undisturbed(plan: Plan, folder: Path) -> dict[str, Peer]:
    peers = everyone(plan, little(), folder / "undisturbed")
    for _ in range(plan.training.rounds):
        one_round(peers)
    return peers


# -- processes -------------------------------------------------------------------------------------

RUNNER = """
import sys
import importlib
cli = importlib.import_module("coterie.cli.main")
from coterie.cli.peer import peer
cli.app.command("peer-under-test")(peer)
sys.argv = ["coterie", "peer-under-test", *sys.argv[1:]]
cli.start()
"""


@dataclasses.dataclass
class Town:
    """Machines: a folder each, with a config, keys and data of its own."""

    folder: Path
    plan: Plan
    names: tuple[str, ...] = NAMES
    running: dict[str, subprocess.Popen[bytes]] = dataclasses.field(default_factory=dict)
    started: float = dataclasses.field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.ports = dict(zip(self.names, free_ports(len(self.names)), strict=True))
        self.keys = self.folder / "keys"
        keys.init(self.keys, "town")
        self.folder.joinpath("plan.toml").write_text(self.plan.to_toml())

    def endpoint(self, name: str) -> str:
        return f"tls/127.0.0.1:{self.ports[name]}"

    def state(self, name: str) -> Path:
        return self.folder / name / "state"

    def config(self, name: str) -> Path:
        return self.folder / name / "peer.toml"

    def settle(
        self, name: str, config: dict[str, Any], *, role: str = "peer", identity: Path | None = None
    ) -> None:
        """Write a machine's folder."""
        (self.folder / name).mkdir(exist_ok=True)
        place = identity or keys.issue(self.keys, name, role=role)
        common = {"plan": "../plan.toml", "name": name, "folder": "state", "keys": str(place)}
        self.config(name).write_text(tomli_w.dumps(common | config))

    def log(self, name: str) -> str:
        path = self.folder / name / "log"
        return path.read_text() if path.exists() else ""

    def start(self, *names: str, config: Path | None = None) -> None:
        for name in names:
            # stderr to a file of its own: a pipe that nobody reads would stop the process
            with (self.folder / name / "log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-c", RUNNER, "--config", str(config or self.config(name))],
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "XDG_CACHE_HOME": str(CACHE), "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,
                )

    def signal(self, name: str, number: int) -> None:
        os.killpg(self.running[name].pid, number)

    def kill(self, *names: str) -> None:
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                self.signal(name, signal.SIGKILL)
            self.running[name].wait(10)

    def wait(self, *names: str, seconds: float = 480) -> dict[str, int]:
        """Exit codes; fails, with the logs, when somebody takes longer."""
        end = time.monotonic() + seconds
        codes = {}
        for name in names or tuple(self.running):
            try:
                codes[name] = self.running[name].wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(
                    f"{name} still runs after {seconds} s:\n{self.logs()}"
                ) from None
        return codes

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 240) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{what} did not happen in {seconds} s:\n{self.logs()}"
            time.sleep(0.02)

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-3000:]}" for name in self.names)

    def status(self, name: str) -> dict[str, Any]:
        path = self.state(name) / "status.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"round": -1}
        return found

    def model(self, name: str, view: str = "personal") -> Any:
        found = load_file(self.state(name) / "models" / f"{view}.safetensors")
        return found

    def ledger(self, *names: str) -> Any:
        tables = [
            pq.read_table(self.state(name) / "ledger.parquet") for name in names or self.names
        ]
        return np.concatenate(
            [np.stack([c.to_numpy() for c in table.columns], 1) for table in tables]
        )


CACHE = Path(tempfile.gettempdir()) / f"coterie-tests-{getpass.getuser()}-peers"


@contextlib.contextmanager
def town(folder: Path, plan: Plan, **options: Any) -> Iterator[Town]:
    """Whatever happens, nobody is left running."""
    made = Town(folder, plan, **options)
    try:
        yield made
    finally:
        made.kill(*made.running)


@contextlib.contextmanager
def peer_town(
    folder: Path, plan: Plan, *, identities: dict[str, Path] | None = None
) -> Iterator[Town]:
    """Five peers, settled, not started."""
    with town(folder, plan) as made:
        for k, name in enumerate(NAMES):
            (folder / name).mkdir()
            save_own(the_digits(), k, folder / name / "own.npz")
            near = [
                {
                    "name": n.name,
                    "number": n.number,
                    "weight": n.weight,
                    "endpoint": made.endpoint(n.name),
                }
                for n in neighbours(k)
            ]
            config = {
                "number": k,
                "listen": made.endpoint(name),
                "data": {"path": "own.npz"},
                "neighbours": near,
            }
            made.settle(name, config, identity=(identities or {}).get(name))
        yield made


@contextlib.contextmanager
def seeking_town(folder: Path, plan: Plan, fed: Federation) -> Iterator[Town]:
    """Peers that find their kin: the first listens, the others know the first one's address."""
    assert not isinstance(plan.clients, int)
    with town(folder, plan, names=plan.clients) as made:
        first = {"name": plan.clients[0], "endpoint": made.endpoint(plan.clients[0])}
        for k, name in enumerate(plan.clients):
            (folder / name).mkdir()
            save_own(fed, k, folder / name / "own.npz")
            config = {
                "listen": made.endpoint(name),
                "data": {"path": "own.npz"},
                "neighbours": [first] if k else [],
            }
            made.settle(name, config)
        yield made
