"""A hub and its clients on the same network as peers: the hub asks, a client works and answers.

A hub is vertex 0 of a star, as the papers say.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from coterie.core.errors import InvalidInput
from coterie.deploy import messages
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.messages import Rejected, Reply, Request
from coterie.deploy.site import Site
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.net import Answered, Asked, Net, Seen, packed, unpacked
from coterie.deploy.zenoh.peer import Passport, at_work
from coterie.deploy.zenoh.sight import ASK_AGAIN, LOOK_AGAIN, GaveUp, listed

FRAMES = 1 << 12
"""The most frames that a message may have: a client that was away gets the broadcasts that it
missed.
"""
FAREWELL = 5.0
"""Seconds that a client stays after its last answer, should that have got lost."""


def run_star(site: Site, say: Callable[[str], None]) -> Hub | Client:
    """Hub or client, as the config says."""
    return run_hub(site, say) if site.role == "hub" else run_client(site, say)


class Asking:
    """The hub's side of the questions of one run."""

    def __init__(self, hub: Hub, net: Net, passport: Passport, say: Callable[[str], None]) -> None:
        self.hub, self.net, self.passport, self.say = hub, net, passport, say
        assert not isinstance(hub.plan.clients, int)
        self.names = hub.plan.clients
        self.alive: set[str] = set()
        self.asking: dict[int, int] = {}
        """Who has a question, and its number."""
        self.questions = itertools.count()
        self.ask_at = dict.fromkeys(range(len(self.names)), 0.0)
        self.pause = dict.fromkeys(range(len(self.names)), ASK_AGAIN[0])
        self.refused: frozenset[str] = frozenset()
        self.looked = float("-inf")

    def missing(self) -> list[int]:
        return [k for k in self.hub.missing if self.names[k] not in self.refused]

    def police(self) -> None:
        if time.monotonic() - self.looked < LOOK_AGAIN:
            return
        self.looked = time.monotonic()
        self.passport.check()
        refused = self.passport.refused() & set(self.names)
        for name in refused - self.refused:
            self.say(f"round {self.hub.t}: {name} is revoked; it is not asked any more.")
        self.refused = refused

    def collect(self, patience: float) -> None:
        """Ask until all have answered, or until nothing came for so many seconds."""
        news = time.monotonic()
        while missing := self.missing():
            self.police()
            now = time.monotonic()
            if now - news > patience:
                return
            for k in missing:
                if self.names[k] in self.alive and k not in self.asking and now >= self.ask_at[k]:
                    self.ask(k)
            event = self.net.next(min(0.5, max(0.01, news + patience - now)))
            if isinstance(event, Seen):
                self.say(f"{event.name} is {'there' if event.alive else 'gone'}.")
                (self.alive.add if event.alive else self.alive.discard)(event.name)
                self.ask_at[self.names.index(event.name)] = 0.0
                self.asking.pop(self.names.index(event.name), None)  # on a link that is no more
            elif isinstance(event, Asked):
                event.answer(None)  # nobody asks a hub
            elif isinstance(event, Answered) and self.take(event):
                news = time.monotonic()

    def ask(self, k: int) -> None:
        hub = self.hub
        request = hub.farewells()[k] if hub.done else hub.requests()[k]
        self.asking[k] = next(self.questions)
        self.ask_at[k] = time.monotonic() + self.pause[k]
        self.pause[k] = min(2 * self.pause[k], ASK_AGAIN[1])
        # As long as its link stands a client is at work, or its answer is on its way: a slow link
        # must not make a hub ask twice.
        question = (k, hub.stage, self.asking[k])
        self.net.ask(
            self.names[k],
            question,
            packed(messages.envelope(request), request.frames),
            max(60.0, hub.plan.rules.give_up),
        )

    def take(self, event: Answered) -> bool:
        """An answer, or the notice that there is none; True when it counts."""
        hub, (k, stage, number) = self.hub, event.question
        if self.asking.get(k) == number:
            del self.asking[k]
        if event.payload is None or stage != hub.stage or event.name in self.refused:
            return False
        try:
            reply = self.opened(k, event.payload)
            if hub.take(k, reply):
                self.pause[k], self.ask_at[k] = ASK_AGAIN[0], 0.0
                return True
            self.ask_at[k] = 0.0  # it has lost track: it is asked again, with a whole copy
        except Rejected as error:
            self.say(f"{hub.title}: a message of {event.name} is rejected: {error}")
        return False

    def opened(self, k: int, payload: bytes) -> Reply:
        try:
            text, frames = unpacked(payload, 1)
            reply: Reply = messages.opened(Reply, text, frames)
            return reply
        except Rejected:
            self.hub.reject(k)
            raise


def run_hub(site: Site, say: Callable[[str], None]) -> Hub:
    """The hub, from its config to the last word to all clients."""
    plan, rules = site.plan, site.plan.rules
    if isinstance(plan.clients, int) or site.name in plan.clients:
        raise InvalidInput(
            f"the hub is named {site.name!r}, but that is a client of the plan; a hub with role ="
            ' "hub" has a name of its own.'
        )
    passport = Passport.of(site, say)
    hub = Hub(plan, site.folder, say=say)
    ends = {n.who.name: n.endpoint for n in site.neighbours}
    if strangers := set(ends) - set(plan.clients):
        raise InvalidInput(
            f"the neighbours of the hub name {sorted(strangers)[0]!r}, which is no client of the"
            " plan."
        )
    there = {name: ends.get(name, "") for name in plan.clients if name not in passport.refused()}
    address = Address(plan.name, site.name, site.listen, there, passport.identity)
    with at_work(site.folder), Net(address, 4 * hub.largest) as net:
        say(f"round {hub.t} of {plan.exchanges}, hub of {listed(there)}.")
        asking = Asking(hub, net, passport, say)
        goes_on = rules.on_missing == "go-on"
        while not hub.done:
            asking.collect(rules.patience if goes_on else rules.give_up)
            silent = [asking.names[k] for k in asking.missing()]
            if silent and goes_on and not hub.enough:
                asking.collect(rules.give_up)
                silent = [asking.names[k] for k in asking.missing()]
            heard = any(k in hub.replies for k in hub.cohort)
            if not heard or (silent and not (goes_on and hub.enough)):
                raise GaveUp(
                    f"{hub.title}: nothing came from {listed(silent)} for {rules.give_up:g} s,"
                    " and the plan asks for their answers; the hub stops, and the same command"
                    " goes on where it stopped."
                )
            if silent:
                say(f"{hub.title}: {listed(silent)} did not answer; going on without.")
            hub.close()
        if not hub.finished:
            asking.collect(rules.patience if goes_on else rules.give_up)
            if silent := [asking.names[k] for k in asking.missing()]:
                say(f"{listed(silent)} did not take the last word.")
            hub.end()
    say(f"done: {plan.exchanges} rounds, {hub.ledger.up} bytes up, {hub.ledger.down} down.")
    return hub


def run_client(site: Site, say: Callable[[str], None]) -> Client:
    """A client of a hub, until the hub has said its last word."""
    plan = site.plan
    if len(site.neighbours) != 1:
        raise InvalidInput(
            f"{plan.method.name} needs a hub: a client has one neighbour, the hub, but here are"
            f" {len(site.neighbours)}."
        )
    passport = Passport.of(site, say)
    hub = site.neighbours[0].who.name
    if hub in passport.refused():
        raise InvalidInput(f"the hub {hub!r} is revoked.")
    address = Address(
        plan.name, site.name, site.listen, {hub: site.neighbours[0].endpoint}, passport.identity
    )
    client = Client(
        plan, site.number, site.worker(), site.folder, share_scores=site.share_scores, say=say
    )
    with at_work(site.folder), Net(address, 4 * client.largest) as net:
        say(f"{client.rounds} rounds done of {plan.exchanges}; waiting for {hub}.")
        news = looked = time.monotonic()
        while True:
            event = net.next(0.5)
            now = time.monotonic()
            if now - looked > LOOK_AGAIN:
                looked = now
                passport.check()
                if hub in passport.refused():
                    raise InvalidInput(f"the hub {hub!r} is revoked; this client stops.")
            if isinstance(event, Seen):
                say(f"{hub} is {'there' if event.alive else 'gone'}.")
                if client.kept.finished and not event.alive:
                    break
            elif isinstance(event, Asked):
                answer(client, event, hub, say)
                news = time.monotonic()
            if client.kept.finished and now - news > FAREWELL:
                break
            if now - news > plan.rules.give_up:
                raise GaveUp(
                    f"nothing came from {hub} for {plan.rules.give_up:g} s; this client stops, and"
                    " the same command goes on where it stopped."
                )
    say("done: the models are written.")
    return client


def answer(client: Client, event: Asked, hub: str, say: Callable[[str], None]) -> None:
    """Do what the hub asks for, if it may ask for it."""
    reply = None
    try:
        text, frames = unpacked(event.payload, FRAMES)
        request: Request = messages.opened(Request, text, frames)
        made = client.answer(request)
        reply = packed(messages.envelope(made), made.frames)
    except Rejected as error:
        say(f"a request of {hub} is rejected: {error}")
    finally:
        event.answer(reply)
