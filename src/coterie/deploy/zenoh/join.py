"""A client of a hub, over Zenoh: waits for questions, works, answers."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.files import locked
from coterie.deploy.board import Board, shown
from coterie.deploy.client import Client
from coterie.deploy.keys import authority as identities
from coterie.deploy.messages import Forgot, Rejected, read_json
from coterie.deploy.site import Site
from coterie.deploy.sites import of_one_client
from coterie.deploy.zenoh.conduct import connected, enter
from coterie.deploy.zenoh.net import Asked, Event, Net, Published, Seen
from coterie.deploy.zenoh.passport import Passport
from coterie.deploy.zenoh.peer import at_work
from coterie.deploy.zenoh.sight import LOOK_AGAIN
from coterie.deploy.zenoh.spokes import HUB, Spoke, endpoint
from coterie.deploy.zenoh.star import OVER, answer

Say = Callable[[str], None]
QUIET = 10.0
"""Seconds without a question until it is said that this client waits, and for what."""
SELDOM = 600.0
"""Seconds between the times that it is said again."""


def join(
    paths: Sequence[Path],
    *,
    newcomer: bool = False,
    say: Say = print,
    metrics: int | None = None,
) -> None:
    """Take part until all these plans are over, however long that takes; `metrics` is a port
    (board.py).

    newcomer: also where this client's folder was lost or set back. Raises Forgot else.
    """
    sites = of_one_client(paths)
    first = sites[0]
    endpoint(first.hub, f"{first.path}: hub")
    if first.keys is None:
        raise InvalidInput(
            f"{first.path}: keys is missing; it must be the folder that `coterie keys issue` made"
            f" for {first.name!r}."
        )
    identity = identities.NodeIdentity.load(first.keys)
    if identity.name != first.name:
        raise InvalidInput(
            f"{first.path}: name is {first.name!r}, but the keys in {str(first.keys)!r} are those"
            f" of {identity.name!r}."
        )
    passport, bell = Passport.shown(identity, say), threading.Event()
    with contextlib.ExitStack() as held:
        for site in sites:
            held.enter_context(at_work(site.folder))
        with contextlib.suppress(OSError):  # keys that cannot be written to cannot be locked
            held.enter_context(locked(first.keys))  # one identity, one process
        board = held.enter_context(shown(Board("client", first.name, identity.expires), metrics))
        seats = [Seat(site, passport, bell, say, newcomer=newcomer) for site in sites]
        board.connected = lambda: all(seat.net.linked() for seat in seats)
        board.statuses = lambda: [seat.status() for seat in seats]
        for seat in seats:
            held.enter_context(connected(seat.net, say))
            say(f"{seat.title}{first.name} is at the hub {first.hub}.")
        looked = time.monotonic()
        while not all(seat.over for seat in seats):
            bell.wait(0.5)
            bell.clear()
            if time.monotonic() - looked > LOOK_AGAIN:
                looked = time.monotonic()
                if (fresh := passport.renewed()) is not None:
                    passport, board.expires = fresh, fresh.identity.expires
                    for seat in seats:
                        seat.renew(fresh)
                passport.check()
            for seat in seats:
                seat.attend()
        for forgot in filter(None, (seat.forgot for seat in seats)):
            raise forgot
    say("done: the models are written.")


class Seat:
    """A client's place in one plan."""

    def __init__(
        self,
        site: Site,
        passport: Passport,
        bell: threading.Event,
        say: Say,
        *,
        newcomer: bool = False,
    ) -> None:
        self.plan, self.passport, self.tell = site.plan, passport, say
        self.title = f"{site.plan.name}: "
        self.client = Client(
            *(site.plan, site.number, site.worker(), site.folder),
            share_scores=site.share_scores,
            newcomer=newcomer,
            say=self.say,
        )
        self.forgot: Forgot | None = None
        """Why this client cannot go on."""
        spoke = Spoke(site.plan.name, site.name, site.hub, (HUB,), passport.identity)
        self.net = Net(spoke, self.client.worker.largest, bell.set)
        self.there = self.told_over = False
        self.connected = True
        self.news = self.since = time.monotonic()
        self.say_at = self.news + QUIET
        self.looked = float("-inf")

    def say(self, sentence: str) -> None:
        self.tell(self.title + sentence)

    def status(self) -> dict[str, Any]:
        kept, plan = self.client.kept, self.plan
        facts = {"round": self.client.rounds, "rounds": plan.exchanges, "finished": kept.finished}
        return {"name": plan.name, **facts}

    @property
    def over(self) -> bool:
        """The hub has said so; or it has gone after its last word, and not come back."""
        if not self.client.kept.finished or self.forgot:
            return self.forgot is not None
        gone = not self.there and time.monotonic() - self.since > self.plan.rules.patience
        return self.told_over or gone

    def attend(self) -> None:
        """All that has come, and what is to be said of what has not."""
        while (event := self.net.next(0)) is not None:
            self.handle(event)
        now = time.monotonic()
        if now - self.looked > LOOK_AGAIN:
            self.looked = now
            self.look(now)

    def look(self, now: float) -> None:
        if (linked := bool(self.net.other_ends())) != self.connected:
            self.connected = linked
            self.say("connected again." if linked else "the hub cannot be reached; waiting for it.")
        if now >= self.say_at:
            self.say_at = now + SELDOM
            where = (
                "" if self.there else " (its plan is not being run)" if linked else " (unreachable)"
            )
            end = " to end the run" if self.client.kept.finished else ""
            self.say(f"waiting for the hub{where}{end} since {now - self.news:.0f} s.")

    def handle(self, event: Event) -> None:
        if isinstance(event, Seen):
            if event.alive != self.there:
                self.say(f"the hub is {'there' if event.alive else 'gone'}.")
            self.there, self.since = event.alive, time.monotonic()
        elif isinstance(event, Asked):
            try:
                self.check_hub()
            except InvalidInput:
                event.answer(None)
                raise
            try:
                answer(self.client, event, self.say)
            except Forgot as error:
                if self.forgot is None:
                    self.say(f"stopped: {error}")
                self.forgot = error
            self.news = time.monotonic()
            self.say_at = self.news + QUIET
        elif isinstance(event, Published):
            self.hear(event)

    def hear(self, event: Published) -> None:
        """That the run is over, or a list of the revoked, which counts if the CA has signed it."""
        with contextlib.suppress(Rejected):
            facts = read_json(event.facts)
            self.told_over = self.told_over or facts == OVER
            if "crl" in facts:
                try:
                    if self.passport.revocations.offer(event.payload):
                        self.say(f"the list of the revoked is new (number {facts['crl']!r:.12}).")
                except InvalidInput as error:
                    self.say(f"a list of the revoked was not taken: {error}")

    def renew(self, passport: Passport) -> None:
        """Come back with another certificate. What was asked meanwhile is asked again."""
        assert isinstance(self.net.address, Spoke)
        self.passport = passport
        self.net.move(dataclasses.replace(self.net.address, identity=passport.identity))
        enter(self.net, self.say)

    def check_hub(self) -> None:
        """What this client is connected to must be a hub, and not be revoked."""
        assert not isinstance(self.plan.clients, int)
        for name in self.net.other_ends():
            if name in self.plan.clients:
                raise InvalidInput(
                    f"what listens there has the keys of {name!r}, a client"
                    " of the plan, and not a hub's; this client stops."
                )
            if name in self.passport.refused():
                raise InvalidInput(f"the hub {name!r} is revoked; this client stops.")
