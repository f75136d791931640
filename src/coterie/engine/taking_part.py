"""Who takes part in a round that is done on the rows it needs, and no others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.engine.in_turn import in_turn
from coterie.engine.rounds import everybody_trains, round_cohort, stale_neighbours
from coterie.engine.setting import Log, Spec, Who

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator

DRAWN = 64
"""Rounds whose cohorts are drawn at once."""


@partial(in_turn, static_argnames="spec")
def _cohorts(spec: Spec, seed: Any, t: Any) -> Any:
    return jax.vmap(lambda i: round_cohort(spec, seed, t + i))(jnp.arange(DRAWN))


class Cohorts:
    """The clients sampled in every round, sorted; some rounds are drawn at once."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec, self.seed, self.block = spec, seed, -1
        self.drawn: NDArray[Any] = np.zeros((0, 0))

    def of(self, t: int) -> NDArray[Any]:
        if self.spec.cohort == self.spec.clients:
            return np.arange(self.spec.clients, dtype=np.int32)
        if self.block != t // DRAWN:
            self.block = t // DRAWN
            self.drawn = np.asarray(_cohorts(self.spec, self.seed, self.block * DRAWN))
        return self.drawn[t % DRAWN]


def who_of(sim: Simulator, gone: NDArray[np.bool_] | None) -> Who:
    """Those of the round that comes next; `gone` are those that drop out of it."""
    if sim.supply.edges is not None:
        return Who(sim.supply.edges.ends(sim.t))
    n, members = sim.spec.clients, sim.cohort(sim.t)
    trainers = np.arange(n) if everybody_trains(sim.spec, sim.method) else members
    if gone is not None:
        members, trainers = members[~gone[members]], trainers[~gone[trainers]]
    senders = None if len(members) == len(trainers) else np.searchsorted(trainers, members)
    hears_all = stale_neighbours(sim.spec, sim.method) or (
        gone is not None and getattr(sim.method, "hears_all", False)
    )
    if not hears_all:
        return Who(trainers, senders)
    assert sim.graph is not None
    near = [sim.graph.neighbours(int(k))[0] for k in members]
    needed = np.unique(np.concatenate([members, *near]))
    # One shape for all rounds: padded by repeating the last client, whose row is then simply
    # there twice.
    most = sim.graph.widest if sim.kinship is None else sim.kinship.rule.most(n)
    width = min(n, int(len(members) * (1 + most)))
    if sim.setting.graph.dense is None:  # few shapes, where most clients have fewer neighbours
        width = min(width, 1 << (len(needed) - 1).bit_length())
    padding = np.full(width - len(needed), needed[-1])
    return Who(trainers, senders, np.concatenate([needed, padding]))


def next_ids(sim: Simulator) -> NDArray[Any] | None:
    """Those that the round after the next one takes, unless somebody drops out; None where that is
    everybody, or no round comes.
    """
    t = sim.t + 1
    if t >= sim.training.rounds or sim.pooled or everybody_trains(sim.spec, sim.method):
        return None
    return sim.cohort(t) if sim.supply.edges is None else sim.supply.edges.ends(t)


def once(who: Who, rows: Any, log: Log) -> tuple[NDArray[Any], Any, Log]:
    """Clients, their states and their log without the repetitions at the end."""
    ids = np.asarray(who.ids)
    count = int(np.searchsorted(ids, ids[-1])) + 1 if len(ids) else 0
    if count == len(ids):
        return ids, rows, log
    cut = lambda leaf: np.asarray(leaf)[:count]
    short = Log(*(cut(leaf) if np.ndim(leaf) else leaf for leaf in log))
    return ids[:count], jax.tree.map(cut, rows), short
