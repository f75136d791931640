"""Real federations over Flower: real processes on loopback, TLS, registered nodes; the same models
and bytes as the simulator, whatever is killed.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coterie import Federation, load
from coterie.core.errors import InvalidInput
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.keys import authority as keys
from coterie.deploy.plan import Plan, Rules
from coterie.deploy.ports import free_port
from coterie.deploy.problem import Problem
from coterie.deploy.site import save_own
from coterie.engine.simulate import Simulator, drive
from coterie.engine.training import Training
from coterie.methods.base import get_method
from coterie.models.base import get_model

httpx = pytest.importorskip("httpx")
pytest.importorskip("flwr")
flower, flower_run = (
    importlib.import_module(f"coterie.deploy.flower.{name}") for name in ("supervise", "run")
)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")

NAMES = ("ward-a", "ward-b", "ward-c")
EVIL = """
import sys
from coterie.deploy.flower import supervise as flower, run as flower_run
def worker(self):
    told = ["--secret", str(self.secret), "--sites", self._paths]
    return [sys.executable, {path!r}, "--address", f"127.0.0.1:{{self.port}}", *told]
flower_run._Node._worker = worker
from pathlib import Path
flower_run.join([Path(sys.argv[1])])
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

    def serverapp(self, plan: Plan) -> int:
        return int(
            json.loads((self.folder / "hub" / f"{plan.name}.progress.json").read_text())["pid"]
        )

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
        expected = simulator.ledger.rows()
        order = [rows[np.lexsort((rows[:, 1], rows[:, 0]))] for rows in (table, expected)]
        np.testing.assert_array_equal(*order)


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=len(NAMES))


@pytest.fixture
def lab(tmp_path: Path, fed: Federation) -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []

    def make(*plans: Plan) -> Lab:
        made.append(Lab(tmp_path, fed, *plans))
        return made[-1]

    yield make
    for one in made:
        one.stop()


class Room:
    """Flower's grid without Flower: nodes in this process, which answer when they are asked;
    `spoil` stands between them and the hub.
    """

    def __init__(
        self,
        folder: Path,
        fed: Federation,
        plan: Plan,
        spoil: Callable[[int, Any], Any] = lambda k, answer: answer,
    ) -> None:
        identity = importlib.import_module(
            "flwr.supercore.task_identity"
        ).TaskIdentity  # else Flower makes no messages
        identity.run_id = identity.node_id = identity.task_id = 1
        self.spoil, self.waiting = spoil, dict[str, Any]()
        self.away: set[int] = set()
        keys.init(folder / "keys", "lab")
        (folder / "plan.toml").write_text(plan.to_toml())
        for k, name in enumerate(NAMES):
            keys.issue(folder / "keys", name)
            (folder / name).mkdir()
            save_own(fed, k, folder / name / "data.npz")
            (folder / name / "site.toml").write_text(
                f'plan = "../plan.toml"\nname = "{name}"\nfolder = "state"\n[data]\npath ='
                ' "data.npz"\n'
            )
        self.desks = [
            flower.Desk([folder / name / "site.toml"], lambda sentence: None) for name in NAMES
        ]
        known = keys.flower_keys(folder / "keys")
        self.public = [flower.pem(known[name]) for name in NAMES]
        self.said: list[str] = []
        self.hub = Hub(plan, folder / "hub", say=self.said.append)
        members = flower.Members(plan, folder / "keys", self.said.append)
        grid: Any = self
        self.conductor = flower.Conductor(
            grid, self.hub, members, self.said.append, lambda *_: None
        )

    def get_nodes(self) -> list[Any]:
        """Numbers and names are lies; only the key counts."""
        there = [k for k in range(len(NAMES)) if k not in self.away]
        return [
            SimpleNamespace(
                node_id=100 - k, name="ward-a", public_key=self.public[k], last_activated_at=""
            )
            for k in there
        ]

    def push_messages(self, messages: list[Any]) -> list[str]:
        idents = []
        for message in messages:
            idents.append(f"message{len(self.waiting)}-{time.monotonic()}")
            message.metadata.__dict__["_message_id"] = idents[-1]
            k = 100 - message.metadata.dst_node_id
            answer = self.spoil(k, self.desks[k].answer(message.content))
            self.waiting[idents[-1]] = (
                None if answer is None else flower.Message(answer, reply_to=message)
            )
        return idents

    def pull_messages(self, idents: list[str]) -> list[Any]:
        found = [self.waiting.pop(i) for i in idents if self.waiting.get(i) is not None]
        return found


def test_who_is_who_what_is_nonsense_and_what_is_said(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "AGAIN", 0.0)
    monkeypatch.setattr(flower, "POLL", 0.0)
    plan = make_plan(fed, "fedu", rounds=2)
    record = flower.ConfigRecord
    bad = [
        flower.RecordDict({"other": record({"envelope": "{}"})}),
        flower.RecordDict({"coterie": record({"envelope": "\x00{", "frames": [b"?"]})}),
        flower.RecordDict({"coterie": record({"envelope": "{}", "more": 1})}),
        flower.RecordDict({"coterie": record({"error": "the disk is\x1b[2J full"})}),
    ]
    room = Room(tmp_path, fed, plan, lambda k, answer: bad.pop() if bad and k == 1 else answer)
    room.conductor.run()
    assert room.hub.finished
    assert [client.rejected for client in room.hub.clients] == [0, 3, 0]
    said = "\n".join(room.said)
    assert "ward-b cannot answer: the disk is [2J full" in said
    assert said.count("rejected a message of ward-b") == 3
    simulator = Simulator(
        plan.method, fed, plan.model, plan.training, plan.coupling, channel=plan.channel
    )
    list(drive(simulator))
    for k, name in enumerate(NAMES):
        mine = (
            Client(plan, k, fed.subset(np.array([k])), tmp_path / name / "state")
            .models()["personal"]
            .flat()
        )
        np.testing.assert_allclose(
            mine, simulator.models(k)["personal"].flat(), rtol=1e-5, atol=1e-6
        )


def test_the_silent_the_revoked_and_the_last_resort(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "POLL", 0.0)
    monkeypatch.setattr(flower, "LOOK", 0.0)
    plan = make_plan(fed, "pfedme", rounds=4, rules=Rules(patience=0.5, give_up=1.5))
    room = Room(tmp_path, fed, plan)
    room.away = {2}
    with pytest.raises(
        flower.GaveUp, match=r"round 0: no usable answer from ward-c \(not connected\) in"
    ):
        room.conductor.run()
    keys.revoke(tmp_path / "keys", "ward-c")
    room.away = set()
    room.conductor.run()
    assert room.hub.finished
    assert any("ward-c is revoked" in sentence for sentence in room.said)
    assert not np.any(room.hub.ledger.rows()[:, 1] == 2)


def test_a_round_is_closed_without_the_silent_where_the_plan_says_so(
    tmp_path: Path, fed: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flower, "POLL", 0.0)
    plan = make_plan(
        fed, "ditto", rounds=2, rules=Rules(on_missing="go-on", patience=0.5, at_least=0.6)
    )
    room = Room(tmp_path, fed, plan, lambda k, answer: None if k == 0 else answer)
    room.conductor.run()
    assert room.hub.finished
    assert sum("without ward-a" in sentence for sentence in room.said) == 2


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        (
            "'/home/ward/state/client.safetensors' cannot be read",
            "'…/client.safetensors' cannot be read",
        ),
        ("lower lr/2 and a/b", "lower lr/2 and a/b"),
    ],
)
def test_a_refusal_does_not_tell_where_things_lie(sentence: str, shown: str) -> None:
    assert flower._without_paths(sentence) == shown


def test_a_hub_needs_keys_of_its_own_kind(tmp_path: Path, fed: Federation) -> None:
    keys.init(tmp_path / "keys", "lab")
    with pytest.raises(InvalidInput, match="must hold the keys of one hub"):
        flower_run.hub_identity(tmp_path / "keys")
    with pytest.raises(InvalidInput, match="are of a client, but a hub needs"):
        flower_run.hub_identity(keys.issue(tmp_path / "keys", "ward-a"))
    assert flower_run.hub_identity(keys.issue(tmp_path / "keys", "hub", role="hub")).name == "hub"
    with pytest.raises(InvalidInput, match="no hub was started"):
        flower_run.read_hub(tmp_path)


def test_a_short_run_ends_as_the_simulator_does(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan)
    l.up()
    l.join()
    l.run(plan)
    assert l.finish() == 0, l.said("run") + l.said("up")
    l.assert_equal(plan)
    assert "finished" in l.said("run")
    status = l.status(plan)
    assert all(c["rejected"] == 0 and c["rounds"] == 2 and c["scores"] for c in status["clients"])
    assert (l.folder / "ward-a" / "fedu" / "models" / "personal.safetensors").is_file()
    # The port that clients call shows nothing but what signed requests of nodes may use.
    with httpx.Client(
        verify=ssl.create_default_context(cafile=str(l.folder / "keys" / "ca.pem")), trust_env=False
    ) as web:
        assert web.post(f"https://127.0.0.1:{l.port}/v1/control/list-nodes").status_code == 404
        assert web.post(f"https://127.0.0.1:{l.port}/v1/runtime/acquire-task").status_code == 404
        assert (
            web.post(f"https://127.0.0.1:{l.port}/v1/fleet/../control/list-nodes").status_code
            == 404
        )
        assert web.post(f"https://127.0.0.1:{l.port}/v1/fleet/pull-messages").status_code >= 400


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, fed: Federation) -> Iterator[Lab]:
    """One federation for many plans."""
    plans = [
        make_plan(fed, method, f"{method}-{precision}", rounds=10, precision=precision)
        for method in ("fedu", "pfedme", "lp-proj-1", "ditto")
        for precision in ("float32", "float64")
    ]
    l = Lab(tmp_path_factory.mktemp("busy"), fed, *plans)
    try:
        l.up()
        l.join()
        yield l
    finally:
        l.stop()


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("method", ["fedu", "pfedme", "lp-proj-1", "ditto"])
def test_ten_rounds_end_as_the_simulator_does(busy: Lab, method: str, precision: str) -> None:
    plan = next(p for p in busy.plans if p.name == f"{method}-{precision}")
    busy.run(plan, plan.name)
    assert busy.finish(plan.name) == 0, busy.said(plan.name)
    busy.assert_equal(plan)


def started(l: Lab, plan: Plan, rounds: int = 2) -> None:
    l.up()
    l.join()
    l.run(plan)
    wait_for(lambda: l.round(plan) >= rounds or l.processes["run"].poll() is not None, 500)


@pytest.mark.slow
def test_a_killed_client_comes_back(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "lp-proj-1", rounds=8)
    l = lab(plan)
    started(l, plan)
    for pid in [*descendants(l.processes["ward-b"].pid)]:
        os.kill(pid, signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "killed by signal 9" in l.said("ward-b")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_worker_that_dies_at_work_is_started_again(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "pfedme", rounds=3)
    l = lab(plan)
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, ["die"])
    l.run(plan)
    assert l.finish() == 0, l.said("run")
    assert "the worker ended with code 9" in l.said("ward-c")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_client_killed_with_its_supervisor_comes_back_when_started_again(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    children = descendants(l.processes["ward-b"].pid)
    l.processes["ward-b"].kill()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), 20)
    l.join("ward-b")
    assert l.finish() == 0, l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_killed_superlink_is_started_again(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "ditto", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.child("up", "flower-superlink"), signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "killed by signal 9" in l.said("up")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_that_is_killed_whole_resumes(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "pfedme", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.serverapp(plan), signal.SIGKILL)
    for label in ("run", "up"):
        for pid in [l.processes[label].pid, *descendants(l.processes[label].pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        l.processes[label].wait()
    l.up()
    wait_for(lambda: l.said("up").count("the hub is up") == 2)
    l.run(plan, "again")
    assert l.finish("again") == 0, l.said("again")
    assert "going on from round" in l.log(plan)
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_that_comes_back_elsewhere_is_found_by_its_run(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    """`hub up` dies with all it started, and is started again; `hub run` was there all the time."""
    plan = make_plan(fed, "fedu", rounds=6)
    l = lab(plan)
    started(l, plan)
    for pid in [l.processes["up"].pid, *descendants(l.processes["up"].pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    l.up()
    assert l.finish() == 0, l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_killed_serverapp_is_started_again(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    os.kill(l.serverapp(plan), signal.SIGKILL)
    assert l.finish() == 0, l.said("run")
    assert "starting it again" in l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_stopped_client_is_waited_for(lab: Callable[..., Lab], fed: Federation) -> None:
    plan = make_plan(fed, "fedu", rounds=8, rules=Rules(patience=10.0, give_up=800.0))
    l = lab(plan)
    started(l, plan)
    pids = [*descendants(l.processes["ward-c"].pid)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(30)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert l.finish() == 0, l.said("run")
    assert "still waiting for ward-c" in l.log(plan)
    l.assert_equal(plan)


@pytest.mark.slow
def test_it_goes_on_without_a_client_where_the_plan_says_so_and_gives_up_where_it_does_not(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    on = make_plan(
        fed, "fedu", "on", rounds=2, rules=Rules(on_missing="go-on", patience=60.0, give_up=800.0)
    )
    off = make_plan(fed, "fedu", "off", rounds=2, rules=Rules(patience=30.0, give_up=90.0))
    l = lab(on, off)
    l.up()
    l.join("ward-a", "ward-b")
    l.run(on)
    assert l.finish() == 0, l.said("run")
    assert "without ward-c" in l.log(on)
    l.run(off, "off")
    assert l.finish("off") not in (0, None)
    assert "no usable answer from ward-c (not connected)" in l.said("off").replace("\n", " ")
    l.join("ward-c")
    l.run(off, "off again")
    assert l.finish("off again") == 0, l.said("off again")
    l.assert_equal(off)


@pytest.mark.slow
def test_nonsense_is_rejected_counted_and_changes_nothing(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=3)
    l = lab(plan)
    kinds = ["nan", "shape", "round", "size", "garbage", "other", "replay"]
    l.up()
    l.join("ward-a", "ward-b")
    l.join_evil("ward-c", plan, kinds)
    l.run(plan)
    assert l.finish() == 0, l.said("run")
    assert [c["rejected"] for c in l.status(plan)["clients"]] == [0, 0, len(kinds)]
    assert l.log(plan).count("rejected a message of ward-c") == len(kinds)
    for words in (
        "NaN or infinity",
        "came in round 1",
        "must have at most",
        "not JSON",
        "not one of coterie's",
    ):
        assert words in l.log(plan)
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_revoked_client_does_not_count_from_the_next_round_on(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=8)
    l = lab(plan)
    started(l, plan)
    keys.revoke(l.folder / "keys", "ward-c")
    revoked = l.round(plan)
    assert l.finish() == 0, l.said("run")
    assert "ward-c is revoked" in l.log(plan)
    rounds = {c["name"]: c["rounds"] for c in l.status(plan)["clients"]}
    assert rounds["ward-a"] == rounds["ward-b"] == 8
    assert revoked <= rounds["ward-c"] <= revoked + 2
    wait_for(lambda: "revoked" in l.said("ward-c") or l.processes["ward-c"].poll() is not None, 240)


@pytest.mark.slow
def test_strangers_twins_and_expired_certificates_are_refused(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan)
    shutil.copytree(l.folder / "keys", l.folder / "other-keys")
    l.up()
    l.join("ward-a")
    wait_for(lambda: "the hub is up" in l.said("up"))
    # A key of the same CA that the hub's books do not know.
    keys.issue(l.folder / "other-keys", "ward-b", renew=True)
    l.start(
        "stranger",
        "client",
        "join",
        l.site("ward-b", plan, "-stranger", keys="../other-keys/nodes/ward-b"),
    )
    wait_for(lambda: "its key is not registered there" in l.said("stranger"), 240)
    # The same identity twice: with the same folder, and with a copy of the keys and another folder.
    twin = l.start("twin", "client", "join", l.folder / "ward-a" / "fedu.toml")
    assert twin.wait(240) == 2
    assert "another process is working" in l.said("twin")
    shutil.copytree(l.folder / "keys" / "nodes" / "ward-a", l.folder / "copied")
    wait_for(
        lambda: (
            "SuperNode ID"
            in (l.folder / "ward-a" / "fedu" / "flower" / "supernode.log").read_text()
        ),
        240,
    )
    l.start("thief", "client", "join", l.site("ward-a", plan, "-copied", keys="../copied"))
    wait_for(lambda: "another process uses it" in l.said("thief"), 240)
    # A certificate that was valid until yesterday.
    keys.issue(
        l.folder / "other-keys",
        "ward-c",
        renew=True,
        days=1,
        now=datetime.now(UTC) - timedelta(days=2),
    )
    old = l.start(
        "expired",
        "client",
        "join",
        l.site("ward-c", plan, "-expired", keys="../other-keys/nodes/ward-c"),
    )
    assert old.wait(240) == 2
    assert "expired on" in l.said("expired")


@pytest.mark.slow
def test_a_full_disk_stops_only_its_client_and_only_for_a_while(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "pfedme", rounds=6)
    l = lab(plan)
    state = l.folder / "ward-b" / plan.name
    state.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "coterie-test", str(state)],
            capture_output=True,
        ).returncode
    ):
        pytest.skip("a small file system cannot be mounted here")
    try:
        started(l, plan)
        with contextlib.suppress(OSError), (state / "ballast").open("wb") as f:
            while True:
                f.write(bytes(4096))
                f.flush()
        wait_for(lambda: "ward-b cannot answer" in l.log(plan), 240)
        assert "No space left" in l.log(plan)
        assert str(state) not in l.log(plan)  # where things lie on a client is its own business
        time.sleep(5)
        (state / "ballast").unlink()
        assert l.finish() == 0, l.said("run")
        l.assert_equal(plan)
    finally:
        l.stop()
        subprocess.run(["umount", "-l", str(state)], capture_output=True)


@pytest.mark.slow
def test_the_plain_commands_of_flower_do_it_too(lab: Callable[..., Lab], fed: Federation) -> None:
    """As docs/deploy-flower.md has them: no `hub up`, no `client join`, a process per message."""
    plan = make_plan(fed, "lp-proj-1", rounds=2, rules=Rules(patience=120.0, give_up=800.0))
    l = lab(plan)
    hub, nodes, home = l.folder / "hub", l.folder / "keys" / "nodes", l.folder / "home"
    for part in (hub / "plans", l.folder / "app", home):
        part.mkdir(parents=True)
    (l.folder / "app" / "pyproject.toml").write_text(flower_run.APP)
    shutil.copy(l.folder / f"{plan.name}.toml", hub / "plans")
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "lab"\n[superlink.lab]\naddress ='
        f' "127.0.0.1:{l.port}"\nroot-certificates = "{nodes / "hub" / "ca.pem"}"\n'
    )
    commands = str(Path(sys.executable).parent)
    l.env |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "COTERIE_HUB": str(hub),
        "COTERIE_KEYS": str(l.folder / "keys"),
    }
    l.env |= {"PATH": f"{commands}:{l.env['PATH']}", "FLWR_HOME": str(home)}

    def start(label: str, *command: str | Path) -> subprocess.Popen[bytes]:
        with (l.folder / f"{label}.out").open("ab") as f:
            l.processes[label] = subprocess.Popen(
                [*map(str, command)], stdout=f, stderr=f, env=l.env, start_new_session=True
            )
        return l.processes[label]

    certificates = [
        text
        for flag, file in (("ca-cert", "ca.pem"), ("cert", "node.pem"), ("key", "node.key"))
        for text in (f"--ssl-{flag}file", nodes / "hub" / file)
    ]
    start(
        *(
            "superlink",
            "flower-superlink",
            "--host",
            "127.0.0.1",
            "--port",
            str(l.port),
            *certificates,
            "--enable-supernode-auth",
        ),
        *("--database", hub / "superlink.db", "--disable-runtime-dependency-installation"),
    )

    def registered(name: str) -> bool:
        return (
            start(
                "register",
                "flwr",
                "supernode",
                "register",
                nodes / name / "flower.pub",
                "lab",
                "--name",
                name,
            ).wait(60)
            == 0
        )

    for name in NAMES:
        wait_for(lambda name=name: registered(name), 90)
        start(
            *(
                name,
                "flower-supernode",
                "--superlink",
                f"127.0.0.1:{l.port}",
                "--root-certificates",
                nodes / name / "ca.pem",
            ),
            *(
                "--auth-supernode-private-key",
                nodes / name / "flower.key",
                "--host",
                "127.0.0.1",
                "--port",
                str(free_port()),
            ),
            *("--node-config", f'sites="{l.folder / name / f"{plan.name}.toml"}"'),
        )
    assert (
        start(
            "run",
            "flwr",
            "run",
            l.folder / "app",
            "lab",
            "--run-config",
            f'plan="{plan.name}"',
            "--stream",
        ).wait(600)
        == 0
    ), l.said("run")
    l.assert_equal(plan)


@pytest.mark.slow
def test_a_hub_with_nothing_but_its_own_keys_is_told_of_its_clients(
    lab: Callable[..., Lab], fed: Federation
) -> None:
    plan = make_plan(fed, "fedu", rounds=2)
    l = lab(plan)
    own = shutil.copytree(l.folder / "keys" / "nodes" / "hub", l.folder / "hub-keys")
    l.start("up", "hub", "up", "--keys", own, "--folder", l.folder / "hub", "--port", str(l.port))
    wait_for(lambda: "the hub is up" in l.said("up"), 120)
    for name in NAMES:
        public = l.folder / "keys" / "nodes" / name / "flower.pub"
        assert (
            l.start(
                f"register-{name}", "hub", "register", name, public, "--folder", l.folder / "hub"
            ).wait(120)
            == 0
        ), l.said(f"register-{name}")
    l.join()
    l.run(plan)
    assert l.finish() == 0, l.said("run") + l.said("up")
    l.assert_equal(plan)
