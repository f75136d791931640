"""What tuning found for a method."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.search import LogRange
from coterie.methods.base import Method
from coterie.report.trials import Trial, TrialsOf
from coterie.runs.contender import Contender
from coterie.runs.tuning.spaces import Params, Spaces


@dataclasses.dataclass
class Tuned:
    """A method at the best values that were found."""

    label: str
    given: Contender
    contender: Contender
    score: float
    """Mean validation score of the best trial: of a maximum, so a little too good."""
    clients: NDArray[np.float64]
    """The same per client; NaN for clients without validation rows."""
    rounds: tuple[int, ...]
    """The round that counted, of every run of the best trial."""
    trials: list[Trial]
    steps: float
    """Gradient steps per client that all trials took together."""
    seconds: float
    spaces: Spaces
    core_seconds: float = 0.0
    """Of processors, compiling included: what else ran on the machine does not count."""

    @property
    def method(self) -> Method:
        return self.contender.method

    @property
    def params(self) -> Params:
        """The values that were found."""
        return self.best.params

    @property
    def best(self) -> Trial:
        return best_of(self.trials)

    def table(self) -> TrialsOf:
        """The trials for tables and figures."""
        logarithmic = {name: isinstance(space, LogRange) for name, space in self.spaces.items()}
        return TrialsOf(self.label, self.trials, self.best.number, logarithmic)

    @property
    def given_score(self) -> float | None:
        """What the values that were given reached, where they were tried to the end."""
        first = next((t for t in self.trials if t.state == "complete"), None)
        return first.score if first is not None and first.number == 0 else None


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best of those that ran to their end; if none did, of those that went furthest."""
    for state in ("complete", "cut", "pruned"):
        there = [t for t in trials if t.state == state]
        if there:
            return max(there, key=lambda t: t.score)
    why = next((t.reason for t in trials if t.reason), "none was made")
    raise InvalidInput(f"no trial gave a score, e.g.: {why}")
