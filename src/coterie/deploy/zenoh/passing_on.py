"""Lists of the revoked go from peer to peer: whoever has a newer one gives it to its neighbours.

The operator brings a list to one peer; it reaches all that are connected with it, over any number
of neighbours, at the rate of the looks at it (`LOOK_AGAIN`). A list counts by its signature and its
number and not by who brings it, so nobody can make one up, and an old one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.messages import Rejected, read_json
from coterie.deploy.zenoh.net import Asked, Event, Net, Published, Seen
from coterie.deploy.zenoh.passport import Passport


class PassingOn:
    """A peer's network (see `Network`) which keeps these lists to itself."""

    def __init__(self, net: Net, passport: Passport, say: Callable[[str], None]) -> None:
        self.net, self.passport, self.say = net, passport, say
        self.events = net.events
        self._has: dict[str, int] = {}
        """Who is there, and the number of the list that it was given; −1: none."""
        self._complained: set[str] = set()

    @property
    def at_once(self) -> Callable[[Asked], bool]:
        return self.net.at_once

    @at_once.setter
    def at_once(self, answer: Callable[[Asked], bool]) -> None:
        self.net.at_once = answer

    def send(self, name: str, facts: Mapping[str, Any] | bytes, payload: bytes) -> None:
        self.net.send(name, facts, payload)

    def ask(self, name: str, question: Any, payload: bytes, timeout: float) -> None:
        self.net.ask(name, question, payload, timeout)

    def next(self, timeout: float) -> Event | None:
        """The next event that is not a list."""
        event = self.net.next(timeout)
        while isinstance(event, Published) and self._is_list(event):
            event = self.net.next(0)
        if isinstance(event, Seen):
            self._has.pop(event.name, None)
            if event.alive:
                self._has[event.name] = -1
        return event

    def _is_list(self, event: Published) -> bool:
        try:
            facts = read_json(event.facts)
        except Rejected:
            return False
        if not isinstance(facts, dict) or "crl" not in facts:
            return False
        if self.passport.revocations is None:
            return True
        try:
            if self.passport.revocations.offer(event.payload):
                number = self.passport.newest()
                self.say(
                    f"{event.name} brings a new list of the revoked"
                    f" (number {number[0] if number else 0})."
                )
        except InvalidInput as error:
            if event.name not in self._complained:
                self._complained.add(event.name)
                self.say(f"a list of the revoked that {event.name} brings was not taken: {error}")
        return True

    def pass_on(self) -> None:
        """Give the list to those neighbours that are there and have not been given it. Not to those
        that it revokes.
        """
        if (found := self.passport.newest()) is None:
            return
        number, data = found
        refused = self.passport.refused()
        for name, had in self._has.items():
            if had != number and name not in refused:
                self._has[name] = number
                self.net.send(name, {"crl": number}, data)

    def renewed(self, passport: Passport) -> None:
        """There is another session, with another certificate: nobody in it has been seen yet."""
        self.passport = passport
        self._has.clear()
