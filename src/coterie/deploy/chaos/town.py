"""The federation that is struck: a hub with three clients, or five peers on a ring with a chord;
every participant that is called stands behind a proxy.
"""

from __future__ import annotations

import abc
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie import load
from coterie.core.files import make_folder, write_text
from coterie.coupling.graph import from_matrix
from coterie.deploy.chaos.proxy import Proxies
from coterie.deploy.demo.outcome import Row, compared, hub_bill, peer_bill
from coterie.deploy.demo.processes import Processes, round_of, wait_for
from coterie.deploy.demo.setting import (
    client_file,
    make_keys,
    make_plan,
    neighbour,
    peer_file,
    ring_with_a_chord,
)
from coterie.deploy.ports import free_ports
from coterie.deploy.site import save_own

FULL = 600
"""Bytes that a file may have where the disk is full: less than any state needs."""
SKEW = 600.0


class Struck(Processes):
    """Processes that may be started with a wrong clock or a full disk."""

    def start_struck(self, name: str, kind: str, amount: float, *arguments: str) -> None:
        command = ["-m", "coterie.deploy.chaos.struck", kind, f"{amount:.0f}", *arguments]
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # what it says does not go to the full disk
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.running[name] = process
        threading.Thread(target=self._write_down, args=(name, process), daemon=True).start()

    def _write_down(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with (self.folder / f"{name}.log").open("ab") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()


class Town(abc.ABC):
    """Participants by name, their commands, and how far they are."""

    participants: tuple[str, ...]
    linked: tuple[str, ...]
    """Those whose link can be struck."""

    def __init__(self, folder: Path, clients: int) -> None:
        make_folder(folder)
        self.folder, self.fed = folder, load("digits", clients=clients)
        self.processes, self.proxies = Struck(folder / "logs"), Proxies()

    @abc.abstractmethod
    def command(self, name: str) -> tuple[str, ...]:
        """What a participant types."""

    @abc.abstractmethod
    def round(self) -> int:
        """The round that the federation is in."""

    @abc.abstractmethod
    def rows(self) -> list[Row]:
        """Everybody's models beside the simulator's."""

    @property
    @abc.abstractmethod
    def enders(self) -> tuple[str, ...]:
        """Those that end by themselves when all rounds are done."""

    def open(self) -> None:
        """Start everybody."""
        for name in self.participants:
            self.start(name)

    def start(self, name: str, kind: str = "", amount: float = 0.0) -> None:
        if kind:
            self.processes.start_struck(name, kind, amount, *self.command(name))
        else:
            self.processes.start(name, *self.command(name))

    def over(self) -> bool:
        running = self.processes.running
        ended = [running[name].poll() if name in running else None for name in self.enders]
        return all(code == 0 for code in ended)

    def failed(self) -> str:
        """Who ended badly, in words; nothing: nobody."""
        for name, process in self.processes.running.items():
            if process.poll() not in (None, 0):
                words = self.processes.last_words(name)
                return f"{name} ended with code {process.returncode}: {words}"
        return ""

    def close(self) -> None:
        self.processes.stop()
        self.proxies.close()


class HubTown(Town):
    """FedU over a hub: all models are alike to the last bit."""

    def __init__(self, folder: Path, rounds: int) -> None:
        super().__init__(folder, 3)
        self.names = tuple(f"site-{k}" for k in range(3))
        self.participants, self.linked = ("hub", "gate", *self.names), self.names
        make_keys(folder / "keys", self.names, "client")
        from coterie.deploy.keys import authority as keys

        keys.issue(folder / "keys", "hub", ["localhost"], ["127.0.0.1"], role="hub")
        self.port, *doors = free_ports(1 + len(self.names))
        self.plan = make_plan(
            "chaos", "fedu", {"local_steps": 2}, list(self.names), self.fed, rounds
        )
        write_text(folder / "plan.toml", self.plan.to_toml())
        for k, (name, door) in enumerate(zip(self.names, doors, strict=True)):
            self.proxies.open(name, door, self.port)
            (folder / name).mkdir()
            save_own(self.fed, k, folder / name / "data.npz")
            client_file(folder / name, f"127.0.0.1:{door}", "plan.toml", "state", "site.toml")

    def open(self) -> None:
        self.start("gate")
        gate = self.processes.running["gate"]
        wait_for("the gate", (self.folder / "hub" / "hub.json").is_file, 120, gate)
        for name in ("hub", *self.names):
            self.start(name)

    def command(self, name: str) -> tuple[str, ...]:
        hub = str(self.folder / "hub")
        if name == "gate":
            keys = ("--keys", str(self.folder / "keys"))
            return ("hub", "up", *keys, "--folder", hub, "--port", str(self.port))
        if name == "hub":
            return ("hub", "run", str(self.folder / "plan.toml"), "--folder", hub)
        return ("client", "join", str(self.folder / name / "site.toml"))

    def round(self) -> int:
        return round_of(self.folder / "hub" / self.plan.name / "status.json")

    @property
    def enders(self) -> tuple[str, ...]:
        return ("hub", *self.names)

    def rows(self) -> list[Row]:
        bill = hub_bill(self.folder / "hub" / self.plan.name, self.plan.training.rounds)
        folders = [self.folder / name / "state" for name in self.names]
        return compared(self.plan, self.fed, self.plan.coupling, self.names, folders, bill)


class PeerTown(Town):
    """dFedU without a server."""

    def __init__(self, folder: Path, rounds: int) -> None:
        super().__init__(folder, 5)
        self.names = self.participants = self.linked = tuple(f"peer-{k}" for k in range(5))
        make_keys(folder / "keys", self.names, "peer")
        self.weights = ring_with_a_chord()
        free = free_ports(5 + int(np.count_nonzero(self.weights)))
        ports, doors = free[:5], iter(free[5:])
        self.plan = make_plan("chaos", "dfedu", {"local_steps": 2}, 5, self.fed, rounds)
        write_text(folder / "plan.toml", self.plan.to_toml())
        for k, name in enumerate(self.names):
            (folder / name).mkdir()
            save_own(self.fed, k, folder / name / "data.npz")
            peer_file(folder / name, k, ports[k], self._neighbours(k, ports, doors))

    def _neighbours(
        self, k: int, ports: Sequence[int], doors: Iterator[int]
    ) -> list[dict[str, Any]]:
        """Each is called at a door of its own: it is not known which end of an edge calls the
        other, and whoever is struck must be struck in both.
        """
        found = []
        for l in map(int, np.flatnonzero(self.weights[k])):
            door = next(doors)
            self.proxies.open(self.names[l], door, ports[l], self.names[k])
            found.append(neighbour(self.names[l], l, door, float(self.weights[k, l])))
        return found

    def command(self, name: str) -> tuple[str, ...]:
        return ("peer", "--config", str(self.folder / name / "peer.toml"))

    def round(self) -> int:
        """Of the one that is furthest behind."""
        return min(round_of(self.folder / name / "state" / "status.json") for name in self.names)

    @property
    def enders(self) -> tuple[str, ...]:
        return self.names

    def rows(self) -> list[Row]:
        folders = [self.folder / name / "state" for name in self.names]
        graph = from_matrix(self.weights, "ring with a chord")
        return compared(self.plan, self.fed, graph, self.names, folders, peer_bill(folders))
