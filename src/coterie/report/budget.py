"""The byte bill against the score: what a budget buys, and what a target costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.report.outcome import Outcome

Array = NDArray[Any]
DIRECTIONS = ("up", "down", "both")


class Cost(NamedTuple):
    """What had been spent when a target was first met at an evaluation; None when it never was."""

    bytes: float | None
    rounds: float | None
    gradients: float | None


def spent(outcome: Outcome, direction: str = "both") -> Array:
    """Bytes of all clients together at every evaluation."""
    if direction not in DIRECTIONS:
        raise InvalidInput(
            f"the direction is {direction!r}, but must be one of"
            f" {', '.join(map(repr, DIRECTIONS))}."
        )
    return np.asarray(
        {"up": outcome.up, "down": outcome.down, "both": outcome.up + outcome.down}[direction],
        float,
    )


def mean_scores(outcome: Outcome, members: Array | None = None) -> Array:
    """The mean score at every evaluation of all clients, or of some (a mask)."""
    scores = outcome.scores[outcome.view]
    some = members is not None and members.any()
    return np.nanmean(np.ascontiguousarray(scores[:, members]) if some else scores, axis=1)


def to_target(
    outcome: Outcome, target: float, direction: str = "both", members: Array | None = None
) -> Cost:
    """What it took until the clients' mean score first reached the target."""
    reached = np.flatnonzero(mean_scores(outcome, members) >= target)
    if not len(reached):
        return Cost(None, None, None)
    i = int(reached[0])
    return Cost(
        float(spent(outcome, direction)[i]), float(outcome.rounds[i]), float(outcome.gradients[i])
    )


def at_budget(
    outcome: Outcome, budget: float, direction: str = "both", members: Array | None = None
) -> float:
    """The last mean score that a budget of bytes (of all clients together) pays for."""
    paid = np.flatnonzero(spent(outcome, direction) <= budget)
    return float(mean_scores(outcome, members)[paid[-1]]) if len(paid) else float("nan")
