"""Which round counts: the last, or the best on validation data; and when to stop early.

The rule is the same for all methods. The score is the mean over clients with validation rows, of
the view that a method is judged by; of two rounds with the same score the one with the lower loss
is better, and of two that are alike in both the earlier one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Saved, Snapshot
from coterie.engine.training import Training


class Standing(NamedTuple):
    """How good a round was on validation data; larger is better."""

    score: float
    loss: float

    @classmethod
    def of(cls, snapshot: Snapshot) -> Standing | None:
        """None without validation data, or where its mean is not a number."""
        if "validation" not in snapshot.scores:
            return None
        found = snapshot.scores["validation"]
        score, loss = found.score[0], found.loss[0]
        if np.isnan(score).all():
            return None
        return cls(float(np.nanmean(score)), float(np.nanmean(loss)))

    def beats(self, other: Standing | None) -> bool:
        if other is None:
            return True
        return self.score > other.score or (self.score == other.score and self.loss < other.loss)


class BestShelf(Protocol):
    """Where the states of the best round are kept until the end."""

    def put(self, simulator: Simulator) -> None: ...

    def get(self) -> Saved: ...


class InMemory:
    """A shelf for runs without a folder."""

    saved: Saved | None = None

    def put(self, simulator: Simulator) -> None:
        self.saved = held(simulator)

    def get(self) -> Saved:
        assert self.saved is not None
        return self.saved


class Keeper:
    """Follows the evaluations of a run, keeps its best round, and says when to stop."""

    def __init__(self, training: Training, shelf: BestShelf | None = None) -> None:
        self.training, self.shelf = training, shelf or InMemory()
        self.best: Standing | None = None
        self.round: int | None = None
        """The best round so far; None before the first evaluation, and without validation data."""
        self.since = 0
        """Evaluations since then."""

    @property
    def keeps(self) -> bool:
        return self.training.keep == "best"

    @property
    def stopped(self) -> bool:
        """Whether `patience` is used up."""
        return self.training.patience is not None and self.since >= self.training.patience

    def look(self, snapshot: Snapshot, simulator: Simulator) -> None:
        """Take note of an evaluation."""
        if self.training.plain:
            return
        now = Standing.of(snapshot)
        if now is None or not now.beats(self.best):
            self.since += 1
            return
        self.best, self.round, self.since = now, snapshot.round, 0
        if self.keeps:
            self.shelf.put(simulator)

    def finish(self, simulator: Simulator, *, newcomers: bool = True) -> Snapshot | None:
        """Bring back the round that counts. What was spent stays spent.

        Gives the newcomers' scores where clients were held out: they adapt from what counts.
        """
        if self.training.plain:
            return None
        if self.keeps and self.round is not None and self.round != simulator.t:
            go_back(simulator, self.shelf.get())
        if not newcomers or not len(simulator.held_out) or not len(simulator.everybody.test):
            return None
        with simulator.precision():
            scores = {"newcomers": simulator.newcomers()}
        return Snapshot(simulator.t, scores, **simulator.ledger.totals())

    def to_config(self) -> dict[str, Any]:
        """All but the states, as plain values."""
        best = None if self.best is None else list(self.best)
        return {"best": best, "round": self.round, "since": self.since}

    def carry_on(self, noted: dict[str, Any]) -> None:
        """Go on from `to_config`."""
        self.best = None if noted["best"] is None else Standing(*noted["best"])
        self.round, self.since = noted["round"], noted["since"]


def held(simulator: Simulator) -> Saved:
    """The states of all clients that have trained so far; checkpoints do not notice."""
    dirty = simulator.dirty.copy()
    saved = simulator.state(np.flatnonzero(simulator.touched))
    simulator.dirty = dirty
    return saved


def go_back(simulator: Simulator, saved: Saved) -> None:
    """Give a simulator the models of an earlier round; its bill stays as it is."""
    totals, account = simulator.ledger.totals(), simulator.broadcasts
    unsent = simulator.unsent
    received, total = account.received.copy(), account.total
    then = np.zeros(simulator.spec.clients, bool)
    for ids, _ in saved.rows:
        then[ids] = True
    later = np.flatnonzero(simulator.touched & ~then)
    if len(later) and simulator.store.format.bytes:
        first = np.repeat(simulator.store.format.initial_row()[None], len(later), axis=0)
        with simulator.precision():
            simulator.store.load(later, first)
    simulator.restore(saved)
    simulator.ledger.carry_on(totals)
    simulator.unsent = unsent
    account.received, account.total = received, total
    simulator.touched = then
