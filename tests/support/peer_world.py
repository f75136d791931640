"""A made-up network with a made-up clock: drivers of peers run on it in one process, the same way
every time.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh.net import Answered, Asked, Event, Published, Seen
from coterie.deploy.zenoh.peer import Driver
from tests.support.peering import NAMES, little, open_peer

LATENCY = 0.01


class Port:
    """A node's end of the network: what a Driver sees as a Net."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.queue: list[Event] = []
        self.at_once: Callable[[Asked], bool] = lambda asked: False

    @property
    def events(self) -> Port:
        return self

    def put(self, event: Event) -> None:
        self.queue.append(event)

    def next(self, timeout: float) -> Event | None:
        return self.queue.pop(0) if self.queue else None

    def send(self, name: str, facts: Mapping[str, Any] | bytes, payload: bytes) -> None:
        told = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
        if not self.world.loses(self.name, name):
            self.world.send(
                self.name,
                name,
                lambda port: port.put(Published(self.name, told, payload)),
            )

    def ask(self, name: str, question: Any, payload: bytes, timeout: float) -> None:
        world, open_ = self.world, [True]

        def answered(answer: bytes | None) -> None:
            if (
                open_
                and world.nodes.get(self.name) is not None
                and world.nodes[self.name].net is self
            ):
                open_.clear()
                self.put(Answered(name, question, answer))
                world.wake(self.name)

        def asked(port: Port) -> None:
            def answer(reply: bytes | None) -> None:
                if reply is not None:
                    world.send(name, self.name, lambda _: answered(reply))

            one = Asked(self.name, payload, answer)
            if not port.at_once(one):
                port.put(one)

        world.send(self.name, name, asked)
        world.at(world.now + timeout, lambda: answered(None))


class World:
    """Peers that live and die by a script: `world.at(seconds, what)`."""

    def __init__(
        self, plan: Plan, folder: Path, work: float = 0.05, latency: float = LATENCY
    ) -> None:
        self.plan, self.folder, self.work, self.latency = plan, folder, work, latency
        self.loses: Callable[[str, str], bool] = lambda sender, receiver: False
        self.now = 0.0
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.nodes: dict[str, Driver] = {}
        self.asleep: set[str] = set()
        self.cut: set[frozenset[str]] = set()
        self.refused: set[str] = set()
        self.ended: dict[str, Any] = {}
        self.lines: list[str] = []
        self.wakes: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self.peers: dict[str, Peer] = {}
        self.drivers: dict[str, Driver] = {}
        """The last of each peer, also after its end."""

    # -- what happens ------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), what))

    def wake(self, name: str, when: float | None = None) -> None:
        if name in self.nodes:
            when = max(self.now if when is None else when, self.busy.get(name, 0.0))
            if when < self.wakes.get(name, float("inf")):
                self.wakes[name] = when
                self.at(when, lambda: self._turn(name, when))

    def start(self, *names: str) -> None:
        for name in names or NAMES:
            peer = open_peer(
                self.plan, little(), NAMES.index(name), self.folder, self._saying(name)
            )
            self.peers[name] = peer
            port = Port(self, name)
            self.wakes.pop(name, None)
            self.busy.pop(name, None)
            self.nodes[name] = Driver(
                peer,
                port,
                say=self._saying(name),
                refused=partial(self._refused_by, name),
                clock=lambda: self.now,
            )
            self.drivers[name] = self.nodes[name]
            self.wake(name)
            for other in peer.neighbours:
                if other in self.nodes and self.linked(name, other):
                    self._meet(name, other, True)

    def _refused_by(self, name: str) -> set[str]:
        return self.refused - {name}

    def kill(self, *names: str) -> None:
        for name in names:
            del self.nodes[name]
            self.asleep.discard(name)
            for other in self.peers[name].neighbours:
                if other in self.nodes and self.linked(name, other):
                    self.at(
                        self.now + 0.2,
                        lambda other=other, name=name: (
                            name not in self.nodes and self._saw(other, name, False)
                        ),
                    )

    def pause(self, *names: str) -> None:
        """As SIGSTOP does; seen when the lease is over."""
        self.asleep |= set(names)
        for name in names:
            for other in self.peers[name].neighbours:
                self.at(
                    self.now + 10,
                    lambda other=other, name=name: (
                        name in self.asleep and self._saw(other, name, False)
                    ),
                )

    def resume(self, *names: str) -> None:
        for name in names:
            self.asleep.discard(name)
            for other in self.peers[name].neighbours:
                if other in self.nodes and self.linked(name, other):
                    self._meet(name, other, True)
            self.wakes.pop(name, None)
            self.wake(name)

    def split(self, a: str, b: str) -> None:
        self.cut.add(frozenset((a, b)))
        self.at(self.now + 10, lambda: frozenset((a, b)) in self.cut and self._meet(a, b, False))

    def heal(self, a: str, b: str) -> None:
        self.cut.discard(frozenset((a, b)))
        if a in self.nodes and b in self.nodes:
            self._meet(a, b, True)

    def linked(self, a: str, b: str) -> bool:
        return frozenset((a, b)) not in self.cut

    def send(self, sender: str, receiver: str, what: Callable[[Port], None]) -> None:
        target = self.nodes.get(receiver)

        def arrive() -> None:
            if (
                target is not None
                and self.nodes.get(receiver) is target
                and self.linked(sender, receiver)
            ):
                if receiver in self.asleep:
                    self.at(self.now + 1.0, arrive)
                    return
                what(target.net)  # type: ignore[arg-type]
                self.wake(receiver)

        self.at(self.now + self.latency, arrive)

    def _meet(self, a: str, b: str, alive: bool) -> None:
        for x, y in ((a, b), (b, a)):
            self.at(self.now + self.latency, lambda x=x, y=y: self._saw(x, y, alive))

    def _saw(self, who: str, whom: str, alive: bool) -> bool:
        if who in self.nodes and (not alive or whom in self.nodes):
            self.nodes[who].net.put(Seen(whom, alive))  # type: ignore[attr-defined]
            self.wake(who)
        return True

    def _saying(self, name: str) -> Callable[[str], None]:
        return lambda sentence: self.lines.append(f"{self.now:8.2f} {name}: {sentence}")

    # -- time --------------------------------------------------------------------------------------

    def _turn(self, name: str, when: float) -> None:
        driver = self.nodes.get(name)
        if driver is None or name in self.asleep or self.wakes.get(name) != when:
            return
        del self.wakes[name]
        while (event := driver.net.next(0)) is not None:
            driver.handle(event)
        before = driver.sent_round
        try:
            wait = driver.step()
        except Exception as error:
            self.ended[name] = error
            self.kill(name)
            return
        if wait is None:
            self.ended[name] = None
            self.kill(name)
            return
        if driver.sent_round != before:
            self.busy[name] = self.now + self.work
        self.wake(name, self.now + wait)

    def run(self, seconds: float) -> None:
        """Until nothing more happens; fails when that takes longer."""
        while self._agenda:
            when, _, what = heapq.heappop(self._agenda)
            if not self.nodes and not any(w > self.now for w, _, _ in self._agenda):
                return
            self.now = max(self.now, when)
            assert self.now < seconds, (
                "stuck:\n"
                + "\n".join(self.lines[-60:])
                + str({n: d.peer and d.peer.t for n, d in self.nodes.items()})
            )
            what()
