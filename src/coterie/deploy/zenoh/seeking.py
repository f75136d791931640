"""Drives a peer that looks for its kin among all participants of a plan, and answers those that
still look for theirs when it has gone on to its rounds.

A `Seeker` stands between the network and what drives the rounds: questions and answers of the
search are its own business, everything else is not.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.finding import Finding
from coterie.deploy.log import GaveUp
from coterie.deploy.messages import Rejected, read_json
from coterie.deploy.zenoh.net import Answered, Asked, Event, Published, Seen, packed, unpacked
from coterie.deploy.zenoh.sight import ANSWER_WITHIN, LATER, LOOK_AGAIN, SOON, Network, listed

KIND = "find"
ASK_AGAIN = (0.05, 1.0)
"""Seconds between questions to somebody who is not as far: at first, at most."""
HELD = 8
"""Messages of rounds that are kept of each neighbour that is ahead."""


class Seeker:
    """One peer that looks for its kin; for its rounds a network like any other."""

    def __init__(
        self,
        finding: Finding,
        net: Network,
        *,
        say: Callable[[str], None] = lambda sentence: None,
        refused: Callable[[], Collection[str]] = frozenset,
        check_self: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.finding, self.net, self.say, self.clock = finding, net, say, clock
        self.rules, self.names = finding.plan.rules, finding.names
        self.numbers = {name: k for k, name in enumerate(self.names)}
        self.alive: set[str] = set()
        self.places: dict[int, tuple[int, int, int]] = {}
        """Where others say they are: search, step of it, round."""
        self.news: dict[int, float] = {}
        self.asking: dict[int, float] = {}
        self.ask_at: dict[int, float] = {}
        self.pause: dict[int, float] = {}
        self.gone: set[int] = set()
        self.told: set[tuple[int, int]] = set()
        """Who knows of which searches that this peer is through."""
        self.ended = float("inf")
        self._asked_around = float("-inf")
        self.since, self._announced, self._looked = clock(), float("-inf"), float("-inf")
        self._refused, self._check_self = refused, check_self
        self.refused: frozenset[str] = frozenset()
        self._held: list[Event] = []
        self._kept = Counter[str]()
        self.complaints = Counter[str]()
        self.at_once: Callable[[Asked], bool] = lambda asked: False
        """For questions of rounds, when there are some."""
        self.events = net.events
        net.at_once = self._at_once

    # -- the search --------------------------------------------------------------------------------

    def begin(self) -> None:
        """A search begins."""
        self.since = self.clock()
        self.asking.clear()
        self._rested()

    def ready(self) -> list[Event]:
        """The kin are found; what is known of the network, and what came for the rounds."""
        found = self.finding.kin(self.finding.kept.look)
        self.say(f"its kin: {listed([n.name for n in found])}.")
        held, self._held = self._held, []
        self._kept.clear()
        return [*(Seen(name, True) for name in sorted(self.alive)), *held]

    def step(self) -> float | None:
        """Do what can be done now; how long to wait for events, or nothing when all is found."""
        now, finding = self.clock(), self.finding
        self._police(now)
        if finding.step < 0:
            finding.train()
            self.since = self.clock()
            return 0.0
        if finding.through:
            return None
        awaited = [k for k in finding.awaited if self._can_answer(k)]
        if not awaited:
            self._go_on()
            return 0.0
        silence = {k: now - max(self.since, self.news.get(k, self.since)) for k in awaited}
        if self.rules.on_missing == "go-on":
            left = max(self._limit(k) - silence[k] for k in awaited)
            if left <= 0:
                self.say(f"{listed(self._called(awaited))} did not answer; going on without.")
                self._go_on()
                return 0.0
        else:
            left = self.rules.give_up - min(silence.values())
            if left <= 0:
                raise GaveUp(
                    f"looking for kin: nothing came from {listed(self._called(awaited))} for"
                    f" {self.rules.give_up:g} s, and the plan says to wait; this peer stops, and"
                    " the same command goes on where it stopped."
                )
        self._announce(now, awaited)
        finding.show()
        return max(1e-3, min(left, self._ask(now, awaited)))

    def _can_answer(self, k: int) -> bool:
        """Whether somebody may still answer in this search. Raises InvalidInput where that can
        only be because a folder was lost.
        """
        look = self.finding.kept.look
        if self.places.get(k, (0,))[0] <= look + 1:
            return self.names[k] not in self.refused
        if self.rules.on_missing == "go-on":
            return False
        raise InvalidInput(
            f"looking for kin: {self.names[k]} has done two searches more than this peer; with"
            ' on_missing = "wait" that happens only when a peer\'s folder was lost or replaced:'
            " restore it, or begin a new run."
        )

    def _limit(self, k: int) -> float:
        """How long somebody may be silent. A federation begins together: the first step waits."""
        if self.finding.stage == 0:
            return max(self.rules.give_up, self.rules.patience)
        return self.rules.patience * (2 if self.names[k] in self.alive else 1)

    def _go_on(self) -> None:
        self.finding.go_on(self.finding.awaited)
        self.since = self.clock()
        self._rested()

    def _rested(self) -> None:
        self.ask_at.clear()
        self.pause.clear()

    def _called(self, numbers: Collection[int]) -> list[str]:
        return [self.names[k] for k in numbers]

    def _announce(self, now: float, awaited: list[int]) -> None:
        since = self.ended if self.ended <= now else self.since
        if now - since > SOON and now - self._announced > LATER:
            self._announced = now
            away = [self.names[k] for k in awaited if self.names[k] not in self.alive]
            missing = f" (not connected: {listed(away)})" if away else ""
            self.say(
                f"looking for kin: waiting for {listed(self._called(awaited))} since"
                f" {now - since:.0f} s{missing}."
            )

    def _ask(self, now: float, whom: Collection[int], least: float = ASK_AGAIN[0]) -> float:
        """Ask those that are there; seconds until the next question."""
        due = [LOOK_AGAIN]
        for k in whom:
            if self.names[k] not in self.alive:
                continue
            if k in self.asking and now - self.asking[k] < 2 * ANSWER_WITHIN:
                continue
            if now >= self.ask_at.get(k, 0.0):
                facts, frames = self.finding.question(k)
                self.asking[k] = now
                payload = packed(json.dumps({KIND: facts}), frames)
                self.net.ask(self.names[k], (KIND, self.finding.stage), payload, ANSWER_WITHIN)
                self.pause[k] = min(max(least, 2 * self.pause.get(k, 0.0)), ASK_AGAIN[1])
                self.ask_at[k] = now + self.pause[k]
            due.append(self.ask_at[k] - now)
        return max(0.01, min(due))

    def _police(self, now: float) -> None:
        if now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        self._check_self()
        refused = frozenset(self._refused()) & set(self.names)
        for name in refused - self.refused:
            self.say(f"looking for kin: {name} is revoked; it is ignored and gets nothing.")
        self.refused = refused

    # -- what comes --------------------------------------------------------------------------------

    def hold(self, event: Published) -> None:
        """While looking for kin: a message of a round that has not begun here."""
        if self._kept[event.name] < HELD:
            self._kept[event.name] += 1
            self._held.append(event)

    def mine(self, event: Event) -> bool:
        """Deal with what belongs to the search, at any time."""
        name = event.name
        if name not in self.numbers or name in self.refused:
            if isinstance(event, Asked):
                event.answer(None)
            return True
        if isinstance(event, Seen):
            (self.alive.add if event.alive else self.alive.discard)(name)
            self.asking.pop(self.numbers[name], None)
            self.ask_at.pop(self.numbers[name], None)
            return False
        try:
            if isinstance(event, Answered):
                return self._answered(event)
            return isinstance(event, Asked) and self._asked(event)
        except Rejected as error:
            self.complaints[name] += 1
            if self.complaints[name] <= 10 or self.complaints[name] % 100 == 0:
                self.say(f"looking for kin: a message of {name} is rejected: {error}")
            return True

    def _answered(self, event: Answered) -> bool:
        if event.question[0] != KIND:
            return False
        k = self.numbers[event.name]
        self.asking.pop(k, None)
        if event.payload is not None:
            facts, frames = _opened(event.payload)
            if facts is None:
                raise Rejected("an answer says nothing.")
            self._note(k, facts)
            if event.question[1] == self.finding.stage:
                self._tell(k, self.finding.facts())
            if self.finding.hear(k, facts, frames, event.question[1]):
                self.news[k] = self.clock()
        return True

    def _asked(self, event: Asked) -> bool:
        facts, frames = _opened(event.payload)
        if facts is None:
            return False
        k, reply = self.numbers[event.name], None
        try:
            told, given = self.finding.answer(k, facts, frames)
            self._note(k, facts)
            self._tell(k, told)
            reply = packed(json.dumps({KIND: told}), given)
        finally:
            event.answer(reply)
        return True

    def _note(self, k: int, facts: Mapping[str, Any]) -> None:
        """Where somebody says that it is."""
        self.finding.check(k, facts)
        place = facts["look"], facts["step"], facts["round"]
        if place > self.places.get(k, (-1, -2, -1)):
            self.places[k], self.news[k] = place, self.clock()

    def _tell(self, k: int, told: Mapping[str, Any]) -> None:
        """Somebody has heard this of this peer."""
        if told["step"] > self.finding.verdict:
            self.told.add((k, told["look"]))

    def _at_once(self, asked: Asked) -> bool:
        """Called by another thread: answer questions of the search that change nothing."""
        try:
            facts, frames = _opened(asked.payload)
        except Rejected:
            return False
        k = self.numbers.get(asked.name)
        if k is None or asked.name in self.refused:
            asked.answer(None)
            return True
        if facts is None:
            return self.at_once(asked)
        try:
            self._note(k, facts)
        except Rejected:
            return False  # the other thread says so
        quiet = self.finding.answer_quietly(k, facts, frames)
        if quiet is None:
            return False
        asked.answer(packed(json.dumps({KIND: quiet[0]}), quiet[1]))
        self._tell(k, quiet[0])
        return True

    # -- a network for the rounds ------------------------------------------------------------------

    def send(self, name: str, facts: Mapping[str, Any] | bytes, payload: bytes) -> None:
        self.net.send(name, facts, payload)

    def ask(self, name: str, question: Any, payload: bytes, timeout: float) -> None:
        self.net.ask(name, question, payload, timeout)

    def next(self, timeout: float) -> Event | None:
        return self.net.next(timeout)

    def _needing(self) -> list[int]:
        """Those that may need an answer of this peer and have not said that they are through."""
        if self.finding.kept.settled:
            return []
        last = self.finding.kept.look, self.finding.verdict
        behind = [k for k in self.finding.contacts if self.places.get(k, (0, -1))[:2] <= last]
        return [k for k in behind if self.names[k] not in self.refused]

    def ask_around(self) -> None:
        """In the rounds: hear from time to time who is through, so that there is nothing to wait
        for in the end.
        """
        now = self.clock()
        if now - self._asked_around >= LOOK_AGAIN:
            self._asked_around = now
            needing = self._needing()
            self._ask(now, needing, ASK_AGAIN[1])
            if not needing:
                self.finding.settle()

    def stay(self) -> float | None:
        """After the last round: how long to wait before looking again whether somebody may need an
        answer of this peer to find its kin; nothing when nobody does. For a bounded time.
        """
        now, rules = self.clock(), self.rules
        self.ended = min(self.ended, now)
        self._police(now)
        waiting, look = [], self.finding.kept.look
        there = [k for k in self.finding.contacts if self.names[k] in self.alive - self.refused]
        untold = [k for k in there if (k, look) not in self.told]  # it would wait for this peer
        for k in sorted({*self._needing(), *untold}):
            name = self.names[k]
            if k in self.gone:
                continue
            limit = rules.patience * (2 if name in self.alive else 1)
            if name in self.alive and rules.on_missing == "wait":
                limit = rules.give_up
            if now - max(self.ended, self.news.get(k, self.ended)) < limit:
                waiting.append(k)
                continue
            self.gone.add(k)
            self.say(
                f"{name} has not said for {limit:g} s that it has found its kin; not waiting for it"
                " any longer."
            )
        if not waiting:
            return None
        self._announce(now, waiting)
        return min(0.2, self._ask(now, waiting, ASK_AGAIN[1]))


def _opened(payload: bytes) -> tuple[dict[str, Any] | None, tuple[bytes, ...]]:
    """What belongs to the search; raises Rejected."""
    text, frames = unpacked(payload, 1 << 12)
    facts = read_json(text).get(KIND)
    if facts is None:
        return None, ()
    if not isinstance(facts, dict) or len(frames) > 1:
        raise Rejected("a message of the search is not as it must be.")
    return facts, frames
