"""What a driver of a peer knows of a neighbour, and what it asks of a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from coterie.deploy.zenoh.net import Asked, Event

ASK_AGAIN = (0.5, 8.0)
"""Seconds between questions to a neighbour whose message is missing: at first, at most."""
LOOK_AGAIN = 2.0
"""Seconds between questions to a neighbour that does not count, and between looks at the list of
revoked names.
"""
ANSWER_WITHIN = 10.0
SOON, LATER = 5.0, 60.0
"""Seconds until it is said for whom somebody waits, and between the times that it is said again."""


class Network(Protocol):
    """What a driver asks of a network."""

    at_once: Callable[[Asked], bool]
    events: Any
    """Has `put`, for events of this process's own."""

    def send(self, name: str, facts: Mapping[str, Any] | bytes, payload: bytes) -> None: ...
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
    """When something new of it arrived."""
    asking: bool = False
    again: int = -1
    """The round whose message it says it has sent, and which is not here although that answer came
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
    warned: bool = False


@dataclasses.dataclass
class Leap:
    """A proposal to jump."""

    entry: int
    pending: set[str]
    agreed: set[str] = dataclasses.field(default_factory=set)
    later: int = 0
    attempts: int = 1


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
