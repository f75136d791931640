"""When clients talk: in every round, or after the local work of several rounds.

With `exchange_every` = m a client does the work of m rounds at once, in the last of them, and talks
then. In the rounds between nothing happens, and nothing is sent. So t counts the same rounds and
gradient steps whatever m is.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.methods.base import Method

M = TypeVar("M", bound=Method)


class Pace(NamedTuple):
    """The rounds in which clients work."""

    rounds: NDArray[np.int64]
    """These, in increasing order; the last of all rounds is among them."""
    spans: NDArray[np.int32]
    """For every round the work, in rounds, that is done in it or, where nothing is, in the next one
    with work.
    """

    def idle(self, t: int) -> int:
        """How many rounds from t on have nothing to do."""
        return int(self.rounds[np.searchsorted(self.rounds, t)]) - t

    def busy(self, t: int) -> int:
        """How many rounds from t on have work, one after the other."""
        after = self.rounds[np.searchsorted(self.rounds, t) :]
        return int(np.sum(after == t + np.arange(len(after))))


def ready(pace: Pace | None, t: int, rounds: int) -> tuple[int, int]:
    """Of the next `rounds` from t on: how many have nothing to do, and, if none, how many have work
    one after the other.
    """
    if pace is None:
        return 0, rounds
    idle = min(pace.idle(t), rounds)
    return idle, min(rounds, pace.busy(t)) if not idle else 0


def paced(method: M, pace: Pace | None) -> M:
    """The bound method, which knows how much it does in each round."""
    if pace is None:
        return method
    ordinals = np.searchsorted(pace.rounds, np.arange(len(pace.spans))).astype(np.int32)
    return dataclasses.replace(
        method, spans=jnp.asarray(pace.spans), ordinals=jnp.asarray(ordinals)
    )


def pace_of(method: Method, rounds: int, alone: int = 0) -> Pace | None:
    """The pace of a method over so many rounds; None: work in every round.

    `alone` are rounds at the beginning in which everybody trains and nobody talks.

    >>> from coterie.methods import FedU
    >>> pace_of(FedU(exchange_every=4), 10).rounds.tolist()
    [3, 7, 9]
    >>> pace_of(FedU(exchange_every=1, exchange_growth=2), 20, alone=2).rounds.tolist()
    [0, 1, 2, 4, 8, 16, 19]
    """
    if not method.rests:
        return None
    at = list(range(min(alone, rounds)))
    last, gap = len(at) - 1, method.exchange_every
    while last < rounds - 1:
        last = min(rounds - 1, last + gap)
        at.append(last)
        gap = min(gap * method.exchange_growth, rounds)
    found = np.array(at)
    spans = np.diff(found, prepend=-1)[np.searchsorted(found, np.arange(rounds))]
    return Pace(found, spans.astype(np.int32))
