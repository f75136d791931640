"""`coterie deploy-demo`: a real federation on this machine, from keys to the final models, with a
client killed in the middle.

Everything goes through the commands a user would type, each in a process of its own; what they
write stays in the folder, to look at and to copy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tomli_w
from rich.table import Table
from safetensors.numpy import load_file

from coterie import load
from coterie.core.errors import CoterieError
from coterie.core.files import make_folder, write_text
from coterie.coupling.graph import from_matrix
from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.deploy.ports import free_port, free_ports
from coterie.deploy.problem import Problem
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from coterie.report.units import bytes_text
from coterie.runs.run import tensors

Say = Callable[[str], None]
HUB_METHODS: dict[str, dict[str, Any]] = {
    "lp-proj-1": {"dsub": 20, "local_rounds": 2, "inner_steps": 5},
    "fedu": {"local_steps": 10},
}
PEER_METHODS: dict[str, dict[str, Any]] = {"dfedu": {"local_steps": 10}}
EDGES = {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0, (3, 4): 1.0, (4, 0): 1.0, (1, 3): 0.5}
"""A ring of five with a chord."""


class DemoFailed(CoterieError):
    """Something did not go as it must; the logs in the demo's folder tell more."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Row:
    """One participant at the end."""

    method: str
    name: str
    difference: float
    """Largest difference between its models and the simulator's, relative to the largest number of
    the model.
    """
    up: int
    down: int
    simulated_up: int
    simulated_down: int
    score: float


class Processes:
    """The commands of the demo, each in a group of its own, its output in a log file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "coterie", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running[name] = process
        return process

    def kill(self, name: str) -> None:
        """SIGKILL, as when a machine loses power."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + 15
        for process in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, end - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def last_words(self, name: str) -> str:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    made = Processes(folder)
    try:
        yield made
    finally:
        made.stop()


def _coterie(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "coterie", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoFailed(
            f"`coterie {' '.join(arguments[:2])}` failed:"
            f" {(done.stderr or done.stdout).strip()[-300:]}"
        )


def _keys(folder: Path, names: Sequence[str], role: str) -> None:
    """A CA and an identity for everybody, valid on this machine only."""
    from coterie.deploy.keys import authority as keys

    keys.init(folder, "demo")
    for name in names:
        keys.issue(folder, name, ["localhost"], ["127.0.0.1"], role=role)


def _plan(
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


def _wait(
    what: str,
    until: Callable[[], bool],
    seconds: float,
    process: subprocess.Popen[bytes] | None = None,
) -> None:
    end = time.monotonic() + seconds
    while not until():
        if process is not None and process.poll() is not None and not until():
            raise DemoFailed(
                f"while waiting for {what} a process ended with code {process.returncode}; see the"
                " logs."
            )
        if time.monotonic() > end:
            raise DemoFailed(f"{what} did not come within {seconds:.0f} s; see the logs.")
        time.sleep(0.2)


def _round(status: Path) -> int:
    """The round that a status file shows, −1 if there is none yet."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(json.loads(status.read_text())["round"])
    return -1


def _simulated(plan: Plan, fed: Federation, graph: Any) -> Simulator:
    simulator = Simulator(plan.method, fed, plan.model, plan.training, graph, channel=plan.channel)
    for _ in drive(simulator):
        pass
    return simulator


def _rows(
    plan: Plan,
    fed: Federation,
    graph: Any,
    names: Sequence[str],
    folders: Sequence[Path],
    bill: Any,
) -> list[Row]:
    simulator = _simulated(plan, fed, graph)
    expected = simulator.ledger.rows()
    scores = simulator.evaluate().scores["test"].score[0]
    out = []
    for k, (name, folder) in enumerate(zip(names, folders, strict=True)):
        worst = 0.0
        for view, model in simulator.models(k).items():
            found = load_file(folder / "models" / f"{view}.safetensors")
            for key, value in tensors(model).items():
                worst = max(worst, float(np.abs(found[key] - value).max() / np.abs(value).max()))
        mine, theirs = bill(k), expected[expected[:, 1] == k]
        up, down = (int(n) for n in mine)
        out.append(
            Row(
                plan.method.title,
                name,
                worst,
                up,
                down,
                int(theirs[:, 2].sum()),
                int(theirs[:, 3].sum()),
                float(scores[k]),
            )
        )
    return out


def with_hub(folder: Path, rounds: int, say: Say) -> list[Row]:
    """Three clients and a hub over Flower: lp-proj-1 and FedU, one client killed in the middle."""
    make_folder(folder)
    fed = load("digits", clients=3)
    names = [f"site-{k}" for k in range(3)]
    _keys(folder / "keys", names, "client")
    from coterie.deploy.keys import authority as keys

    keys.issue(folder / "keys", "hub", ["localhost"], ["127.0.0.1"], role="hub")
    port = free_port()
    plans = {
        method: _plan(method, method, options, names, fed, rounds)
        for method, options in HUB_METHODS.items()
    }
    for method, plan in plans.items():
        write_text(folder / f"{method}.toml", plan.to_toml())
    sites: dict[str, list[Path]] = {name: [] for name in names}
    for k, name in enumerate(names):
        own = folder / name
        own.mkdir()
        save_own(fed, k, own / "data.npz")
        for method in plans:
            site = {
                "plan": f"../{method}.toml",
                "name": name,
                "folder": method,
                "keys": f"../keys/nodes/{name}",
                "hub": f"127.0.0.1:{port}",
                "share_scores": True,
                "data": {"path": "data.npz"},
            }
            write_text(own / f"{method}.site.toml", tomli_w.dumps(site))
            sites[name].append(own / f"{method}.site.toml")
    say(
        "Keys, plans and three clients' folders are made; bringing up the hub (TLS, registered"
        " nodes only) and the clients …"
    )
    rows = []
    with processes(folder / "logs") as running:
        hub = running.start(
            "hub",
            "hub",
            "up",
            "--keys",
            str(folder / "keys"),
            "--folder",
            str(folder / "hub"),
            "--port",
            str(port),
        )
        for name in names:
            running.start(name, "client", "join", *map(str, sites[name]))
        _wait("the hub", (folder / "hub" / "hub.json").is_file, 120, hub)
        victim, killed = names[1], False
        for method, plan in plans.items():
            say(f"{plan.method.title}: {rounds} rounds …")
            run = running.start(
                f"run-{method}",
                "hub",
                "run",
                str(folder / f"{method}.toml"),
                "--folder",
                str(folder / "hub"),
            )
            status = folder / "hub" / method / "status.json"
            if not killed:
                _wait(
                    "the middle of the run",
                    lambda status=status: _round(status) >= rounds // 2,  # type: ignore[misc]
                    300,
                    run,
                )
                running.kill(victim)
                killed = True
                say(
                    f"{victim} was killed (SIGKILL) in round {_round(status)} and started again;"
                    " Flower lets it back in within a minute …"
                )
                running.start(victim, "client", "join", *map(str, sites[victim]))
            _wait(f"the end of {method}", lambda run=run: run.poll() is not None, 600)  # type: ignore[misc]
            if run.returncode or hub.poll() is not None:
                raise DemoFailed(f"{method} did not finish: {running.last_words(f'run-{method}')}")
            table = pq.read_table(folder / "hub" / method / "ledger.parquet").to_pydict()
            bill = np.stack(
                [np.asarray(table[key]) for key in ("round", "client", "up", "down")], 1
            )
            bill = bill[
                bill[:, 0] < rounds
            ]  # the hub's last word, which a simulator need not send, is extra
            places = [folder / name / method for name in names]
            rows += _rows(
                plan,
                fed,
                plan.coupling,
                names,
                places,
                lambda k, bill=bill: bill[bill[:, 1] == k][:, 2:].sum(0),
            )  # type: ignore[misc]
    return rows


def with_peers(folder: Path, rounds: int, say: Say) -> list[Row]:
    """Five peers over Zenoh, no server: dFedU, one peer killed in the middle."""
    make_folder(folder)
    fed = load("digits", clients=5)
    names = [f"peer-{k}" for k in range(5)]
    _keys(folder / "keys", names, "peer")
    ports = free_ports(5)
    ((method, options),) = PEER_METHODS.items()
    plan = _plan(method, method, options, 5, fed, rounds)
    write_text(folder / "plan.toml", plan.to_toml())
    weights = np.zeros((5, 5))
    for (k, l), w in EDGES.items():
        weights[k, l] = weights[l, k] = w
    for k, name in enumerate(names):
        own = folder / name
        own.mkdir()
        save_own(fed, k, own / "data.npz")
        near = np.flatnonzero(weights[k])
        site = {
            "plan": "../plan.toml",
            "name": name,
            "number": k,
            "folder": "state",
            "keys": f"../keys/nodes/{name}",
            "listen": f"tls/127.0.0.1:{ports[k]}",
            "data": {"path": "data.npz"},
            "neighbours": [
                {
                    "name": names[l],
                    "number": int(l),
                    "endpoint": f"tls/127.0.0.1:{ports[l]}",
                    "weight": float(weights[k, l]),
                }
                for l in near
            ],
        }
        write_text(own / "peer.toml", tomli_w.dumps(site))
    say(
        "Keys, the plan and five peers' folders are made; starting the peers (mutual TLS, each"
        " knows only its neighbours) …"
    )
    with processes(folder / "logs") as running:
        for name in names:
            running.start(name, "peer", "--config", str(folder / name / "peer.toml"))
        victim = names[3]
        status = folder / victim / "state" / "status.json"
        _wait(
            "the middle of the run",
            lambda: _round(status) >= rounds // 4,
            300,
            running.running[victim],
        )
        running.kill(victim)
        say(f"{victim} was killed (SIGKILL) in round {_round(status)}; started again …")
        running.start(victim, "peer", "--config", str(folder / victim / "peer.toml"))
        for name in names:
            process = running.running[name]
            _wait(f"the end of {name}", lambda process=process: process.poll() is not None, 300)  # type: ignore[misc]
            if process.returncode:
                raise DemoFailed(
                    f"{name} ended with code {process.returncode}: {running.last_words(name)}"
                )

        def bill(k: int) -> Any:
            table = pq.read_table(folder / names[k] / "state" / "ledger.parquet").to_pydict()
            return [sum(table["up"]), sum(table["down"])]

        return _rows(
            plan,
            fed,
            from_matrix(weights, "ring with a chord"),
            names,
            [folder / name / "state" for name in names],
            bill,
        )


def table(rows: Sequence[Row]) -> Table:
    """What the demo ends with."""
    out = Table(
        "method",
        "client",
        "test accuracy",
        "bytes up",
        "bytes down",
        "same bytes as simulated",
        "largest difference to the simulator's model",
    )
    for row in rows:
        alike = (row.up, row.down) == (row.simulated_up, row.simulated_down)
        out.add_row(
            row.method,
            row.name,
            f"{row.score:.3f}",
            bytes_text(row.up),
            bytes_text(row.down),
            (
                "yes"
                if alike
                else f"no ({bytes_text(row.simulated_up)}, {bytes_text(row.simulated_down)})"
            ),
            "none" if row.difference == 0 else f"{row.difference:.1e}",
        )
    return out


def verdict(rows: Sequence[Row]) -> str:
    """One sentence; raises DemoFailed when a model differs by more than rounding."""
    worst = max(row.difference for row in rows)
    if worst > 1e-5:
        raise DemoFailed(
            f"a model differs from the simulator's by {worst:.1e}, which is more than rounding"
            " (1e-5)."
        )
    how = "bit for bit" if worst == 0 else f"largest relative difference {worst:.1e}"
    return (
        f"Every participant ended with the simulator's model ({how}), although one was killed in"
        " the middle."
    )
