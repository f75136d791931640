"""Peers that find their kin on a made-up network with a made-up clock."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from coterie.data.federation import Federation
from coterie.deploy.plan import Plan
from coterie.deploy.worker import Worker
from coterie.deploy.zenoh.roaming import Roamer
from tests.support.peer_world import Port, World


class Node(Roamer):
    """A process of a peer."""

    def __init__(self, world: SeekingWorld, name: str) -> None:
        number = world.names.index(name)
        super().__init__(
            *(world.plan, number, world.workers[number], world.folder / name, Port(world, name)),
            say=world._saying(name),
            refused=partial(world._refused_by, name),
            clock=lambda: world.now,
        )

    @property
    def sent_round(self) -> int:
        return self.driver.sent_round if self.driver else self.finding.kept.t - 1000


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
