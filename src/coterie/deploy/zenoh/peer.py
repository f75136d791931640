"""Runs a peer: says what it has to say, listens, asks for what is missing, waits or goes on, and
brings dropped edges back.

`Driver` knows nothing of Zenoh but the names of its events (`net`); a test can put it on a made-up
network with a made-up clock. It is driven by one thread; only `at_once` is called by another one,
which reads what `_post` has put on the board.

How an edge comes back ("go-on"). Who notices that it is down (dropped here, or there, or the
message that is needed next is no longer kept) proposes a round E that neither has begun. It expects
the neighbour from E on *before* it asks, so that whatever becomes of the answer both either do the
same, or one waits in round E for as long as anybody is waited for, drops the edge again, and it
begins anew. If both propose at once, both take the later round. Between a peer that is behind and
one that is not, the former proposes: one E to all neighbours that are there; it does nothing until
all have answered, and jumps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked
from coterie.deploy.messages import Rejected, read_json
from coterie.deploy.peer import Peer
from coterie.deploy.peer_record import FARTHEST
from coterie.deploy.site import Site
from coterie.deploy.zenoh.net import (
    Answered,
    Asked,
    Event,
    Net,
    Place,
    Seen,
    Told,
    packed,
    unpacked,
)

ASK_AGAIN = (0.5, 8.0)
"""Seconds between questions to a neighbour whose message is missing: at first, at most."""
LOOK_AGAIN = 2.0
"""Seconds between questions to a neighbour that does not count, and between looks at the list of
revoked names.
"""
ANSWER_WITHIN = 10.0
PROPOSALS = 8
COMPLAINTS = 10
"""So many rejected messages of a neighbour are told of one by one; of the others, every hundredth.
"""


class GaveUp(CoterieError):
    """Somebody was silent for too long. Nothing is lost; the same command goes on."""

    exit_code = 4


class Network(Protocol):
    """What a driver asks of a network."""

    at_once: Callable[[Asked], bool]
    events: Any
    """Has `put`, for events of this process's own."""

    def tell(self, name: str, facts: Mapping[str, Any], payload: bytes) -> None: ...
    def ask(self, name: str, question: Any, payload: bytes, timeout: float) -> None: ...
    def next(self, timeout: float) -> Event | None: ...


@dataclasses.dataclass
class Sight:
    """What is known of a neighbour at the moment; nothing of it is kept."""

    alive: bool = False
    round: int = -1
    oldest: int = 0
    counts: bool = True
    entry: int = -1
    news: float = float("-inf")
    """When something new was heard of it."""
    asking: bool = False
    again: int = -1
    """The round whose message it says it has told, and which is not here although that answer came
    after it: it got lost on the way.
    """
    asked_at: float = 0.0
    ask_at: float = 0.0
    pause: float = ASK_AGAIN[0]
    fresh: bool = False
    """Its position has come since the edge was last looked at."""
    propose_at: float = 0.0
    acked: bool = False
    """It knows that this peer has finished."""
    complaints: int = 0
    told_off: bool = False


@dataclasses.dataclass
class Leap:
    """A proposal to jump."""

    entry: int
    pending: set[str]
    agreed: set[str] = dataclasses.field(default_factory=set)
    later: int = 0
    attempts: int = 1


class Driver:
    """Drives one peer on one network.

    `refused` gives the names that are revoked; `check_self` raises when this peer may not go on.
    """

    def __init__(
        self,
        peer: Peer,
        net: Network,
        *,
        say: Callable[[str], None] = lambda sentence: None,
        refused: Callable[[], Collection[str]] = frozenset,
        check_self: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.peer, self.net, self.say, self.clock = peer, net, say, clock
        self.rules, self.rounds = peer.plan.rules, peer.plan.training.rounds
        self.sights = {name: Sight() for name in peer.neighbours}
        self._refused, self._check_self = refused, check_self
        self.refused: frozenset[str] = frozenset()
        self._looked = float("-inf")
        self.said = -1
        """The last round whose message was told by this process."""
        self.since = self.clock()
        self.leap: Leap | None = None
        self.leap_at = 0.0
        self.ended = float("inf")
        self._announced = (-1, 0.0)
        self.carried = Counter[str]()
        """Bytes of the messages that this process has put on the wire: told, and given to those who
        asked.
        """
        self._told: dict[str, frozenset[int]] = {}
        """The rounds whose messages each neighbour was told over the link that stands now, of those
        that are kept.
        """
        self._post()
        net.at_once = self.at_once

    # -- the loop ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Until the last round is done and the neighbours have what they need.

        Raises GaveUp, InvalidInput or Diverged.
        """
        while True:
            for _ in range(
                64
                # not for ever: a neighbour that talks without end must not keep this peer from
                # working
            ):
                if (event := self.net.next(0)) is None:
                    break
                self.handle(event)
            wait = self.step()
            if wait is None:
                return
            if wait > 0 and (event := self.net.next(wait)) is not None:
                self.handle(event)

    def step(self) -> float | None:
        """Do what can be done now; how long to wait for events before the next step, or nothing
        when all is done.
        """
        now, peer = self.clock(), self.peer
        self._police(now)
        if peer.done:
            return self._linger(now)
        if peer.goes_on:
            self._mend(now)
            if self.leap is not None:
                return 0.2 if self.leap.pending else 0.0
            self._skip()
            if peer.done:
                return 0.0
        if not peer.begun or self.said != peer.t:
            self._police(now, always=True)
            self._speak()
            return 0.0
        missing = peer.missing
        if not missing:
            self._finish(())
            return 0.0
        return self._wait(now, missing)

    def _speak(self) -> None:
        t, wire = self.peer.begin()
        there = [
            name for name in self.peer.told if self.sights[name].alive and name not in self.refused
        ]  # who comes later asks
        for name in there:
            self._told[name] = frozenset(
                {t, *(self._told.get(name, frozenset()) & self.peer.outbox.keys())}
            )
        self._post()  # before it is told: who asks meanwhile must not get it twice
        for name in there:
            self.net.tell(name, self.peer.position(name), wire)
            self.carried["told"] += len(wire)
        self.said, self.since = t, self.clock()
        for name in self.peer.told:
            self.sights[name].pause = ASK_AGAIN[0]
            self.sights[name].ask_at = self.since + ASK_AGAIN[0]

    def _finish(self, silent: Collection[str]) -> None:
        for name in silent:
            behind = self.peer.t - self.peer.states[name].last
            if behind <= self.peer.staleness:
                self.say(
                    f"round {self.peer.t}: {name} is silent; its message of round"
                    f" {self.peer.states[name].last} counts again."
                )
        self.peer.finish(silent)
        self._post()

    def _wait(self, now: float, missing: list[str]) -> float:
        """Some messages of this round are not there."""
        silence = {name: now - max(self.since, self.sights[name].news) for name in missing}
        if self.peer.goes_on:
            # Who is there may itself be waiting for somebody who is not: it gets twice the time. A
            # federation begins together: round 0 waits for all.
            begins = max(self.rules.give_up, self.rules.patience) if self.peer.t == 0 else 0.0
            limits = {
                name: begins or self.rules.patience * (2 if self.sights[name].alive else 1)
                for name in missing
            }
            left = max(limits[name] - silence[name] for name in missing)
            if left < 1e-3:
                self._finish(missing)
                return 0.0
        else:
            self._check_kept(missing)
            left = self.rules.give_up - min(silence.values())
            if left <= 0:
                raise GaveUp(
                    f"round {self.peer.t}: nothing came from {listed(missing)} for"
                    f" {self.rules.give_up:g} s, and the plan says to wait; this peer stops, and"
                    " the same command goes on where it stopped."
                )
        self._announce(now, missing)
        return max(1e-3, min(left, self._nag(now, missing)))

    def _announce(self, now: float, missing: list[str]) -> None:
        """Say once in a round, and then every minute, for whom this peer waits."""
        t, at = self._announced
        if now - self.since > 5 and (t != self.peer.t or now - at > 60):
            self._announced = (self.peer.t, now)
            away = [name for name in missing if not self.sights[name].alive]
            self.say(
                f"round {self.peer.t}: waiting for {listed(missing)}"
                + (f" (not connected: {listed(away)})." if away else ".")
            )

    def _check_kept(self, missing: list[str]) -> None:
        for name in missing:
            sight = self.sights[name]
            if sight.round >= 0 and sight.oldest > self.peer.wants(name):
                raise InvalidInput(
                    f"round {self.peer.t}: {name} is in round {sight.round} and has no message of"
                    f' round {self.peer.wants(name)} any more; with on_missing = "wait" that'
                    " happens only when a peer's folder was lost or replaced: restore it, or"
                    " begin a new run."
                )

    def _nag(self, now: float, missing: Collection[str]) -> float:
        """Ask those whose message is missing; seconds until the next question."""
        due = [LOOK_AGAIN]
        for name in missing:
            sight = self.sights[name]
            if not sight.alive or sight.asking or name in self.refused:
                continue
            if now >= sight.ask_at:
                self._ask(name)
                sight.pause = min(sight.pause * 2, ASK_AGAIN[1])
                sight.ask_at = now + sight.pause
            due.append(sight.ask_at - now)
        return max(0.02, min(due))

    def _linger(self, now: float) -> float | None:
        """All rounds are done: stay until the neighbours have what they need of this peer, for a
        bounded time.
        """
        peer = self.peer
        if not peer.finished:
            peer.end()
        if self.ended == float("inf"):
            self.ended = now
            self._post()
            for sight in self.sights.values():
                sight.ask_at = 0.0
        limit = self.rules.patience * (peer.staleness + 2) if peer.goes_on else self.rules.give_up
        waiting = []
        for name, sight in self.sights.items():
            counts = name not in self.refused and (
                peer.states[name].active or peer.states[name].entry >= 0
            )
            if not counts or (sight.round >= self.rounds and (sight.acked or not sight.alive)):
                continue
            patience = limit if sight.alive or not peer.goes_on else self.rules.patience
            if now - max(self.ended, sight.news) < patience:
                waiting.append(name)
            elif not sight.told_off:
                sight.told_off = True
                self.say(
                    f"{name} has not reported the end for {patience:g} s; not waiting for it any"
                    " longer."
                )
        if not waiting:
            peer.look(now=True)
            return None
        for name in waiting:
            sight = self.sights[name]
            if sight.alive and not sight.asking and now >= sight.ask_at:
                self._ask(name)
                sight.ask_at = now + 1.0
        return 0.2

    # -- who may talk ------------------------------------------------------------------------------

    def _police(self, now: float, *, always: bool = False) -> None:
        if not always and now - self._looked < LOOK_AGAIN:
            return
        self._looked = now
        if not self.peer.done:
            self._check_self()
        for name, sight in self.sights.items():
            if sight.asking and now - sight.asked_at > 2 * max(
                ANSWER_WITHIN, self.rules.patience
            ):  # Zenoh should have said that there is no answer
                sight.asking = False
                if self.leap is not None:
                    self.leap.pending.discard(name)
        refused = frozenset(self._refused()) & set(self.sights)
        for name in refused - self.refused:
            self.say(
                f"round {self.peer.t}: {name} is revoked; it is no longer heard nor told, and its"
                " edge is dropped."
            )
            self.peer.expect(name, -1)
        if refused != self.refused:
            self.refused = refused
            self._post()

    def _complain(self, name: str, error: object) -> None:
        sight = self.sights[name]
        sight.complaints += 1
        if sight.complaints <= COMPLAINTS or sight.complaints % 100 == 0:
            more = (
                "" if sight.complaints <= COMPLAINTS else f" ({sight.complaints} rejected so far)"
            )
            self.say(f"round {self.peer.t}: a message of {name} is rejected: {error}{more}")

    # -- what comes --------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        name = event.name
        if name not in self.sights or name in self.refused:
            if isinstance(event, Asked):
                event.answer(None)
            return
        if isinstance(event, Seen):
            self._see(name, event.alive)
            return
        try:
            if isinstance(event, Told):
                facts = self._position(name, read_json(event.facts))
                self._hear(name, facts["round"], event.payload)
            elif isinstance(event, Asked):
                self._asked(event)
            else:
                self._answered(event)
        except Rejected as error:
            self.peer.reject(name)
            self._complain(name, error)

    def _see(self, name: str, alive: bool) -> None:
        sight = self.sights[name]
        if alive != sight.alive:
            self.say(f"{name} is {'there' if alive else 'gone'}.")
        sight.alive, sight.again = alive, -1
        self._told.pop(name, None)  # what was on its way may be lost
        self._post()
        if alive:
            sight.acked, sight.pause, sight.ask_at = False, ASK_AGAIN[0], 0.0
            if not sight.asking:
                self._ask(name)

    def _hear(self, name: str, t: int, wire: bytes) -> None:
        try:
            if self.peer.hear(name, t, wire):
                self.sights[name].news = self.clock()
        except Rejected as error:  # counted already
            self._complain(name, error)

    def _position(self, name: str, position: Any) -> dict[str, Any]:
        """Take note of where a neighbour says it is; raises Rejected."""
        if not isinstance(position, dict):
            raise Rejected("a position is not a table.")
        self.peer.check_position(name, position)
        for key in ("round", "oldest", "entry"):
            value = position.get(key)
            if type(value) is not int or not -1 <= value <= self.rounds + FARTHEST:
                raise Rejected(f"{key} in a position is {str(value)[:40]!r}, which is not allowed.")
        if not isinstance(position.get("counts"), bool):
            raise Rejected("a position does not say whether the edge counts.")
        sight = self.sights[name]
        if position["round"] > sight.round:
            sight.news = self.clock()
        sight.round, sight.oldest, sight.counts, sight.entry = (
            position[key] for key in ("round", "oldest", "counts", "entry")
        )
        sight.fresh = True
        return position

    def _asked(self, event: Asked) -> None:
        """A question that changes something, or the notice that one was answered at once."""
        answer = None
        try:
            text, _ = unpacked(event.payload, 0)
            question = read_json(text)
            self._position(event.name, question.get("position"))
            if "enter" in question:
                answer = self._consider(event.name, question["enter"])
        finally:
            event.answer(answer)

    def _consider(self, name: str, entry: Any) -> bytes:
        """A neighbour proposes a round."""
        peer, reply = self.peer, {"entry": -1, "earliest": -1}
        if isinstance(entry, bool) or not isinstance(entry, int):
            raise Rejected(f"it proposes {str(entry)[:40]!r}, which is no round.")
        if peer.goes_on and not peer.done:
            try:
                reply["entry"] = peer.agree(name, entry)
                self._post()
            except Rejected:  # not the neighbour's fault: it could not know
                reply["earliest"] = peer.earliest(name)
        return packed(json.dumps(reply | {"position": peer.position(name)}), ())

    def _answered(self, event: Answered) -> None:
        name, (kind, about) = event.name, event.question
        sight = self.sights[name]
        sight.asking = False
        answer: dict[str, Any] = {}
        try:
            if event.payload is not None:
                text, wires = unpacked(event.payload, self.peer.remembered + 1)
                found = read_json(text)
                self._position(name, found.get("position"))
                answer = found
                if about >= self.rounds:
                    sight.acked = True
                self._hear_all(name, found.get("rounds", []), wires)
                told = found.get("told")
                sight.again = (
                    want
                    if isinstance(told, list) and (want := self.peer.wants(name)) in told
                    else -1
                )
        finally:
            if kind == "enter":
                self._settle(name, about, answer)

    def _hear_all(self, name: str, rounds: Any, wires: tuple[bytes, ...]) -> None:
        if (
            not isinstance(rounds, list)
            or len(rounds) != len(wires)
            or not all(type(r) is int for r in rounds)
        ):
            raise Rejected("an answer does not say of which rounds its messages are.")
        for t, wire in zip(rounds, wires, strict=True):
            self._hear(name, t, wire)

    # -- what goes ---------------------------------------------------------------------------------

    def _post(self) -> None:
        """Put up what any neighbour may be told at any time, while this thread works."""
        peer = self.peer
        positions = {name: peer.position(name) for name in self.sights if name not in self.refused}
        self._board = (positions, dict(peer.outbox), dict(self._told))

    def at_once(self, asked: Asked) -> bool:
        """Called by another thread: answer questions that change nothing.

        What was told over the link that stands is not said a second time, but named: on a slow link
        it is still on its way, and this answer comes after it. Who has the answer but not the
        message asks for it again.
        """
        positions, outbox, told = self._board
        if asked.name not in positions:
            asked.answer(None)
            return True
        try:
            text, _ = unpacked(asked.payload, 0)
            question = read_json(text)
            want, again = question.get("want"), question.get("again")
        except Rejected:
            return False
        if type(want) is not int:
            return False
        rounds = sorted(r for r in outbox if r >= want) if positions[asked.name]["counts"] else []
        under_way = frozenset() if again is True else told.get(asked.name, frozenset())
        on_its_way, rounds = (
            [r for r in rounds if r in under_way],
            [r for r in rounds if r not in under_way],
        )
        reply = {"position": positions[asked.name], "rounds": rounds, "told": on_its_way}
        asked.answer(packed(json.dumps(reply), [outbox[r] for r in rounds]))
        self.carried["given"] += sum(len(outbox[r]) for r in rounds)
        # The question says where the neighbour is: that is news for the other thread, which has
        # nothing to answer any more.
        self.net.events.put(Asked(asked.name, asked.payload, lambda payload: None))
        return True

    def _ask(self, name: str) -> None:
        want = self.peer.wants(name)
        question = {
            "position": self.peer.position(name),
            "want": want,
            "again": self.sights[name].again == want,
        }
        self.sights[name].asking, self.sights[name].asked_at = True, self.clock()
        self.net.ask(
            name,
            ("where", self.peer.t if self.peer.finished else -1),
            packed(json.dumps(question), ()),
            ANSWER_WITHIN,
        )

    # -- edges that come back ----------------------------------------------------------------------

    def _lost(self, name: str) -> bool:
        """Whether the message that is needed next is no longer kept by the neighbour."""
        return self.sights[name].oldest > self.peer.wants(name)

    def _down(self, name: str) -> bool:
        """Whether an edge is down and nothing is on its way to bring it back."""
        view, sight, t = self.peer.states[name], self.sights[name], self.peer.t
        if not sight.alive or not sight.fresh or name in self.refused or sight.round >= self.rounds:
            return False
        if sight.entry > sight.round and sight.entry != view.entry:
            return False  # its own proposal is on its way here, or runs out
        if view.active:
            return not sight.counts or self._lost(name)
        if view.entry == -1:
            return True
        agreed = sight.entry == view.entry or (sight.counts and sight.oldest <= view.entry)
        return view.entry > t and not agreed

    def _mend(self, now: float) -> None:
        """Propose to have edges back."""
        if self.leap is not None:
            if not self.leap.pending:
                self._resolve(now)
            return
        for name, sight in self.sights.items():
            if (
                sight.alive
                and not sight.asking
                and name not in self.refused
                and not self.peer.awaited(name)
                and now >= sight.ask_at
            ):
                self._ask(name)
                sight.ask_at = now + LOOK_AGAIN
        down = [
            name
            for name in self.sights
            if self._down(name)
            and not self.sights[name].asking
            and now >= self.sights[name].propose_at
        ]
        if not down:
            return
        t = self.peer.t
        behind = [name for name in down if self.sights[name].round > t + 1]
        if behind and now >= self.leap_at:
            there = [
                n
                for n, s in self.sights.items()
                if s.alive and s.round >= 0 and s.round < self.rounds and n not in self.refused
            ]
            if any(self.sights[n].asking for n in there):
                return  # one question at a time
            self._propose_jump(there, 0, 1)
            return
        for name in down:
            sight = self.sights[name]
            sight.fresh = False
            entry = max(self.peer.earliest(name), sight.round + 2)
            if (
                entry < self.rounds and name not in behind and sight.round >= t - 1
            ):  # who is behind proposes: it knows when it has time
                self._propose(name, entry)

    def _propose(self, name: str, entry: int) -> None:
        """Ask one neighbour to count its edge again from `entry` on; from then on it is
        expected.
        """
        self.peer.expect(name, entry)
        self._post()
        self.sights[name].asking, self.sights[name].asked_at = True, self.clock()
        self.net.ask(
            name,
            ("enter", entry),
            packed(json.dumps({"position": self.peer.position(name), "enter": entry}), ()),
            max(ANSWER_WITHIN, self.rules.patience),
        )

    def _propose_jump(self, there: list[str], least: int, attempt: int) -> None:
        entry = max(
            least,
            *(self.sights[n].round + 2 for n in there),
            *(self.peer.earliest(n) for n in there),
        )
        if entry >= self.rounds or attempt > PROPOSALS:
            why = (
                "the others are almost done"
                if entry >= self.rounds
                else "no round could be agreed on"
            )
            self.say(
                f"round {self.peer.t}: too far behind the others, and {why}; this peer goes on"
                " without those that do not count it any more."
            )
            self.leap, self.leap_at = None, self.clock() + 10 * LOOK_AGAIN
            for name in there:
                self.sights[name].fresh = False
                if self.peer.states[name].active and (
                    self._lost(name) or not self.sights[name].counts
                ):
                    self.peer.expect(name, -1)
            return
        self.leap = Leap(entry, set(there), attempts=attempt)
        for name in there:
            self.sights[name].fresh = False
            self._propose(name, entry)

    def _settle(self, name: str, asked: int, answer: Mapping[str, Any]) -> None:
        """The answer to a proposal, if there is one."""
        peer, leap, sight = self.peer, self.leap, self.sights[name]
        settled, earliest = (
            v if type(v := answer.get(key, -1)) is int else -1 for key in ("entry", "earliest")
        )
        sight.propose_at = self.clock() + (0 if settled >= 0 else 0.5)
        if leap is not None and name in leap.pending:
            leap.pending.discard(name)
            if settled == leap.entry:
                leap.agreed.add(name)
            leap.later = max(leap.later, settled, earliest if earliest <= peer.t + FARTHEST else 0)
            return
        if settled > asked and settled > peer.t:
            peer.expect(name, settled)
        elif (
            settled < 0
            and (earliest >= 0 or sight.round >= self.rounds)
            and peer.states[name].entry == asked > peer.t
        ):
            peer.expect(name, -1)  # declined; it is proposed again, unless the neighbour is done
        self._post()

    def _resolve(self, now: float) -> None:
        """All have answered a proposal to jump, or did not in time."""
        leap = self.leap
        assert leap is not None
        if leap.later > leap.entry or (leap.agreed and leap.entry <= self.peer.t):
            there = [
                n
                for n, s in self.sights.items()
                if s.alive and s.round >= 0 and s.round < self.rounds and n not in self.refused
            ]
            self.leap = None
            if there:
                self._propose_jump(
                    there, max(leap.later, leap.entry) + 2**leap.attempts, leap.attempts + 1
                )  # they may be quicker than the answer
            return
        self.leap = None
        if leap.agreed:
            self.peer.jump(leap.entry, leap.agreed)
            self._post()
        else:
            self.leap_at = now + LOOK_AGAIN

    def _skip(self) -> None:
        """A peer that counts nobody until a round that is agreed on need not work alone until
        then.
        """
        peer = self.peer
        entries = [view.entry for view in peer.states.values() if view.entry > peer.t]
        if (
            entries
            and not peer.begun
            and not any(map(peer.awaited, peer.states))
            and min(entries) > peer.t + 2
        ):
            peer.jump(
                min(entries),
                [name for name, view in peer.states.items() if view.entry == min(entries)],
                "nobody counts here until then",
            )
            self._post()


def listed(names: Collection[str]) -> str:
    """a, b and c."""
    names = sorted(names)
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:-1])} and {names[-1]}"
        if names
        else "nobody"
    )


# -- a site ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Passport:
    """A site's identity, if it has keys, and who is revoked."""

    identity: Any
    revocations: Any

    @classmethod
    def of(cls, site: Site, say: Callable[[str], None]) -> Passport:
        if site.keys is None:
            say("no keys are given: plain TCP, without certificates, on this machine only.")
            return cls(None, None)
        from coterie.deploy.keys.authority import Identity

        identity = Identity.load(site.keys)
        return cls(identity, identity.revocations(say))

    def refused(self) -> frozenset[str]:
        """The names that are revoked, by a list that is read again when it changes."""
        return frozenset() if self.revocations is None else self.revocations.revoked_names()

    def check(self) -> None:
        """Raises InvalidInput when this site's own certificate is of no use any more."""
        if self.identity is None:
            return
        if datetime.now(UTC) >= self.identity.expires:
            raise InvalidInput(
                f"the certificate of {self.identity.name!r} expired on"
                f" {self.identity.expires:%Y-%m-%d %H:%M} UTC; this participant stops: put a new"
                " one in its place and start again."
            )
        if self.revocations.refuses(self.identity.serial) or self.revocations.refuses(
            self.identity.name
        ):
            raise InvalidInput(
                f"the certificate of {self.identity.name!r} is revoked; this participant stops."
            )


@contextlib.contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """One process at a time in a participant's folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(
            f"the folder {str(folder)!r} cannot be made: {error.strerror or error}."
        ) from None
    with locked(folder):
        yield


def place_of(site: Site, passport: Passport) -> Place:
    refused = passport.refused()
    ends = {n.who.name: n.endpoint for n in site.neighbours}
    if not set(ends) - refused:
        raise InvalidInput(
            "all neighbours are revoked."
            if ends
            else "there are no [[neighbours]], so there is nobody to talk to."
        )
    return Place(
        site.plan.name,
        site.name,
        site.listen,
        {name: end for name, end in ends.items() if name not in refused},
        passport.identity,
    )


def run_peer(site: Site, say: Callable[[str], None]) -> Peer:
    """A peer from its config to its models."""
    with at_work(site.folder):
        passport = Passport.of(site, say)
        place = place_of(site, passport)
        peer = Peer(
            site.plan,
            site.name,
            site.number,
            [n.who for n in site.neighbours],
            site.worker(),
            site.folder,
            say=say,
        )
        with Net(place, peer.largest * (peer.remembered + 1)) as net:
            say(f"round {peer.t} of {peer.plan.training.rounds}, with {listed(place.neighbours)}.")
            driver = Driver(peer, net, say=say, refused=passport.refused, check_self=passport.check)
            driver.run()
            say(f"this process told its neighbours {driver.carried.total()} bytes.")
        say(
            f"done: {peer.plan.training.rounds} rounds, {peer.ledger.up} bytes up,"
            f" {peer.ledger.down} down."
        )
        return peer
