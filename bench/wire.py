"""Bytes on the wire: how much of a channel's saving is left once TLS, TCP and the carrier are paid.

python bench/wire.py                        # as root (network namespaces); some minutes
python bench/wire.py zenoh --problem mnist-logistic --rounds 50

A hub and its clients run as real processes, each in a network namespace of its own, joined by a
bridge. They run FedU with models of the sizes of experiments/bytes: once with whole models, and
with `delta`, `pick = "cyclic"`, `values = "int4"`, at the shares whose savings the README names;
then what those send that talk rarely.
The carriers are Zenoh (`coterie hub`, `coterie client`) and Flower (its own commands, with the app
of docs/deploy-flower.md), both with TLS.

The bytes are the kernel's counters of the bridge's ports to the clients. They hold everything:
Ethernet, IP and TCP headers, acknowledgements, TLS records, envelopes, heartbeats and polling.
Segmentation offload is off, so every packet of 1,500 bytes has its own headers, as on a cable.
They are read when the hub's status.json shows a new round. The first rounds are left out, and so
are connecting and the farewell (bench/wire_runs.py has them). "payload" is what the hub's ledger
bills. A second table splits the bytes, packet by packet (bench/wire_split.py).

Zenoh's links say now and then that they stand; Flower's clients ask for work every few seconds.
What that costs is measured apart, while nobody talks ("idle"), and a round pays it for as long as
it takes. So what a round costs depends on how busy the machines are; the last column takes the idle
bytes out.

The data are random numbers: the length of a message does not depend on them.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import fcntl
import json
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wire_carriers import PLAN, Crew, address, start_flower, start_zenoh
from wire_split import HEAD, Looker, Split, split

BRIDGE, PREFIX = "cowb", "cow"
WARM_UP = 3
"""Rounds that are not counted: the first ones may send whole copies."""
CARRIERS = ("zenoh", "flower")


FEW = {
    "whole, 4 bits": 'name = "plain", values = "int4", down = true',
    "largest 10%, 4 bits": 'name = "delta", share = 0.1, values = "int4"',
}
"""What is sent of a model by who talks rarely: a label, and the channel."""
SKETCHES = "largest 10%, 4 bits, and a sketch"
"""A sketch of 64 numbers before every round: what finding kin costs is the difference to those
without.
"""


class Problem(NamedTuple):
    """A model's size, and the shares of it that are sent in turn."""

    inputs: int
    classes: int
    model: str
    shares: tuple[float, ...]

    def forms(self) -> dict[str, str]:
        """What is measured: labels, and channels."""
        turns = lambda share: f'name = "delta", share = {share}, pick = "cyclic", values = "int4"'
        in_turn = {f"in turn, {100 * share:g}%": turns(share) for share in self.shares}
        little = {SKETCHES: FEW["largest 10%, 4 bits"]}
        return {"whole": 'name = "plain"', **in_turn, **FEW, **little}


PROBLEMS = {
    "mnist-logistic": Problem(784, 10, 'name = "mlr"', (0.01, 0.0145)),
    "mnist-perceptron": Problem(784, 10, 'name = "mlp"\nhidden = "100"', (0.0145, 0.02)),
    "har": Problem(561, 6, 'name = "mlr"', (0.013, 0.03)),
}


class Counted(NamedTuple):
    """Bytes of all clients, from the clients' side."""

    up: int
    down: int

    def __sub__(self, other: Counted) -> Counted:  # type: ignore[override]
        return Counted(self.up - other.up, self.down - other.down)


class Found(NamedTuple):
    """Per client and round."""

    payload: float
    up: float
    down: float
    seconds: float
    idle: float
    """Bytes per client and second while nothing is trained."""
    split: Split

    @property
    def wire(self) -> float:
        return self.up + self.down

    @property
    def busy(self) -> float:
        """The wire's bytes less those that would have gone over it without a run."""
        return self.wire - self.idle * self.seconds


# -- the network -----------------------------------------------------------------------------------


def sh(command: str, *, check: bool = True) -> str:
    return subprocess.run(command.split(), check=check, capture_output=True, text=True).stdout


def no_offload() -> None:
    """Switch off eth0's segmentation offload (as `ethtool -K eth0 tso off gso off` does)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in (0x1F, 0x24):  # ETHTOOL_STSO, ETHTOOL_SGSO
            value = array.array("I", [command, 0])
            request = struct.pack("16sP", b"eth0", value.buffer_info()[0])
            fcntl.ioctl(s, 0x8946, request)  # SIOCETHTOOL


@contextlib.contextmanager
def lab(count: int) -> Iterator[list[str]]:
    """So many namespaces on a bridge that is in a namespace of its own."""
    names = [f"{PREFIX}{k}" for k in range(count)]
    try:
        sh(f"ip netns add {BRIDGE}")
        sh(f"ip -n {BRIDGE} link add bridge type bridge")
        sh(f"ip -n {BRIDGE} link set bridge up")
        for k, name in enumerate(names):
            sh(f"ip netns add {name}")
            quiet = "net.ipv6.conf.all.disable_ipv6=1"
            sh(f"ip netns exec {name} sysctl -qw {quiet}", check=False)
            sh(f"ip -n {name} link set lo up")
            sh(f"ip link add eth0 netns {name} type veth peer name port{k} netns {BRIDGE}")
            subprocess.run(
                ["ip", "netns", "exec", name, sys.executable, __file__, "no-offload"], check=True
            )
            sh(f"ip -n {BRIDGE} link set port{k} master bridge")
            sh(f"ip -n {BRIDGE} link set port{k} up")
            sh(f"ip -n {name} addr add {address(k)}/24 dev eth0")
            sh(f"ip -n {name} link set eth0 up")
        yield names
    finally:
        for name in (*names, BRIDGE):
            sh(f"ip netns del {name}", check=False)


def counted(clients: int) -> Counted:
    """What went over the clients' ports so far."""
    links = {link["ifname"]: link for link in json.loads(sh(f"ip -n {BRIDGE} -s -j link"))}
    ports = [links[f"port{k}"]["stats64"] for k in range(clients)]
    return Counted(sum(p["rx"]["bytes"] for p in ports), sum(p["tx"]["bytes"] for p in ports))


# -- participants ----------------------------------------------------------------------------------


def coterie(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "coterie", *arguments]
    subprocess.run(command, check=True, cwd=folder, capture_output=True)


def prepare(
    folder: Path, problem: Problem, sent: str, clients: int, rounds: int, every: int = 1
) -> None:
    """Keys, data and the plan, with an exchange in every so manieth round. The hub is the last one
    on the bridge.
    """
    channel, graph = problem.forms()[sent], 'kind = "complete"'
    if sent == SKETCHES:
        graph = 'kind = "learn"\nrule = { name = "kin", after = 1, every = 1, sketch = 64 }'
    names = [f"site-{k}" for k in range(clients)]
    coterie(folder, "keys", "init", "keys", "--name", "wire")
    for k, name in enumerate(names):
        coterie(folder, "keys", "issue", "keys", name, "--ip", address(k))
        drawn = np.random.default_rng(k)
        x = drawn.standard_normal((100, problem.inputs)).astype(np.float32)
        y = drawn.integers(0, problem.classes, 100)
        np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    local = ("--ip", "127.0.0.1", "--host", "localhost")
    coterie(
        folder, "keys", "issue", "keys", "hub", "--role", "hub", "--ip", address(clients), *local
    )
    (folder / "plan.toml").write_text(
        f"""\
name = "{PLAN}"
clients = {json.dumps(names)}
[problem]
inputs = [{problem.inputs}]
labels = {json.dumps([str(label) for label in range(problem.classes)])}
[model]
{problem.model}
[training]
rounds = {rounds}
eval_every = {rounds}
batch_size = 20
[method]
name = "fedu"
eta = 0.01
lr = 0.03
local_steps = 5
exchange_every = {every}
implicit = {"true" if every > 1 else "false"}
channel = {{ {channel} }}
[graph]
{graph}
[rules]
on_missing = "wait"
patience = 120
give_up = 600
"""
    )


def measured(folder: Path, carrier: str, clients: int, rounds: int, look: bool = True) -> Found:
    """`look`: also at what goes over the wire while nobody talks."""
    with lab(clients + 1) as spaces:
        crew, looker = Crew(folder, spaces), Looker(BRIDGE, clients)
        try:
            if carrier == "zenoh":
                run, idle = start_zenoh(crew, clients, counted, 21.0 * look)
            else:
                run, idle = start_flower(crew, clients, counted)
            first = reading(crew, run, clients, WARM_UP)
            before = looker.counted()
            last = reading(crew, run, clients, WARM_UP + rounds)
            seen = looker.counted() - before
        finally:
            crew.stop()
            looker.stop()
    done = last[0] - first[0]
    share = done * clients
    paid, wire = (last[2] - first[2]) / share, last[1] - first[1]
    seconds = (last[3] - first[3]) / done
    parts = split(seen, share, paid)
    return Found(paid, wire.up / share, wire.down / share, seconds, idle, parts)


def reading(crew: Crew, run: Path, clients: int, t: int) -> tuple[int, Counted, int, float]:
    """When round t or a later one begins: its number, the wire, the bill so far, the clock."""
    now: dict[str, Any] = {}

    def there() -> bool:
        with contextlib.suppress(OSError, ValueError):
            now.update(json.loads((run / "status.json").read_text()))
        return int(now.get("round", -1)) >= t

    crew.wait(f"round {t} of {run.name}", there, 900)
    return int(now["round"]), counted(clients), int(now["up"]) + int(now["down"]), time.monotonic()


def main() -> None:
    if sys.argv[1:] == ["no-offload"]:
        return no_offload()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("carriers", nargs="*", metavar="|".join(CARRIERS), help="nothing: both")
    parser.add_argument("--problem", action="append", choices=PROBLEMS, help="nothing: all")
    parser.add_argument(
        "--rounds", type=int, help="that are counted; nothing: 200 over Zenoh, 20 over Flower"
    )
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--sent", action="append", help="besides whole, only what begins so")
    given = parser.parse_args()
    if strange := set(given.carriers) - set(CARRIERS):
        parser.error(f"{strange.pop()!r} is neither 'zenoh' nor 'flower'")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is taken down
    print(
        "| carrier | model | sent | payload | wire, up | wire, down | wire, both | s/round |"
        " idle, B/s | payload, times fewer | wire, times fewer | wire less idle, times fewer |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    splits = [f"| carrier | model | sent | {HEAD} |", "|---" * 11 + "|"]
    for carrier in given.carriers or CARRIERS:
        for name in given.problem or PROBLEMS:
            whole = None
            for sent in PROBLEMS[name].forms():
                if given.sent and sent != "whole" and not sent.startswith(tuple(given.sent)):
                    continue
                with tempfile.TemporaryDirectory(prefix="coterie-wire-") as made:
                    # Zenoh's rounds take milliseconds: the plan must outlast the first look.
                    rounds = given.rounds or (200 if carrier == "zenoh" else 20)
                    planned = WARM_UP + rounds + (100 if carrier == "zenoh" else 2)
                    prepare(Path(made), PROBLEMS[name], sent, given.clients, planned)
                    f = measured(Path(made), carrier, given.clients, rounds, whole is None)
                whole = whole or f
                f = f._replace(idle=f.idle or whole.idle)
                splits.append(f"| {carrier} | {name} | {sent} | {f.split.row()} |")
                print(
                    f"| {carrier} | {name} | {sent} | {f.payload:,.0f} | {f.up:,.0f} |"
                    f" {f.down:,.0f} | {f.wire:,.0f} | {f.seconds:.2f} | {f.idle:,.0f} |"
                    f" {whole.payload / f.payload:,.0f} | {whole.wire / f.wire:,.1f} |"
                    f" {whole.busy / f.busy:,.1f} |",
                    flush=True,
                )
    print("\n" + "\n".join(splits))


if __name__ == "__main__":
    main()
