"""What many clients cost a hub: seconds, CPU and memory of `coterie hub run` and of its gate.

python bench/crowd.py                   # a Markdown table; some minutes

Gate and hub are the real commands, each in a process of its own, over Zenoh with TLS on loopback.
All clients are in one more process: each has its own certificate and its own link, and answers at
once, with a message of the right form that it does not train for. So what is measured is the hub's
side of a round, and the wire; the clients' process takes CPU of the same machine. CPU is user and
system time, of the rounds after the first two; memory is the most that a process had.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()
INPUTS, LABELS, PORT = 784, 10, 7460
WARM_UP = 2


class Case(NamedTuple):
    """A method, the size of a model (hidden units; 0: logistic regression), so many clients."""

    method: str
    hidden: int
    clients: int
    merging: str = ""

    @property
    def rounds(self) -> int:
        """That are counted."""
        return 20 if self.hidden <= 100 else 3


CASES = (
    Case("fedavg", 0, 10),
    Case("fedavg", 0, 100),
    Case("fedavg", 100, 100),
    Case("fedavg", 1258, 100),
    Case("fedavg", 12579, 10),
    Case("fedavg", 12579, 100),
    Case("fedavg", 1258, 30, "krum"),
    Case("fedu", 0, 100),
    Case("fedu", 100, 100),
)


class Found(NamedTuple):
    """Of a process: CPU seconds so far, and the most memory in MB."""

    cpu: float
    memory: float


def plan_of(case: Case) -> Any:
    from coterie.deploy.plan import Plan, Rules
    from coterie.deploy.problem import Problem
    from coterie.engine.training import Training
    from coterie.methods.base import get_method
    from coterie.models.base import get_model

    problem = Problem("classification", (INPUTS,), tuple(map(str, range(LABELS))))
    rounds = WARM_UP + case.rounds
    training = Training(rounds=rounds, eval_every=rounds, batch_size=20)
    model = get_model("mlp", {"hidden": str(case.hidden)}) if case.hidden else get_model("mlr")
    names = tuple(f"site-{k}" for k in range(case.clients))
    merging = {"merging": case.merging} if case.merging else {}
    return Plan(
        "crowd",
        names,
        problem,
        model,
        training,
        get_method(case.method, {"local_steps": 5, **merging}),
        graph={"kind": "ring"} if case.method == "fedu" else {},
        rules=Rules(give_up=600.0),
    )


def crowd(folder: Path) -> None:
    """All clients, until they are told that the run is over."""
    import jax
    import jax.numpy as jnp

    from coterie.channel.codec import PlainCodec
    from coterie.deploy import compact
    from coterie.deploy.keys.authority import NodeIdentity
    from coterie.deploy.messages import Reply, Request
    from coterie.deploy.plan import Plan
    from coterie.deploy.setup import Setup
    from coterie.deploy.zenoh.net import Asked, Net, Published
    from coterie.deploy.zenoh.spokes import HUB, Spoke
    from coterie.deploy.zenoh.turns import READY, SEND

    plan = Plan.from_file(folder / "plan.toml")
    setup = Setup(plan)
    like = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.01, leaf.dtype), setup.message)
    frame, ready = PlainCodec().encode(like), {}
    """All answer with the same bytes, which are there once."""

    def answering(name: str, asked: Asked) -> bool:
        if asked.payload == SEND:
            asked.answer(compact.coded(ready[name]))
            return True
        request = compact.decoded(Request, asked.payload)
        says = (frame,) if request.kind == "work" and request.send else ()
        ready[name] = reply = Reply(plan.fingerprint, request.round, 100, 5, frames=says)
        asked.answer(READY if asked.hold and says else compact.coded(reply))
        return True

    with contextlib.ExitStack() as held:
        nets = []
        for name in plan.clients:
            identity = NodeIdentity.load(folder / "keys" / "nodes" / name)
            net = Net(Spoke(plan.name, name, f"127.0.0.1:{PORT}", (HUB,), identity), setup.largest)
            net.at_once = partial(answering, name)
            nets.append(held.enter_context(net))
        over = 0
        while over < len(nets):
            found = [net.next(0.0) for net in nets]
            over += sum(isinstance(event, Published) and b"over" in event.facts for event in found)
            time.sleep(0.05)


def looked_at(process: subprocess.Popen[bytes]) -> Found:
    stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    cpu = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    text = Path(f"/proc/{process.pid}/status").read_text()
    return Found(cpu, int(text.split("VmHWM:")[1].split()[0]) / 1024)


@contextlib.contextmanager
def running(folder: Path, log: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{log}.log").open("wb") as out:
        process = subprocess.Popen([sys.executable, *command], stdout=out, stderr=out, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


def until(what: str, there: Any, seconds: float, *processes: subprocess.Popen[bytes]) -> Any:
    end = time.monotonic() + seconds
    while not (found := there()):
        if time.monotonic() > end or any(p.poll() for p in processes):
            raise SystemExit(f"{what} did not come.")
        time.sleep(0.02)
    return found


def status(folder: Path) -> int:
    """The round that is open."""
    with contextlib.suppress(OSError, ValueError):
        return int(json.loads((folder / "hub" / "crowd" / "status.json").read_text())["round"])
    return -1


def measured(case: Case, folder: Path) -> str:
    from coterie.deploy.keys import authority as keys

    plan = plan_of(case)
    (folder / "plan.toml").write_text(plan.to_toml())
    keys.init(folder / "keys", "crowd")
    keys.issue(folder / "keys", "hub", role="hub", ips=["127.0.0.1"])
    for name in plan.clients:
        keys.issue(folder / "keys", name)
    home, here = str(folder / "hub"), ("--host", "127.0.0.1", "--port", str(PORT))
    up = ("-m", "coterie", "hub", "up", "--keys", "keys", "--folder", home, *here)
    run = ("-m", "coterie", "hub", "run", "plan.toml", "--folder", home)
    with contextlib.ExitStack() as held:
        gate = held.enter_context(running(folder, "gate", *up))
        until("the gate", (folder / "hub" / "hub.json").is_file, 120, gate)
        hub = held.enter_context(running(folder, "run", *run))
        admitted = lambda: b"may take part" in (folder / "gate.log").read_bytes()
        until("the plan", admitted, 300, gate, hub)
        all_ = held.enter_context(running(folder, "crowd", str(HERE), "crowd", str(folder)))
        looks = []
        for t in (WARM_UP, WARM_UP + case.rounds):
            until(f"round {t}", lambda t=t: status(folder) >= t, 900, gate, hub, all_)
            looks.append((time.monotonic(), looked_at(hub), looked_at(gate)))
        text = (folder / "run.log").read_text()
    seconds, *cpu = (
        (looks[1][0] - looks[0][0]) / case.rounds,
        *((looks[1][i].cpu - looks[0][i].cpu) / case.rounds for i in (1, 2)),
    )
    numbers = case.hidden * (INPUTS + LABELS + 1) + LABELS if case.hidden else INPUTS * 10 + 10
    how = "on disk" if "put aside" in text else "in memory"
    name = f"{case.method}, {case.merging}" if case.merging else case.method
    cells = [
        *(name, f"{numbers:,}", f"{case.clients}", how, f"{seconds:.2f}"),
        *(f"{cpu[0]:.2f}", f"{cpu[1]:.2f}", f"{1000 * sum(cpu) / case.clients:.1f}"),
        *(f"{looks[1][i].memory:,.0f}" for i in (1, 2)),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    if sys.argv[1:2] == ["crowd"]:
        return crowd(Path(sys.argv[2]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", type=int, nargs="*", help="numbers of the cases; nothing: all")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    print(
        "| method | d | N | messages | s/round | hub CPU, s | gate CPU, s | CPU, ms a client |"
        " hub memory, MB | gate memory, MB |\n|" + "---|" * 10,
        flush=True,
    )
    for case in CASES if given.case is None else [CASES[i] for i in given.case]:
        with tempfile.TemporaryDirectory(prefix="coterie-crowd-") as made:
            print(measured(case, Path(made)), flush=True)


if __name__ == "__main__":
    main()
