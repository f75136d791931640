"""The minutes that somebody gives a command: what is left of them, and what still fits."""

from __future__ import annotations

import time
from collections.abc import Callable

from coterie.core.compilation import working_time

LATE = 0.1
"""What a command may be late, as a part of its minutes, for a piece of work that is worth it."""


class Minutes:
    """Counts from where it is made, without compiling: who has little time would otherwise get
    answers from programs that were compiled and hardly run. 0 minutes: time is no matter.

    >>> given = Minutes(1.0, clock=iter([0.0, 50.0, 50.0, 70.0]).__next__)
    >>> given.allows(12.0), given.allows(5.0), given.over
    (False, True, True)
    """

    def __init__(
        self,
        minutes: float,
        clock: Callable[[], float] = working_time,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self.given, self.clock, self.wall = minutes, clock, wall
        self.begun, self.entered = clock(), wall()

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
        taken = self.wall() - self.entered
        compiled = taken - self.spent
        if not self.given or taken <= (1 + LATE) * 60 * self.given:
            return None
        return (
            f"this took {taken / 60:.1f} minutes instead of {self.given:g}: compiling took"
            f" {compiled / 60:.1f}, which are not counted and are saved the next time, and every"
            " method is tuned a little and trained once, however short the time is."
        )
