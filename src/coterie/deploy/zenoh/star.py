"""The hub of a star asks, its clients work and answer: the questions of one run.

A hub is vertex 0 of a star, as the papers say.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.deploy import compact, messages, set_back
from coterie.deploy.client import Client
from coterie.deploy.hub import FILE, Hub
from coterie.deploy.hub_aside import at_a_time
from coterie.deploy.log import GaveUp
from coterie.deploy.messages import WIRE, Forgot, Refusal, Rejected, Reply, Request
from coterie.deploy.zenoh.net import Answered, Asked, Net, Seen, packed, unpacked
from coterie.deploy.zenoh.passport import Passport
from coterie.deploy.zenoh.sight import ASK_AGAIN, LATER, LOOK_AGAIN, SOON
from coterie.deploy.zenoh.spokes import Spoke
from coterie.deploy.zenoh.turns import READY, SEND, Turns

FRAMES = 1 << 12
"""The most frames that a message may have: a client that was away gets the broadcasts that it
missed.
"""
REPORT = 10.0
"""Seconds between sentences on how far the run is."""
OVER = {"over": True}

Show = Callable[[Hub, Collection[str]], None]
"""Is told, while the hub waits, for whom."""


class Asking:
    """The hub's side of the questions of one run."""

    def __init__(
        self,
        hub: Hub,
        net: Net,
        passport: Passport,
        *,
        say: Callable[[str], None],
        show: Show = lambda hub, waiting: None,
        enter: Callable[[Net], object] = Net.__enter__,
    ) -> None:
        self.hub, self.net, self.passport, self.say, self.show = hub, net, passport, say, show
        assert not isinstance(hub.plan.clients, int)
        self.names = hub.plan.clients
        self.alive: set[str] = set()
        self.asking: dict[int, int] = {}
        """Who has a question, and its number."""
        self.questions, self.turns = itertools.count(), Turns(at_a_time(hub.setup))
        self.ask_at = dict.fromkeys(range(len(self.names)), 0.0)
        self.pause = dict.fromkeys(range(len(self.names)), ASK_AGAIN[0])
        self.refused: frozenset[str] = frozenset()
        self.looked = self.reported = float("-inf")
        self.connected, self.enter = True, enter
        self.has_list: dict[str, int] = {}
        """Who has been sent the list of the revoked, and its number."""
        self.ahead: dict[int, int] = {}
        """Who has done this round already, by its own account, and the last round it has done."""
        self.reasons: dict[int, str] = {}
        """Why somebody does not answer in this round, in its own words."""

    # -- a run -------------------------------------------------------------------------------------

    def run(self) -> None:
        """To the end of the plan. Raises GaveUp, Diverged or InvalidInput."""
        hub = self.hub
        if hub.finished:
            self.say(f"the run {hub.plan.name!r} is finished already, after {hub.t} rounds.")
            return
        if (hub.folder / FILE).is_file():
            self.say(f"going on from round {hub.t} of {hub.plan.exchanges}.")
        if self.turns.most:
            self.say(f"answers are large: at most {self.turns.most} clients send theirs at a time.")
        self._stand()
        while not hub.done:
            self._round()
        self._farewell()
        hub.standing.clear()
        hub.tell()
        for name in self.alive - self.refused:
            self.net.send(name, OVER, b"")

    def _round(self) -> None:
        hub, rules = self.hub, self.hub.plan.rules
        what, goes_on = hub.title, rules.on_missing == "go-on"
        self.ahead.clear()
        self.reasons.clear()
        self.police(always=True)
        self.collect(rules.patience if goes_on else rules.give_up)
        silent = self._silent()
        if silent and goes_on and not hub.enough:
            self.collect(rules.give_up, until=lambda: hub.enough)
            silent = self._silent()
        if self.refused.issuperset(self.names) or (hub.finding and not hub.replies and not silent):
            raise GaveUp(f"{what}: nobody is left who may take part.")
        if silent and not (goes_on and hub.enough):
            raise GaveUp(
                f"{what}: no usable answer from {self._told(silent)} for {rules.give_up:g} s, and"
                " the plan asks for them; the run is saved, and the same command goes on where it"
                f" stopped. {self._way_out(silent)}".rstrip()
            )
        before, came = (hub.ledger.up, hub.ledger.down), len(hub.replies)
        hub.close()
        for k in self.turns.close():
            self.asking.pop(k, None)
        without = f", without {', '.join(silent)}" if silent else ""
        now = time.monotonic()
        if without or hub.done or what != f"round {hub.t - 1}" or now - self.reported > REPORT:
            self.reported = now
            up, down = hub.ledger.up - before[0], hub.ledger.down - before[1]
            done = f"{hub.t} of {hub.plan.exchanges} done"
            self.say(f"{what}: {came} clients{without}; {up} bytes up, {down} down ({done}).")

    def _farewell(self) -> None:
        rules = self.hub.plan.rules
        self.collect(rules.patience if rules.on_missing == "go-on" else rules.give_up)
        silent = self._silent()
        self.hub.end()
        self.say(
            "finished."
            if not silent
            else f"finished; {', '.join(silent)} did not hear the last word."
        )

    # -- who is there ------------------------------------------------------------------------------

    def missing(self) -> list[int]:
        return [k for k in self.hub.missing if self.names[k] not in self.refused]

    def _silent(self) -> list[str]:
        return [self.names[k] for k in self.missing()]

    def _told(self, names: Collection[str]) -> str:
        return ", ".join(
            name if name in self.alive else f"{name} (not connected)" for name in names
        )

    def _way_out(self, silent: Sequence[str]) -> str:
        """What can be done about those that are silent."""
        found = [self.reasons[k] for k in map(self.names.index, silent) if k in self.reasons][:1]
        if absent := [name for name in silent if name not in self.alive]:
            found.append(
                f"If {absent[0]} will never come back: `coterie keys revoke KEYS {absent[0]}`."
            )
        return " ".join(found)

    def _stand(self) -> None:
        """Say in the status who is there."""
        states = (("revoked", self.refused), ("there", self.alive))
        for name in self.names:
            self.hub.standing[name] = next((word for word, who in states if name in who), "gone")
        with contextlib.suppress(CoterieError, OSError):
            self.hub.tell()

    def police(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if not always and now - self.looked < LOOK_AGAIN:
            return
        self.looked = now
        self.renew()
        self.passport.check()
        self.pass_on()
        refused = self.passport.refused() & set(self.names)
        for name in sorted(refused - self.refused):
            self.say(f"{self.hub.title}: {name} is revoked: it is not asked and does not count.")
        if refused != self.refused:
            self.refused = refused
            self._stand()
        if (connected := bool(self.net.other_ends())) != self.connected:
            self.connected = connected
            self.say(
                "the gate is there again."
                if connected
                else "the gate is gone: is `coterie hub up` running? Waiting for it."
            )

    def renew(self) -> None:
        """Take up a certificate that was put in the place of this one: a new session, in which
        everybody is asked again.
        """
        if (fresh := self.passport.renewed()) is None:
            return
        assert isinstance(self.net.address, Spoke)
        self.passport = fresh
        self.net.move(dataclasses.replace(self.net.address, identity=fresh.identity))
        self.enter(self.net)
        self.asking.clear()
        self.turns = Turns(self.turns.most)
        self.alive.clear()
        self.has_list.clear()

    def pass_on(self) -> None:
        """Give the list of the revoked to those that are there and have not got it yet; they look
        whether the CA has signed it.
        """
        if (found := self.passport.newest()) is None:
            return
        number, data = found
        for name in sorted(self.alive):
            if self.has_list.get(name) != number:
                self.has_list[name] = number
                self.net.send(name, {"crl": number}, data)

    # -- questions and answers ---------------------------------------------------------------------

    def collect(self, patience: float, until: Callable[[], bool] = lambda: False) -> None:
        """Ask until all have answered, or enough have, or nothing came for so many seconds."""
        news, late, asking, event = time.monotonic(), 0, 0, None
        say_at = news + SOON
        while (missing := self.missing()) and not until():
            self.police()
            now = time.monotonic()
            more = self.ask_some([k for k in missing if self._may_ask(k, now)], event is None)
            if more and asking < 4 * len(self.names):  # patience begins when all are asked
                news, asking = now, asking + 1
            self.show(self.hub, [self.names[k] for k in missing])
            if now >= say_at:
                say_at = now + LATER
                self.say(
                    f"{self.hub.title}: waiting for {self._told(self._silent())} since"
                    f" {now - news:.0f} s."
                )
            event = self.net.next(0.0 if more else min(0.5, max(0.01, news + patience - now)))
            if now - news > patience:
                late += 1
                if event is None or late > 4 * len(self.names):  # what waited has been looked at
                    return
            if isinstance(event, Seen):
                self.see(event)
            elif isinstance(event, Asked):
                event.answer(None)  # nobody asks a hub
            elif isinstance(event, Answered) and self.take(event):
                news, late, say_at = time.monotonic(), 0, time.monotonic() + SOON

    def see(self, event: Seen) -> None:
        if (event.name in self.alive) != event.alive:
            self.say(f"{event.name} is {'there' if event.alive else 'gone'}.")
            self.has_list.pop(event.name, None)
        (self.alive.add if event.alive else self.alive.discard)(event.name)
        self._stand()
        self.ask_at[self.names.index(event.name)] = 0.0
        self.asking.pop(self.names.index(event.name), None)  # on a link that is no more
        self.turns.leave(self.names.index(event.name))

    def ask_some(self, who: list[int], idle: bool) -> bool:
        """Ask these; True when some are left: large requests take time, and are sent one by one,
        while nothing comes.
        """
        some = who if self.turns.most is None else who[:1] if idle else []
        for k in some:
            self.ask(k)
        for k in self.turns.next(time.monotonic()):
            self.send_for(k, SEND)
        return len(some) < len(who)

    def _may_ask(self, k: int, now: float) -> bool:
        return self.names[k] in self.alive and k not in self.asking and now >= self.ask_at[k]

    def ask(self, k: int) -> None:
        request = self.hub.question(k)
        self.asking[k] = next(self.questions)
        self.ask_at[k] = time.monotonic() + self.pause[k]
        self.pause[k] = min(2 * self.pause[k], ASK_AGAIN[1])
        self.send_for(k, compact.coded(request), hold=self.turns.most is not None)

    def send_for(self, k: int, payload: bytes, *, hold: bool = False) -> None:
        """Put a question to client k."""
        # As long as its link stands a client is at work, or its answer is on its way: a slow link
        # must not make a hub ask twice.
        question = (k, self.hub.stage, self.asking[k])
        timeout = max(60.0, self.hub.plan.rules.give_up)
        self.net.ask(self.names[k], question, payload, timeout, hold=hold)

    def take(self, event: Answered) -> bool:
        """An answer, or the notice that there is none; True when it counts."""
        hub, (k, stage, number) = self.hub, event.question
        if self.asking.get(k) == number:
            if event.payload == READY and stage == hub.stage and self.turns.wait(k):
                return False
            del self.asking[k]
            self.turns.leave(k)
        if event.payload is None or stage != hub.stage or event.name in self.refused:
            return False
        try:
            reply = self.opened(k, event)
            if hub.take(k, reply):
                self.pause[k], self.ask_at[k] = ASK_AGAIN[0], 0.0
                return True
            self.say(
                f"{hub.title}: {event.name} had its folder lost or set back, and goes on as a"
                " newcomer: the result is not the plan's exact one any more."
                if reply.newcomer
                else f"{hub.title}: {event.name} has lost track and gets a whole copy."
            )
            self.ask_at[k] = 0.0
        except Refusal as error:
            self.refuse(k, error)
        except Rejected as error:
            self.say(
                f"{hub.title}: rejected a message of {event.name} ({hub.clients[k].rejected} so"
                f" far): {error}"
            )
        return False

    def refuse(self, k: int, error: Refusal) -> None:
        """A client says why it cannot answer. Raises InvalidInput when all say that they are ahead
        of this hub: nothing that it could wait for would come.
        """
        if error.done is None or error.done < self.hub.t:
            told = f"{self.names[k]} cannot answer: {error}"
            self.reasons[k] = told if told.endswith(".") else f"{told}."
            self.say(f"{self.hub.title}: {told}")
            return
        remedy = self.reasons[k] = set_back.remedy(self.hub, self.names[k], error.done)
        if k not in self.ahead:
            self.say(remedy)
        self.ahead[k] = error.done
        if not self.hub.replies and self.ahead.keys() >= set(self.missing()):
            raise InvalidInput(remedy)

    def opened(self, k: int, event: Answered) -> Reply:
        assert event.payload is not None
        try:
            if event.disputed:
                raise Rejected(
                    "two processes answer under this name, and not alike; stop one of them."
                )
            reply: Reply = opened(Reply, event.payload, 1)
            return reply
        except Rejected:
            self.hub.reject(k)
            raise


def opened(kind: type[Any], payload: bytes, most_frames: int) -> Any:
    """A Request or Reply, of this version or the one before. Raises Refusal and Rejected."""
    if compact.is_compact(payload):
        return compact.decoded(kind, payload, most_frames)
    try:
        return messages.opened(kind, *unpacked(payload, most_frames))
    except Refusal as error:
        older = (
            f" (It answers in version 2 of the protocol, and this hub asks in {messages.WIRE}:"
            " upgrade it.)"
        )
        raise Refusal(f"{error}{older}", error.done) from None


def answer(client: Client, event: Asked, say: Callable[[str], None]) -> None:
    """Do what the hub asks for, if it may ask for it; or say why not. Both in the hub's version.
    An answer that is to be held is on disk, and sent when the hub asks for it.

    Raises Forgot, when the hub has been told.
    """
    if event.payload == SEND:
        last = client.kept.reply
        event.answer(None if last is None else compact.coded(dataclasses.replace(last, wire=WIRE)))
        return
    reply, now = None, compact.is_compact(event.payload)
    refusal = lambda error: compact.refusal(error) if now else packed(messages.refusal(error), ())
    try:
        made = client.answer(opened(Request, event.payload, FRAMES))
        if event.hold and made.frames:
            reply = READY
        else:
            reply = compact.coded(made) if now else packed(messages.envelope(made), made.frames)
    except Forgot as error:
        reply = refusal(error)
        raise
    except (CoterieError, OSError) as error:
        say(f"not answered: {error}")
        reply = refusal(error)
    finally:
        event.answer(reply)
