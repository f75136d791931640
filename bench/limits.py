"""What strangers and lying clients can do to a hub's gate: memory, and rounds lost.

    python -m bench.limits                 # the table of docs/deploy-hub.md, some minutes
    python -m bench.limits --share 0.05    # a twentieth of everything

The gate is `coterie hub up`, a process of its own. A second one asks three honest clients, which
are in a third one, in rounds: all are asked, and the next round begins when all have answered. The
attacks are made here. Memory is what the gate and the asking process hold at most during an attack,
beyond what they held before it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from coterie.core.errors import CoterieError
from coterie.core.parent import child_of_this, ends_with_parent
from coterie.deploy.keys import authority as keys
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh.conduct import connected
from coterie.deploy.zenoh.gate import enrol, read_hub
from coterie.deploy.zenoh.net import Answered, Asked, Net, zenoh
from coterie.deploy.zenoh.spokes import HUB, Enrolled, Spoke

PLAN, HONEST, LIAR, NEWCOMER = "limits", ("ward-a", "ward-b", "ward-c"), "ward-d", "ward-e"
HOME, STRANGER = "127.0.0.1", "127.0.0.9"
"""The address that clients call from, and that of strangers; limits are by address."""
FRAME = 40_000
"""Bytes of a message: 10⁴ parameters."""
MB = 1 << 20


def net(folder: Path, name: str, near: tuple[str, ...] = (HUB,)) -> Net:
    who = keys.NodeIdentity.load(folder / "keys" / "nodes" / ("hub" if name == HUB else name))
    place = read_hub(folder / "hub")["place"]
    return Net(Spoke(PLAN, name, place, near, who), 2 * FRAME)


# -- what is attacked ------------------------------------------------------------------------------


def ask(folder: Path) -> None:
    """Rounds without end; a line for each."""
    with net(folder, HUB, (*HONEST, LIAR)) as hub:
        asked = 0.0
        while True:
            for name in HONEST:
                hub.ask(name, name, bytes(FRAME), 30.0)
            if time.monotonic() > asked + 0.25:  # nobody waits for the liar
                asked = time.monotonic()
                hub.ask(LIAR, LIAR, bytes(FRAME), 30.0)
            missing = set(HONEST)
            while missing:
                event = hub.next(1.0)
                if isinstance(event, Answered) and event.name in missing:
                    if event.payload is None:
                        time.sleep(0.1)
                        hub.ask(event.name, event.name, bytes(FRAME), 30.0)
                    else:
                        missing.discard(event.name)
            print("round", flush=True)


def answer(folder: Path) -> None:
    """The honest clients."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(net(folder, name)) for name in HONEST]
        while True:
            for client in clients:
                if isinstance(event := client.next(0.005), Asked):
                    event.answer(bytes(FRAME))


class Hub:
    """The processes of a federation under attack."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rounds = folder, list[float]()
        keys.init(folder / "keys", "limits")
        for name in (*HONEST, LIAR, NEWCOMER):
            keys.issue(folder / "keys", name)
        keys.issue(folder / "keys", "hub", role="hub")
        (folder / "hub").mkdir()
        enrol(folder / "hub", PLAN, Enrolled((*HONEST, LIAR, NEWCOMER), 2 * FRAME))
        self.port, self.processes = free_port(), dict[str, subprocess.Popen[str]]()

    def __enter__(self) -> Hub:
        up = ("--keys", self.folder / "keys", "--folder", self.folder / "hub", "--port", self.port)
        self.start("gate", "coterie", "hub", "up", *up)
        while not (self.folder / "hub" / "hub.json").is_file():
            assert self.processes["gate"].poll() is None, "the gate has ended"
            time.sleep(0.1)
        self.start("clients", "bench.limits", "--answer", self.folder)
        self.start("hub", "bench.limits", "--ask", self.folder)
        threading.Thread(target=self._count, daemon=True).start()
        end = time.monotonic() + 120
        while len(self.rounds) < 3:
            assert time.monotonic() < end, "no round was done"
            time.sleep(0.1)
        return self

    def start(self, name: str, module: str, *arguments: Any) -> None:
        piped = subprocess.PIPE if name == "hub" else subprocess.DEVNULL
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdout=piped,
            stderr=subprocess.DEVNULL,
            text=True,
            env=child_of_this(),
        )

    def _count(self) -> None:
        lines = self.processes["hub"].stdout
        assert lines is not None
        for _ in lines:
            self.rounds.append(time.monotonic())

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def memory(self, name: str) -> int:
        """Bytes that a process holds now."""
        status = Path(f"/proc/{self.processes[name].pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


# -- attacks ---------------------------------------------------------------------------------------


def stranger(port: int, address: str = STRANGER) -> socket.socket:
    return socket.create_connection((HOME, port), 1.0, (address, 0))


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            with contextlib.suppress(OSError):
                made.append(stack.enter_context(stranger(port)))
        yield made


def idle(hub: Hub, share: float, seconds: float) -> None:
    with connections(hub.port, round(1100 * share)):
        time.sleep(seconds)


def slowly(hub: Hub, share: float, seconds: float) -> None:
    """Handshakes that come byte by byte; who is hung up on comes back."""
    hello, end = (
        bytes.fromhex("16030100c8010000c40303") + os.urandom(180),
        time.monotonic() + seconds,
    )
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(connections(hub.port, round(200 * share)))
        at = 0
        while time.monotonic() < end:
            for i, one in enumerate(made):
                try:
                    one.send(hello[at % len(hello) : at % len(hello) + 1])
                except OSError:
                    with contextlib.suppress(OSError):
                        made[i] = stack.enter_context(stranger(hub.port))
            at += 1
            time.sleep(0.2)


def bodies(hub: Hub, share: float, seconds: float) -> None:
    """Three strangers, who send as much as is taken of 1 GiB each."""
    body = bytes(MB)

    def one() -> None:
        with contextlib.suppress(OSError), stranger(hub.port) as s:
            for _ in range(round(1024 * share)):
                s.sendall(body)

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(seconds / 2)


def nonsense(hub: Hub, share: float, seconds: float) -> None:
    """Handshakes that fail, 20 a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError), connections(hub.port, 1) as (one,):
            one.send(bytes(100))
        time.sleep(0.05)


def strange(hub: Hub, share: float, seconds: float, address: str = STRANGER) -> None:
    """TLS handshakes without a certificate, 20 a second."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            stranger(hub.port, address) as raw,
            context.wrap_socket(raw) as link,
        ):
            link.recv(1)
        time.sleep(0.05)


def crowding(hub: Hub, share: float, seconds: float) -> None:
    """A client opens sessions, as many as it gets of 100."""
    with contextlib.ExitStack() as stack:
        for _ in range(round(100 * share)):
            with contextlib.suppress(CoterieError, zenoh.ZError):
                stack.enter_context(net(hub.folder, LIAR))
        time.sleep(seconds / 2)


def written(hub: Hub, share: float, seconds: float) -> None:
    """A client writes three messages of 1 GiB where it may not."""
    payload = bytes(round(1024 * share) * MB)
    with net(hub.folder, LIAR) as liar:

        def one() -> None:
            key = f"coterie/{PLAN}/{LIAR}/to/{HUB}"
            with contextlib.suppress(zenoh.ZError):
                block = zenoh.CongestionControl.BLOCK
                liar._session.put(key, payload, congestion_control=block)

        for _ in range(3):
            one()
        time.sleep(2.0)


def answered(hub: Hub, share: float, seconds: float) -> None:
    """A client answers every question with 300 MB."""
    payload, end = bytes(round(300 * share * 1_000_000)), time.monotonic() + seconds
    with net(hub.folder, LIAR) as liar:
        while time.monotonic() < end:
            if isinstance(event := liar.next(0.5), Asked):
                event.answer(payload)


def flooded(hub: Hub, share: float, seconds: float) -> None:
    """A client says small things without end where it may not."""
    end = time.monotonic() + seconds
    with net(hub.folder, LIAR) as liar:
        while time.monotonic() < end:
            for _ in range(100):
                liar._session.put(f"coterie/{PLAN}/{LIAR}/to/{HUB}", bytes(1000))


ATTACKS: dict[str, tuple[str, Callable[[Hub, float, float], None]]] = {
    "idle": ("1,100 connections that say nothing", idle),
    "slowly": ("200 handshakes, byte by byte, again and again", slowly),
    "bodies": ("3 strangers, 1 GiB each", bodies),
    "nonsense": ("a stranger, 20 times a second nonsense", nonsense),
    "strange": ("a stranger, 20 handshakes a second without a certificate", strange),
    "near": ("the same from the clients' own address", partial(strange, address=HOME)),
    "written": ("a client writes 3 × 1 GiB where it may not", written),
    "answered": ("a client answers with 300 MB, again and again", answered),
    "flooded": ("a client floods with small messages", flooded),
    "crowding": ("a client opens 100 sessions", crowding),
}


class Harm(NamedTuple):
    """What an attack did."""

    gate: float
    """MB that the gate held at most beyond what it held before; the same of the asking process:"""
    asker: float
    seconds: float
    rounds: int
    pause: float
    """The longest time without a round."""
    late: float
    """Seconds until a client was let in that came in the middle of it."""


def under(hub: Hub, attack: Callable[[], None], newcomer_after: float) -> Harm:
    before = {name: hub.memory(name) for name in ("gate", "hub")}
    most, over, begun = dict(before), threading.Event(), time.monotonic()

    def watch() -> None:
        while not over.wait(0.05):
            for name in most:
                most[name] = max(most[name], hub.memory(name))

    def come() -> None:
        time.sleep(newcomer_after)
        came = time.monotonic()
        with connected(net(hub.folder, NEWCOMER), lambda sentence: None):
            late.append(time.monotonic() - came)

    late: list[float] = []
    watcher, newcomer = threading.Thread(target=watch), threading.Thread(target=come)
    watcher.start()
    newcomer.start()
    try:
        attack()
    finally:
        over.set()
        watcher.join()
    end = time.monotonic()
    newcomer.join()
    done = [t for t in hub.rounds if begun <= t <= end]
    pauses = [b - a for a, b in zip([begun, *done], [*done, end], strict=True)]
    grown = [(most[name] - before[name]) / 1e6 for name in ("gate", "hub")]
    return Harm(*grown, end - begun, len(done), max(pauses), late[0])


def measured(share: float, seconds: float, names: list[str]) -> dict[str, Harm]:
    """Every attack after the other, and first none."""
    with tempfile.TemporaryDirectory() as folder, Hub(Path(folder)) as hub:
        found = {"": under(hub, lambda: time.sleep(seconds), seconds / 2)}
        for name in names:
            found[name] = under(hub, partial(ATTACKS[name][1], hub, share, seconds), seconds / 2)
            time.sleep(1.0)
        return found


def table(found: dict[str, Harm]) -> str:
    rows = [
        "| attack | gate, MB | hub, MB | rounds a second | longest pause, s | newcomer waits, s |",
        "|---|---|---|---|---|---|",
    ]
    for name, harm in found.items():
        title = ATTACKS[name][0] if name else "none"
        rate = harm.rounds / harm.seconds
        rows.append(
            f"| {title} | +{harm.gate:.0f} | +{harm.asker:.0f} | {rate:.0f} | {harm.pause:.1f} |"
            f" {harm.late:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", default=[*ATTACKS])
    parser.add_argument("--share", type=float, default=1.0, help="of the size of every attack")
    parser.add_argument("--seconds", type=float, default=20.0, help="for those that last")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    ends_with_parent()
    if given.ask:
        ask(given.ask)
    elif given.answer:
        answer(given.answer)
    else:
        print(table(measured(given.share, given.seconds, given.attacks)))


if __name__ == "__main__":
    main()
