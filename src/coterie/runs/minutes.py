"""The minutes that somebody gives a command: what is left of them, and what still fits."""

from __future__ import annotations

import time
from collections.abc import Callable

LATE = 0.1
"""What a command may be late, as a part of its minutes, for a piece of work that is worth it."""


class Minutes:
    """Counts from where it is made, compiling included. 0 minutes: time is no matter.

    >>> given = Minutes(1.0, clock=iter([0.0, 50.0, 50.0, 70.0]).__next__)
    >>> given.allows(12.0), given.allows(5.0), given.over
    (False, True, True)
    """

    def __init__(self, minutes: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.given, self.clock = minutes, clock
        self.begun = clock()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.begun

    @property
    def left(self) -> float:
        """Seconds that are left, 0 at least."""
        return max(0.0, 60 * self.given - self.spent) if self.given else float("inf")

    @property
    def over(self) -> bool:
        return self.left <= 0

    def allows(self, seconds: float) -> bool:
        """Whether a piece of work still fits: into what is left, or into what a command may be
        late.
        """
        return seconds <= max(self.left, LATE * 60 * self.given)

    def late(self) -> str | None:
        """A sentence if it took clearly longer."""
        taken = self.spent / 60
        if not self.given or taken <= (1 + LATE) * self.given:
            return None
        return (
            f"this took {taken:.1f} minutes instead of {self.given:g}: programs are compiled and"
            " every method is tuned a little and trained once, however short the time is."
        )
