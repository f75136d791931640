"""Peers that find their kin on a made-up network with a made-up clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from coterie.data.federation import Federation
from coterie.deploy.finding import Finding
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.worker import Worker
from coterie.deploy.zenoh.net import Event
from coterie.deploy.zenoh.peer import Driver
from coterie.deploy.zenoh.seeking import Seeker
from tests.support.peer_world import Port, World


class Node:
    """A process: a peer that looks for its kin, then does its rounds, then stays for others."""

    def __init__(self, world: SeekingWorld, name: str) -> None:
        self.world, self.name, self.net = world, name, Port(world, name)
        self.number = world.names.index(name)
        self.say = world._saying(name)
        self.worker = world.workers[self.number]
        self.folder = world.folder / name
        self.finding = Finding(world.plan, self.number, self.worker, self.folder, say=self.say)
        self.options: dict[str, Any] = {
            "say": self.say,
            "refused": partial(world._refused_by, name),
            "clock": lambda: world.now,
        }
        self.seeker = Seeker(self.finding, self.net, **self.options)
        self.driver: Driver | None = None
        self.over = False

    @property
    def peer(self) -> Any:
        return self.driver.peer if self.driver else SimpleNamespace(t=f"step {self.finding.step}")

    @property
    def sent_round(self) -> int:
        return self.driver.sent_round if self.driver else self.finding.kept.t - 1000

    def handle(self, event: Event) -> None:
        if self.driver is None or self.over:
            self.seeker.handle(event)
        elif not self.seeker._mine(event):
            self.driver.handle(event)

    def step(self) -> float | None:
        if self.driver is None:
            wait = self.seeker.step()
            if wait is not None:
                return wait
            self.seeker.ready()
            peer = Peer(
                self.world.plan,
                self.name,
                self.number,
                self.finding.neighbours,
                self.worker,
                self.folder,
                found=self.finding.found,
                say=self.say,
            )
            self.driver = Driver(peer, self.seeker, **self.options)
            while self.seeker._held:
                self.driver.handle(self.seeker._held.pop(0))
            return 0.0
        if not self.over:
            self.seeker._ask_around()
            wait = self.driver.step()
            if wait is not None:
                return wait
            self.over, self.seeker.ended = True, self.world.now
        return self.seeker.stay()


class SeekingWorld(World):
    """All may meet all."""

    def __init__(self, plan: Plan, fed: Federation, folder: Path, **options: float) -> None:
        super().__init__(plan, folder, **options)
        assert not isinstance(plan.clients, int)
        self.names = plan.clients
        self.workers = [Worker(plan, k, fed.subset(np.array([k]))) for k in range(fed.clients)]
        self.last: dict[str, Node] = {}

    def start(self, *names: str) -> None:
        for name in names or self.names:
            node = Node(self, name)
            self.last[name] = node
            self.nodes[name] = node  # type: ignore[assignment]
            others = [n for n in self.names if n != name]
            self.peers[name] = SimpleNamespace(neighbours=others)  # type: ignore[assignment]
            self.wakes.pop(name, None)
            self.busy.pop(name, None)
            self.wake(name)
            for other in others:
                if other in self.nodes and self.linked(name, other):
                    self._meet(name, other, True)
