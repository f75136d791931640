"""What a peer and its neighbours send and ask each other: positions, messages, answers.

One thread works; only `at_once` is called by another one, which reads what `_post` has put on the
board.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from coterie.deploy.compact import place
from coterie.deploy.messages import Rejected, read_json
from coterie.deploy.peer import Peer
from coterie.deploy.peer_record import FARTHEST
from coterie.deploy.zenoh.net import Answered, Asked, Event, Published, Seen, packed, unpacked
from coterie.deploy.zenoh.sight import ANSWER_WITHIN, ASK_AGAIN, Leap, Network, Sight

COMPLAINTS = 10
"""So many rejected messages of a neighbour are reported one by one; of the others, every hundredth.
"""


class Talk:
    """One peer among its neighbours, as far as it receives and sends."""

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
        self.rules, self.rounds = peer.plan.rules, peer.until
        self._farthest = peer.plan.exchanges + FARTHEST
        self.sights = {name: Sight() for name in peer.neighbours}
        self._refused, self._check_self = refused, check_self
        self.refused: frozenset[str] = frozenset()
        self._looked = float("-inf")
        self.sent_round = -1
        """The last round whose message was sent by this process."""
        self.since = self.clock()
        self.leap: Leap | None = None
        self.leap_at = 0.0
        self.ended = float("inf")
        self._announced = (-1, 0.0)
        self.carried = Counter[str]()
        """Bytes of the messages that this process has put on the wire: sent, and given to those who
        asked.
        """
        self._sent: dict[str, frozenset[int]] = {}
        """The rounds whose messages were sent to each neighbour over the link that stands now, of
        those that are kept.
        """
        self._post()
        net.at_once = self.at_once

    def _settle(self, name: str, asked: int, answer: Mapping[str, Any]) -> None:
        """The answer to a proposal, if there is one (see `Mending`)."""
        raise NotImplementedError

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
            if isinstance(event, Published):
                facts = self._position(name, place(event.facts))
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
        self._sent.pop(name, None)  # what was on its way may be lost
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
            if type(value) is not int or not -1 <= value <= self._farthest:
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
                on_its_way = found.get("told")
                sight.again = (
                    want
                    if isinstance(on_its_way, list)
                    and (want := self.peer.wants(name)) in on_its_way
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

    def _complain(self, name: str, error: object) -> None:
        sight = self.sights[name]
        sight.complaints += 1
        if sight.complaints <= COMPLAINTS or sight.complaints % 100 == 0:
            more = (
                "" if sight.complaints <= COMPLAINTS else f" ({sight.complaints} rejected so far)"
            )
            self.say(f"round {self.peer.t}: a message of {name} is rejected: {error}{more}")

    # -- what goes ---------------------------------------------------------------------------------

    def _post(self) -> None:
        """Put up what may be sent to any neighbour at any time, while this thread works."""
        peer = self.peer
        positions = {name: peer.position(name) for name in self.sights if name not in self.refused}
        letters = {name: {r: peer.letter(name, r) for r in peer.outbox} for name in positions}
        self._board = (positions, letters, dict(self._sent))

    def at_once(self, asked: Asked) -> bool:
        """Called by another thread: answer questions that change nothing.

        What was sent over the link that stands is not sent a second time, but named: on a slow link
        it is still on its way, and this answer comes after it. Who has the answer but not the
        message asks for it again.
        """
        positions, letters, sent = self._board
        if asked.name not in positions:
            asked.answer(None)
            return True
        outbox = letters[asked.name]
        try:
            text, _ = unpacked(asked.payload, 0)
            question = read_json(text)
            want, again = question.get("want"), question.get("again")
        except Rejected:
            return False
        if type(want) is not int:
            return False
        rounds = sorted(r for r in outbox if r >= want) if positions[asked.name]["counts"] else []
        under_way = frozenset() if again is True else sent.get(asked.name, frozenset())
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
