"""What a peer knows of a neighbour, and how it opens the neighbour's messages."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from typing import NamedTuple

import jax
import numpy as np

from coterie.channel.ends import OutOfStep, is_whole
from coterie.channel.link import Outgoing
from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.typing import PyTree
from coterie.deploy.kept import passing
from coterie.deploy.messages import Rejected
from coterie.deploy.setup import Setup


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """A neighbour as the config names it."""

    name: str
    number: int
    weight: float


class Opened(NamedTuple):
    """A message that was opened but not used yet, the receiving end of the link after it, and its
    size.
    """

    message: PyTree
    public: PyTree
    size: int


@dataclasses.dataclass(frozen=True)
class NeighbourState:
    """What a peer knows of a neighbour."""

    public: PyTree = ()
    """This peer's end of the neighbour's link."""
    message: PyTree = ()
    """Its last message; () where an old one never counts again."""
    round: int = -1
    """Of its last message that was used."""
    active: bool = True
    entry: int = -1
    """The round from which it counts again, if one was agreed."""
    rejected: int = 0
    failed: int = 0
    """How often its edge was dropped in the very round in which it should have come back."""
    inbox: dict[int, bytes] = passing()
    """Messages that cannot be opened yet: an earlier one is missing."""
    chain: dict[int, Opened] = passing()
    """Messages that were opened, by round, but not used yet."""
    digests: dict[int, bytes] = passing()
    """Of the messages of the last rounds, to tell one that was sent again from another one."""

    @property
    def last(self) -> int:
        """The round of the last message that was opened."""
        return max(self.chain, default=self.round)

    def counts(self, t: int) -> bool:
        """Whether it counts in round t."""
        return self.active or 0 <= self.entry <= t

    def begins(self, active: bool, entry: int) -> NeighbourState:
        """The same neighbour, counting or not, of which nothing has arrived."""
        return dataclasses.replace(self, active=active, entry=entry, inbox={}, chain={})

    def rejects(self) -> NeighbourState:
        return dataclasses.replace(self, rejected=self.rejected + 1)

    def wants(self, t: int, *, any_order: bool) -> int:
        """In round t: the round of the first message that is of use."""
        if any_order:
            return next(r for r in itertools.count(max(t, self.entry)) if r not in self.chain)
        if not self.active and self.entry >= 0 and not self.chain:
            return self.entry
        return self.last + 1

    def is_new(self, t: int, wire: bytes) -> bool:
        """Whether a message of round t was not there before. Raises Rejected when another was."""
        if t not in self.digests:
            return t > self.round and t not in self.inbox and t not in self.chain
        if self.digests[t] != hashlib.sha256(wire).digest():
            raise Rejected(
                f"two different messages came for round {t}, and the first one counts; do two"
                " processes have this identity?"
            )
        return False

    def used(self, t: int) -> tuple[NeighbourState, int]:
        """After round t, in which the newest message there is was used; and the bytes of all that
        were there for it.
        """
        usable = [r for r in self.chain if r <= t]
        if not usable:
            return self, 0
        newest = self.chain[max(usable)]
        state = dataclasses.replace(
            self, public=newest.public, message=newest.message, round=max(usable)
        )
        return state, sum(self.chain[r].size for r in usable)

    def after(self, t: int, *, dropped: bool, remembered: int) -> NeighbourState:
        """Without what belongs to round t and before; `remembered`: for how many rounds it is known
        what was sent.
        """
        failed = 0 if self.round == t else self.failed
        return dataclasses.replace(
            self,
            active=self.counts(t) and not dropped,
            entry=-1 if self.entry <= t else self.entry,
            # it was to come back in this round
            failed=failed + (dropped and not self.active),
            inbox={} if dropped else {r: w for r, w in self.inbox.items() if r > self.round},
            chain={} if dropped else {r: o for r, o in self.chain.items() if r > t},
            digests={r: d for r, d in self.digests.items() if r > t - remembered},
        )


def open_letters(
    setup: Setup, state: NeighbourState, number: int, t: int
) -> tuple[NeighbourState, CoterieError | None]:
    """Open what can be opened in round t of what neighbour `number` sent, up to the first bad
    message: that is thrown away, may be sent again, and is given as an error.
    """
    for r, wire in sorted(state.inbox.items()):
        if not _opens(setup, state, (r, wire), t):
            continue
        inbox = {s: w for s, w in state.inbox.items() if s != r}
        try:
            opened = _opened(setup, state, number, (r, wire))
        except (InvalidInput, Rejected, OutOfStep) as error:
            return dataclasses.replace(state, inbox=inbox), error
        chain = {**state.chain, r: opened}
        digests = {**state.digests, r: hashlib.sha256(wire).digest()}
        state = dataclasses.replace(state, inbox=inbox, chain=chain, digests=digests)
    return state, None


def _opens(setup: Setup, state: NeighbourState, letter: tuple[int, bytes], t: int) -> bool:
    """Whether a message can be understood: over public copies only the one after the last, or a
    whole one when its turn has come.
    """
    r, wire = letter
    before = state.entry - 1 if not state.active and not state.chain else state.last
    return setup.up.passes or r == before + 1 or (is_whole(wire) and before < r <= t)


def _opened(setup: Setup, state: NeighbourState, number: int, letter: tuple[int, bytes]) -> Opened:
    r, wire = letter
    entering = not state.active and r == state.entry
    if entering and not setup.up.passes and not is_whole(wire):
        raise Rejected(
            f"the message of round {r}, in which its edge counts again, must be a whole one."
        )
    before = state.chain[state.last].public if state.chain else state.public
    message, public = setup.receive_up(number, before, wire, Outgoing(None, t=r))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(message)):
        raise Rejected("the message holds NaN or infinity.")
    return Opened(message, public, len(wire))
