"""A hub and three clients, as processes of their own on this machine."""

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
from coterie.core.parent import child_of_this
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
from tests.support.room import numbers

NAMES = ("ward-a", "ward-b", "ward-c")
EVIL = """
import dataclasses
import os
import sys
from pathlib import Path
import numpy as np
from coterie.deploy import compact
from coterie.deploy.client import Client
from coterie.deploy.zenoh import join, net
honest, coded, kinds, first = Client.answer, compact.coded, {kinds!r}, []
junk = []
def answer(self, request):
    reply = honest(self, request)
    first.append(reply)
    if reply.round < 1 or not kinds or not reply.frames:
        return reply
    kind, frame = kinds.pop(0), reply.frames[0]
    if kind == "die":
        if not Path({marker!r}).exists():
            Path({marker!r}).touch()
            os._exit(9)
        return reply
    if kind == "nan":
        nan = np.full(len(frame) // 4, np.nan, np.float32).tobytes()
        return dataclasses.replace(reply, frames=(nan,))
    if kind == "shape":
        return dataclasses.replace(reply, frames=(frame[:-4],))
    if kind == "round":
        return dataclasses.replace(reply, round=reply.round + 1)
    if kind == "size":
        return dataclasses.replace(reply, frames=(frame * 100,))
    if kind == "replay":
        return first[0]
    junk.append(kind)
    return reply
def code(message):
    if not junk:
        return coded(message)
    if junk.pop() == "garbage":
        return bytes(range(256))
    return net.packed("not json {{", message.frames)
Client.answer, compact.coded = answer, code
join.join([Path(sys.argv[1])], say=lambda sentence: print(sentence, file=sys.stderr, flush=True))
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
        NAMES[: fed.clients],
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
        time.sleep(0.02)
    return found


class Lab:
    """A federation on this machine."""

    def __init__(self, folder: Path, fed: Federation, *plans: Plan) -> None:
        self.folder, self.fed, self.plans = folder, fed, plans
        self.names = NAMES[: fed.clients]
        self.port, self.processes = free_port(), dict[str, subprocess.Popen[bytes]]()
        cache = Path(tempfile.gettempdir()) / f"coterie-tests-{getpass.getuser()}-deploy"
        self.env = {**child_of_this(), "XDG_CACHE_HOME": str(cache), "JAX_PLATFORMS": "cpu"}
        keys.init(folder / "keys", "lab")
        keys.issue(folder / "keys", "hub", role="hub")
        for plan in plans:
            (folder / f"{plan.name}.toml").write_text(plan.to_toml())
        for k, name in enumerate(self.names):
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

    def logs(self) -> str:
        return "\n".join(f"--- {label}\n{self.said(label)[-3000:]}" for label in self.processes)

    def at_hub(self) -> tuple[str | Path, ...]:
        return "--folder", self.folder / "hub", "--port", str(self.port)

    def up(self, *more: str) -> None:
        self.start("up", "hub", "up", "--keys", self.folder / "keys", *self.at_hub(), *more)

    def join(self, *names: str, plans: tuple[Plan, ...] = ()) -> None:
        for name in names or self.names:
            self.start(
                name,
                "client",
                "join",
                *(self.folder / name / f"{p.name}.toml" for p in plans or self.plans),
            )

    def join_evil(self, name: str, plan: Plan, kinds: list[str]) -> None:
        """A client that spoils its answers from round 1 on, in these ways."""
        code = EVIL.format(kinds=kinds, marker=str(self.folder / "died"))
        self.start(name, self.folder / name / f"{plan.name}.toml", code=code)

    def run(self, plan: Plan, label: str = "run") -> subprocess.Popen[bytes]:
        wait_for((self.folder / "hub" / "hub.json").is_file)
        return self.start(
            label, "hub", "run", self.folder / f"{plan.name}.toml", "--folder", self.folder / "hub"
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

    def kill(self, *labels: str, sign: int = signal.SIGKILL) -> None:
        for label in labels:
            os.killpg(self.processes[label].pid, sign)
            if sign == signal.SIGKILL:
                self.processes[label].wait()

    def client(self, plan: Plan, k: int, state: str = "") -> Client:
        own = self.fed.subset(np.array([k]))
        return Client(plan, k, own, self.folder / NAMES[k] / (state or plan.name))

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def assert_equal(self, plan: Plan, *, exactly: bool = True, state: str = "") -> None:
        """The models of all clients, and the bill, are the simulator's: bit for bit, or but for
        the last bits, where XLA compiles a method for one client otherwise than for several.
        """
        simulator = Simulator(
            plan.method, self.fed, plan.model, plan.training, plan.coupling, channel=plan.channel
        )
        list(drive(simulator))
        tolerance = 1e-5 if plan.training.precision == "float32" else 1e-10
        for k in range(self.fed.clients):
            mine, client = simulator.models(k), self.client(plan, k, state)
            assert client.kept.finished
            for view, model in client.models().items():
                expected = numbers(mine[view])
                if exactly:
                    np.testing.assert_array_equal(numbers(model), expected)
                scale = np.max(np.abs(expected))
                np.testing.assert_allclose(
                    numbers(model), expected, rtol=tolerance, atol=tolerance * scale
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


def lab_of(
    hub_lab: Callable[..., Lab], fed: Federation, method: str = "fedu", **training: Any
) -> tuple[Lab, Plan]:
    """A federation with one plan, of which nothing runs yet."""
    plan = make_plan(fed, method, **training)
    return hub_lab(plan), plan


def running(
    hub_lab: Callable[..., Lab], fed: Federation, method: str = "fedu", **training: Any
) -> tuple[Lab, Plan]:
    """A federation with one plan, in its first rounds."""
    l, plan = lab_of(hub_lab, fed, method, **training)
    started(l, plan)
    return l, plan
