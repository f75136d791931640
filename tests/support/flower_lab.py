"""A federation of three over Flower, as processes of their own on this machine."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from coterie import Federation
from coterie.deploy.client import Client
from coterie.deploy.keys import authority as keys
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.ports import free_port
from coterie.deploy.problem import Problem
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from coterie.engine.training import Training
from coterie.methods.base import get_method
from coterie.models.base import get_model
from tests.support.bills import in_order

NAMES = ("ward-a", "ward-b", "ward-c")
EVIL = """
import sys
from coterie.deploy.flower.join import Node, join
def worker(self):
    told = ["--secret", str(self.secret), "--sites", self._paths]
    return [sys.executable, {path!r}, "--address", f"127.0.0.1:{{self.port}}", *told]
Node._worker = worker
from pathlib import Path
join([Path(sys.argv[1])])
"""
EVIL_WORKER = """
import dataclasses
import os
from pathlib import Path
import numpy as np
from coterie.deploy.flower import supervise as flower, node as flower_node
from coterie.deploy.messages import Reply
honest, kinds, first = flower.Desk.answer, {kinds!r}, []
def answer(self, content):
    good = honest(self, content)
    reply = flower.unpacked(Reply, good)
    first.append(reply)
    if reply.round < 1 or not kinds or not reply.frames:
        return good
    kind, frame = kinds.pop(0), reply.frames[0]
    if kind == "die":
        if not Path({marker!r}).exists():
            Path({marker!r}).touch()
            os._exit(9)
        return good
    if kind == "nan":
        nan = np.full(len(frame) // 4, np.nan, np.float32).tobytes()
        return flower.packed(dataclasses.replace(reply, frames=(nan,)))
    if kind == "shape":
        return flower.packed(dataclasses.replace(reply, frames=(frame[:-4],)))
    if kind == "round":
        return flower.packed(dataclasses.replace(reply, round=reply.round + 1))
    if kind == "size":
        return flower.packed(dataclasses.replace(reply, frames=(frame * 100,)))
    if kind == "replay":
        return flower.packed(first[0])
    junk = {{"envelope": "\\x00\\xff{{not json", "frames": [bytes(range(256))]}}
    record = flower.ConfigRecord(junk)
    return flower.RecordDict({{"coterie" if kind == "garbage" else "other": record}})
flower.Desk.answer = answer
flower_node.main()
"""


def make_plan(
    fed: Federation, method: str, name: str = "", rules: Rules | None = None, **training: Any
) -> Plan:
    training = {"rounds": 3, "eval_every": 2, "batch_size": 5, **training}
    rules = rules or Rules(patience=30.0, give_up=800.0)
    chosen = get_method(
        method, {"local_steps": 2} if "local_steps" in type(get_method(method)).public() else {}
    )
    return Plan(
        name or method,
        NAMES,
        Problem.of(fed),
        get_model("mlr"),
        Training.from_config(training),
        chosen,
        rules=rules,
    )


def wait_for(what: Callable[[], Any], seconds: float = 240.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.2)
    return found


def descendants(pid: int) -> dict[int, str]:
    """Process → command line, of all that a process has started."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found: dict[int, str] = {}
    grown = {pid}
    while grown:
        grown = {p for p, parent in parents.items() if parent in grown and p not in found}
        for p in grown:
            with contextlib.suppress(OSError):
                found[p] = (
                    Path(f"/proc/{p}/cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode(errors="replace")
                )
    return found


class Lab:
    """A federation of three on this machine."""

    def __init__(self, folder: Path, fed: Federation, *plans: Plan) -> None:
        self.folder, self.fed, self.plans = folder, fed, plans
        self.port, self.processes = free_port(), dict[str, subprocess.Popen[bytes]]()
        cache = Path(tempfile.gettempdir()) / f"coterie-tests-{getpass.getuser()}-deploy"
        self.env = {**os.environ, "XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
        keys.init(folder / "keys", "lab")
        keys.issue(folder / "keys", "hub", role="hub")
        for plan in plans:
            (folder / f"{plan.name}.toml").write_text(plan.to_toml())
        for k, name in enumerate(NAMES):
            keys.issue(folder / "keys", name)
            (folder / name).mkdir()
            save_own(fed, k, folder / name / "data.npz")
            for plan in plans:
                self.site(name, plan)

    def site(self, name: str, plan: Plan, state: str = "", keys: str = "") -> Path:
        path = self.folder / name / f"{plan.name}{state}.toml"
        path.write_text(
            f'plan = "../{plan.name}.toml"\nname = "{name}"\nfolder = "{plan.name}{state}"\nkeys ='
            f' "{keys or f"../keys/nodes/{name}"}"\nhub = "127.0.0.1:{self.port}"\nshare_scores ='
            ' true\n[data]\npath = "data.npz"\n'
        )
        return path

    def start(self, label: str, *arguments: str | Path, code: str = "") -> subprocess.Popen[bytes]:
        with (self.folder / f"{label}.out").open("ab") as f:
            command = [
                sys.executable,
                *(["-c", code] if code else ["-m", "coterie"]),
                *map(str, arguments),
            ]
            self.processes[label] = subprocess.Popen(
                command, stdout=f, stderr=f, env=self.env, start_new_session=True
            )
        return self.processes[label]

    def said(self, label: str) -> str:
        return (self.folder / f"{label}.out").read_text(errors="replace")

    def up(self) -> None:
        self.start(
            "up",
            "hub",
            "up",
            "--flower",
            "--keys",
            self.folder / "keys",
            "--folder",
            self.folder / "hub",
            "--port",
            str(self.port),
        )

    def join(self, *names: str, plans: tuple[Plan, ...] = ()) -> None:
        for name in names or NAMES:
            self.start(
                name,
                "client",
                "join",
                "--flower",
                *(self.folder / name / f"{p.name}.toml" for p in plans or self.plans),
            )

    def join_evil(self, name: str, plan: Plan, kinds: list[str]) -> None:
        """A client whose worker spoils its answers from round 1 on, in these ways."""
        worker = self.folder / "evil.py"
        worker.write_text(EVIL_WORKER.format(kinds=kinds, marker=str(self.folder / "died")))
        self.start(
            name, self.folder / name / f"{plan.name}.toml", code=EVIL.format(path=str(worker))
        )

    def run(self, plan: Plan, label: str = "run") -> subprocess.Popen[bytes]:
        wait_for((self.folder / "hub" / "hub.json").is_file)
        return self.start(
            label,
            "hub",
            "run",
            "--flower",
            self.folder / f"{plan.name}.toml",
            "--folder",
            self.folder / "hub",
        )

    def finish(self, label: str = "run", seconds: float = 900.0) -> int:
        return self.processes[label].wait(seconds)

    def log(self, plan: Plan) -> str:
        path = self.folder / "hub" / f"{plan.name}.log"
        return path.read_text() if path.is_file() else ""

    def round(self, plan: Plan) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int(
                json.loads((self.folder / "hub" / plan.name / "status.json").read_text())["round"]
            )
        return 0

    def status(self, plan: Plan) -> dict[str, Any]:
        return dict(json.loads((self.folder / "hub" / plan.name / "status.json").read_text()))

    def serverapp(self, plan: Plan) -> int:
        return int(
            json.loads((self.folder / "hub" / f"{plan.name}.progress.json").read_text())["pid"]
        )

    def asks(self, plan: Plan) -> bool:
        """Whether the hub waits for answers."""
        with contextlib.suppress(OSError, ValueError):
            path = self.folder / "hub" / f"{plan.name}.progress.json"
            return bool(json.loads(path.read_text()).get("waiting"))
        return False

    def child(self, label: str, words: str) -> int:
        return next(
            pid
            for pid, command in descendants(self.processes[label].pid).items()
            if words in command
        )

    def client(self, plan: Plan, k: int) -> Client:
        return Client(plan, k, self.fed.subset(np.array([k])), self.folder / NAMES[k] / plan.name)

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def assert_equal(self, plan: Plan) -> None:
        """The models of all clients, and the bill, are the simulator's."""
        simulator = Simulator(
            plan.method, self.fed, plan.model, plan.training, plan.coupling, channel=plan.channel
        )
        list(drive(simulator))
        tolerance = 1e-5 if plan.training.precision == "float32" else 1e-10
        for k in range(len(NAMES)):
            mine, client = simulator.models(k), self.client(plan, k)
            assert client.kept.finished
            for view, model in client.models().items():
                scale = np.max(np.abs(mine[view].flat()))
                np.testing.assert_allclose(
                    model.flat(), mine[view].flat(), rtol=tolerance, atol=tolerance * scale
                )
        table = (
            pq.read_table(self.folder / "hub" / plan.name / "ledger.parquet").to_pandas().to_numpy()
        )
        table = table[
            table[:, 0] < plan.training.rounds
        ]  # a farewell is not in the simulator's bill
        bills = (in_order(rows, plan.alone) for rows in (table, simulator.ledger.rows()))
        np.testing.assert_array_equal(*bills)


def started(l: Lab, plan: Plan, rounds: int = 2) -> None:
    l.up()
    l.join()
    l.run(plan)
    wait_for(lambda: l.round(plan) >= rounds or l.processes["run"].poll() is not None, 500)
