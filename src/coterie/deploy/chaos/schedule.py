"""What goes wrong, where, in which round and for how long: drawn from a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

KINDS = {
    "kill": "SIGKILL; started again after the time given",
    "stop": "SIGSTOP; SIGCONT after the time given",
    "cut": "its connections are closed, and new ones too, for the time given",
    "hold": "its connections stay, but nothing comes through for the time given",
    "slow": "20 kB/s and 50 ms more for every part, for the time given",
    "disk": "killed, and started again where the disk is full, until it says so",
    "clock": "killed, and started again with a clock that is 600 s off, until a round has passed",
}
"""By name: what happens to a participant."""
LINKS = ("cut", "hold", "slow")
SECONDS = {"hold": (4.0, 20.0), "slow": (2.0, 8.0)}
"""The shortest and the longest of a fault; others: `USUAL`. A link that is held for long is taken
for lost by Zenoh (its lease is 10 s), one that is held for a short time is not.
"""
USUAL = (0.5, 5.0)
KEEPS_NOTHING = ("gate",)
"""Participants to whom a full disk is nothing: they write two short files, when they start."""


@dataclasses.dataclass(frozen=True)
class Event:
    """One fault."""

    at: int
    """The round that must be reached."""
    kind: str
    who: str
    seconds: float

    def __str__(self) -> str:
        return f"round {self.at}: {self.kind} {self.who} for {self.seconds:.1f} s"


def schedule(
    seed: int, events: int, participants: Sequence[str], linked: Sequence[str], every: int
) -> list[Event]:
    """`events` faults, one in every `every` rounds; about a fourth strike together with the one
    before them, at somebody else. Links are those of `linked`.

    >>> schedule(0, 2, ["hub", "a", "b"], ["a", "b"], 5) == schedule(
    ...     0, 2, ["hub", "a", "b"], ["a", "b"], 5
    ... )
    True
    """
    rng = np.random.default_rng(seed)
    found: list[Event] = []
    at = 0
    for i in range(events):
        together = i > 0 and found[-1].at != (found[-2].at if i > 1 else -1) and rng.random() < 0.25
        at += 0 if together else every
        kind = str(rng.choice(list(KINDS)))
        among = list(linked if kind in LINKS else participants)
        if kind == "disk":
            among = [name for name in among if name not in KEEPS_NOTHING]
        if together:
            among = [name for name in among if name != found[-1].who]
        low, high = SECONDS.get(kind, USUAL)
        found.append(Event(at, kind, str(rng.choice(among)), round(rng.uniform(low, high), 1)))
    return found


def rounds_for(events: Sequence[Event], every: int) -> int:
    """The rounds of a plan in which all of them fit, and some more."""
    return (events[-1].at if events else 0) + 2 * every
