"""A peer that finds its neighbours by itself, from its first round alone to its last: it looks for
kin, does its rounds with them, looks again if the plan says so, and stays for those that may still
need it.

While it looks again it answers its old neighbours, which may be a round behind and need what it
sent last. Once it is through, all others have begun this search as well (finding.py), so nobody
needs that any more. What it keeps is in two files, of the search and of the rounds; which of them
is ahead says where a peer that was killed goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coterie.deploy.finding import Finding
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.worker import Worker
from coterie.deploy.zenoh.driver import Driver
from coterie.deploy.zenoh.net import Asked, Event, Published
from coterie.deploy.zenoh.seeking import Seeker
from coterie.deploy.zenoh.sight import Network, listed


class Roamer:
    """One such peer on one network; `options` are those of `Seeker` and `Driver`."""

    def __init__(
        self, plan: Plan, number: int, worker: Worker, folder: Path, net: Network, **options: Any
    ) -> None:
        assert not isinstance(plan.clients, int)
        self.plan, self.number, self.worker, self.folder = plan, number, worker, folder
        self.name, self.net, self.options = plan.clients[number], net, options
        self.say = options.get("say", lambda sentence: None)
        self.finding = Finding(plan, number, worker, folder, say=self.say)
        self.seeker = Seeker(self.finding, net, **options)
        self.peer: Peer | None = None
        self.driver: Driver | None = None
        self.searching, self.over, self._carried = True, False, 0
        whose = {"plan": plan.fingerprint, "peer": self.name}
        if (look := Peer.look_on_disk(folder, whose)) is not None:
            self.peer = self._opened(look)
            if not self.finding.through:
                self._drive(self.peer)  # for its old neighbours
        if not self.finding.through:
            self.say(f"{self.finding.kept.t} rounds done; looking for kin.")

    def _opened(self, look: int) -> Peer:
        place = self.plan, self.name, self.number, self.finding.kin(look), self.worker, self.folder
        return Peer(*place, found=self.finding.found, say=self.say)

    def _drive(self, peer: Peer) -> Driver:
        if self.driver is not None:
            self._carried += self.driver.carried.total()
        self.driver = Driver(peer, self.seeker, **self.options)
        return self.driver

    @property
    def carried(self) -> int:
        """Bytes of messages of rounds that this process has put on the wire."""
        return self._carried + (self.driver.carried.total() if self.driver is not None else 0)

    def run(self) -> Peer:
        """Until all is done. Raises GaveUp, InvalidInput or Diverged."""
        while True:
            for _ in range(64):  # not for ever: who talks without end must not stop the work
                if (event := self.net.next(0)) is None:
                    break
                self.handle(event)
            wait = self.step()
            if wait is None:
                assert self.peer is not None
                return self.peer
            if wait > 0 and (event := self.net.next(wait)) is not None:
                self.handle(event)

    def handle(self, event: Event) -> None:
        if self.seeker.mine(event):
            return
        if self.searching and isinstance(event, Published):
            self.seeker.hold(event)
        elif self.driver is not None and not self.over:
            self.driver.handle(event)
        elif isinstance(event, Asked):
            event.answer(None)  # of rounds, which have not begun here

    def step(self) -> float | None:
        """Do what can be done now; how long to wait for events before the next step, or nothing
        when all is done.
        """
        self.finding.round = self.finding.kept.t if self.peer is None else self.peer.t
        if self.searching:
            wait = self.seeker.step()
            if wait is None:
                self._begin_rounds()
                return 0.0
            return wait
        assert self.driver is not None
        assert self.peer is not None
        if not self.over:
            self.seeker.ask_around()
            wait = self.driver.step()
            if wait is not None:
                return wait
            if not self.peer.done:
                self.finding.look_again(self.peer.so_far)
                self.seeker.begin()
                self.searching = True
                return 0.0
            self.over = True
        return self.seeker.stay()

    def _begin_rounds(self) -> None:
        """The kin are found."""
        look = self.finding.kept.look
        if self.peer is None:
            self.peer = self._opened(look)
        elif self.peer.kept.look < look:
            self.peer.join(look, self.finding.kin(look), self.finding.found.ledger)
        events, driver = self.seeker.ready(), self._drive(self.peer)
        self.searching = False
        self.say(f"round {self.peer.t} of {self.plan.exchanges}, with {listed(driver.sights)}.")
        for event in events:
            driver.handle(event)
