"""Drop-outs in training: rounds that go on without some clients."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from coterie.engine import rounds as engine_rounds
from coterie.engine.rounds import Log
from coterie.engine.simulate import Simulator
from coterie.engine.store import DeviceStore
from coterie.network.forecast import sampled
from coterie.network.options import Array, Network


class Dropping(Simulator):
    """A simulator whose rounds go on without the clients that dropped out, as a deployed hub does:
    these neither work nor hear nor send.

    Round by round, since the number of clients changes; a program is compiled for every number that
    occurs. Methods without a hub, and pooled and local training, run as ever: what a silent
    neighbour does to peers is seen in time only.
    """

    network: Network

    @classmethod
    def of(cls, network: Network, *args: Any, **options: Any) -> Dropping:
        made = cls(*args, **options)
        made.network = network
        return made

    def advance(self, rounds: int) -> int:
        method, n = self.method, self.spec.clients
        if method.exchange not in ("star", "graph") or not method.hub_between:
            return super().advance(rounds)
        cohort = sampled(self.seed, self.t, n, self.spec.cohort)
        gone = self.network.missing(
            self.seed, self.t, self.members[cohort], self.everybody.clients
        )[self.members]
        if not gone[np.arange(n) if method.trains_all else cohort].any():
            return super().advance(1)
        with self.precision():
            self._account(self._round_without(cohort[~gone[cohort]], gone), 1)
        return 1

    def _round_without(self, cohort: Array, gone: Array) -> Log:
        method, n = self.method, self.spec.clients
        ids = np.flatnonzero(~gone) if method.trains_all else cohort
        senders = np.searchsorted(ids, cohort) if method.trains_all else None
        pool_ids, pool = None, None
        if method.exchange == "graph" and method.hears_all:
            pool_ids = np.arange(n)
            pool = self.store.gather(pool_ids)
        rows = self.store.gather(ids)
        self.centre, rows, log = engine_rounds.compiled_round(
            self.spec,
            method,
            self.channel,
            self.threat,
            self.data,
            self.coupled,
            self.seed,
            self.t,
            self.centre,
            ids,
            rows,
            senders,
            pool_ids,
            pool,
        )
        if isinstance(self.store, DeviceStore):
            self.store.rows = jax.tree.map(
                lambda all_, new: all_.at[ids].set(new), self.store.rows, rows
            )
        else:
            self.store.scatter(ids, rows)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[None], log)
