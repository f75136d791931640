"""Who is who: the clients that train, and those that are held out as newcomers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation
from coterie.engine.evaluate import Scores
from coterie.engine.training import Training

Absent = Callable[[int, int, NDArray[Any]], NDArray[np.bool_]]
"""Of a seed, a round and the clients that were sampled: for every client whether it is gone."""


@dataclasses.dataclass(frozen=True)
class Roll:
    """Clients by their numbers in the whole federation; both lists are sorted."""

    everybody: Federation
    members: NDArray[np.int64]
    held_out: NDArray[np.int64]

    @classmethod
    def call(cls, federation: Federation, training: Training) -> Roll:
        """The roll of a run."""
        return cls(federation, *training.hold_out(federation))

    def dropped(
        self, absent: Absent, at: tuple[int, int], cohort: NDArray[Any], *, all_train: bool
    ) -> NDArray[np.bool_] | None:
        """Who of those that train drops out; None: nobody. `at` are seed and round."""
        gone = absent(*at, self.members[cohort])[self.members]
        return gone if gone[slice(None) if all_train else cohort].any() else None

    def index_of(self, client: int) -> int:
        """A client's index among those that train."""
        if not 0 <= client < self.everybody.clients:
            raise InvalidInput(
                f"client is {client}, but must be from 0 to {self.everybody.clients - 1}."
            )
        if client in self.held_out:
            raise InvalidInput(
                f"client {client} was held out of training and has no model of its own in this run;"
                " see `coterie adapt`."
            )
        return int(np.searchsorted(self.members, client))

    def among_all(self, scores: Scores, clients: NDArray[np.int64]) -> Scores:
        """Scores of some clients as columns of everybody's, NaN for the others."""
        wide = [np.full((a.shape[0], self.everybody.clients), np.nan) for a in scores]
        for out, found in zip(wide, scores, strict=True):
            out[:, clients] = found
        return Scores(*wide)

    def scored(
        self, split: str, malicious: NDArray[np.bool_], seen: NDArray[np.bool_] | None = None
    ) -> NDArray[np.int64]:
        """How many samples of each client a split's scores are over; 0 for those that have none
        there. `malicious` are among the members, and so are those that are `seen` (None: all).
        """
        unseen = malicious if seen is None else malicious | ~seen
        everybody = self.everybody
        splits = {"train": everybody.train, "validation": everybody.validation}
        sizes: NDArray[np.int64] = splits.get(split, everybody.test).sizes
        numbers = np.arange(len(sizes))
        there = np.isin(numbers, self.held_out)
        if split == "newcomers":
            return np.where(there, sizes, 0)
        return np.where(there | np.isin(numbers, self.members[unseen]), 0, sizes)
