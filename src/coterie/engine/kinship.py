"""A graph that is learnt while the clients train (`coupling/learnt`): who has sent a sketch, and
the graph that a rule makes of the sketches.

Between blocks of rounds, not within: learning happens rarely, and rounds only read the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from coterie.channel.link import flat
from coterie.core.errors import InvalidInput, notice
from coterie.core.randomness import Role, role_key
from coterie.core.typing import Array, PyTree
from coterie.core.vector import Vector
from coterie.coupling import projection
from coterie.coupling.graph import Graph, from_arrays
from coterie.coupling.learnt.base import Evidence, GraphRule, empty
from coterie.engine.exchange.base import Bill
from coterie.engine.mesh import put
from coterie.engine.setting import Coupled
from coterie.engine.trying import losses_of, models_bill, prepare_to_try

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator

AT_ONCE = 1024
"""Clients whose states are taken from a store at once."""
WHOLE = 1 << 24
"""A projection with more numbers than this is made of blocks."""
PREFIX = "learnt/"
NOBODY = np.zeros((0, 2), np.int64)


def sketcher(rule: GraphRule, start: Array, seed: Any) -> projection.Projection:
    """P, which all draw from the shared seed; `start` is everybody's message before round 0."""
    like, rows = Vector(start), rule.numbers(start.size)
    if not rule.sketch and rule.bits != 1:
        return projection.draw("identity", like, rows, None)
    key = role_key(seed, Role.KIN)
    if rows > start.size:
        drawn = jax.random.normal(key, (rows, start.size), start.dtype)
        return projection.Dense.split(drawn, [start.size])
    blocks = max(1, min(rows, rows * start.size // WHOLE))
    return projection.draw("dense" if blocks == 1 else "block", like, rows, key, blocks=blocks)


def sketch_of(method: Any, drawn: projection.Projection, start: Array, state: PyTree) -> Array:
    """P v: how one client's message has moved since the start."""
    found: Array = drawn(Vector(flat(method.message(state)) - start))
    return found


@jax.jit
def _sketches(method: Any, drawn: Any, start: Array, states: PyTree) -> Array:
    return jax.vmap(lambda state: sketch_of(method, drawn, start, state))(states)


def as_sent(rule: GraphRule, sketches: Any) -> NDArray[np.float64]:
    """Sketches as they arrive: float32, or signs."""
    values = np.asarray(sketches, np.float32).astype(np.float64)
    return np.where(values > 0, 1.0, -1.0) if rule.bits == 1 else values


class Evident(Protocol):
    """Who knows sketches by a rule."""

    rule: GraphRule
    start: Array

    @property
    def evidence(self) -> Evidence: ...


class Kinship:
    """What a federation knows of its clients' likeness."""

    def __init__(self, rule: GraphRule, sim: Simulator) -> None:
        if sim.attack is not None:
            raise InvalidInput(
                f"the attack is {sim.attack.name!r} and the graph is learnt, but what malicious"
                " clients would send to be found is not modelled; give a graph."
            )
        check_rule(rule, sim.method)
        if rule.tries_models:
            prepare_to_try(sim, rule)
        self.tried: Any = None
        n = sim.federation.clients
        self.rule, self.graph = rule, empty(n)
        self.start = flat(sim.method.message(sim.method.client_init(sim.template)))
        self.drawn = sketcher(rule, self.start, sim.seed)
        self.sketches = np.zeros((n, rule.numbers(self.start.size)))
        self.known, self.moved = np.zeros((2, n), bool)
        """Who has sent a sketch, and who has trained since."""
        self.history: list[tuple[float, ...]] = []
        """A row for every time the graph was learnt: before which round, edges, the share of edges
        in common with the graph before it, and the bytes that clients sent for it.
        """
        self.joined: Any = None
        """The edges that are new in this graph, until a round went over it. Of the first graph none
        is: nobody has sent anything, so all know each other's copies.
        """

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.sketches, self.known, self.rule.bits, self.tried)

    def coupled(self, dtype: Any, *, talks: bool) -> Coupled:
        """The graph as rounds see it, in a shape that stays the same."""
        n, said = self.graph.clients, jnp.asarray(talks)
        most = self.rule.most(n)
        if most * 4 < n:
            index, weight = self.graph.table(most)
            return Coupled(near=jnp.asarray(index), weight=jnp.asarray(weight, dtype), talks=said)
        return Coupled(dense=jnp.asarray(self.graph.weights.toarray(), dtype), talks=said)

    def before(self, sim: Simulator, rounds: int) -> int:
        """Learn what is due before the next round, if anybody has trained since the last time;
        gives how many rounds may go until the next time, `rounds` at most.
        """
        if self.rule.due(sim.t) and self.moved.any():
            self.learn(sim)
        ahead = self.rule.until(sim.t)
        return min(rounds, ahead) if ahead else rounds

    def learn(self, sim: Simulator) -> None:
        """Those that trained send sketches, which are billed, and the graph is made anew."""
        ids = np.flatnonzero(self.moved)
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            states = sim.store.gather(some).method_state
            self.sketches[some] = as_sent(self.rule, self.sketched(sim.method, states))
        self.known[ids], self.moved[ids] = True, False
        if self.rule.tries_models:
            self.tried = losses_of(sim)
        graph, due = found(self, ids, sim.method, sim.seed, sim.t)
        bills = [due]
        if self.rule.tries_models:
            bills.append(models_bill(self.rule, self.evidence, sim))
            self.tried = None
        for each in bills:
            sim.ledger.add(sim.t, sim.members[each.clients], each.up, each.down, each.gradients)
        before = self.graph
        self.joined = new_edges(before, graph) if self.history else None
        self.use(sim, graph)
        sent = float(np.broadcast_to(due.up, due.clients.shape).sum())
        self.history.append((sim.t, self.graph.edges, in_common(before, self.graph), sent))
        broken = [str(c) for c in sim.conditions() if not c.holds]
        if broken:
            notice(
                f"after round {sim.t} the learnt graph breaks a step-size condition"
                f" ({'; '.join(broken)}); take a smaller eta, or fewer neighbours."
            )

    def worked(self, sim: Simulator, ids: NDArray[Any]) -> None:
        """After a round of these clients."""
        self.moved[ids] = True
        if self.joined is not None:
            self.joined = None
            sim.forget_accounts()

    def sketched(self, method: Any, states: PyTree) -> Array:
        """Sketches of clients with these states, stacked."""
        return _sketches(method, self.drawn, self.start, states)

    def use(self, sim: Simulator, graph: Graph, *, talks: bool = True) -> None:
        """Rounds go over this graph from now on."""
        self.graph = sim.graph = graph
        sim.forget_accounts()
        dtype = jnp.dtype(sim.training.precision)
        coupled = put(sim.spec.mesh, self.coupled(dtype, talks=talks))
        sim.setting = sim.setting._replace(graph=coupled)

    def saved(self) -> dict[str, NDArray[Any]]:
        """All that is needed to go on."""
        found = {
            "sketches": self.sketches,
            "known": self.known,
            "moved": self.moved,
            "history": np.array(self.history, float).reshape(-1, 4),
            "joined": np.stack(self.joined.nonzero(), 1) if self.joined is not None else NOBODY,
            **self.graph.arrays(),
        }
        return {PREFIX + name: value for name, value in found.items()}

    def restore(self, sim: Simulator, hub: dict[str, NDArray[Any]]) -> None:
        """The inverse of `saved`."""
        mine = {k.removeprefix(PREFIX): np.array(a) for k, a in hub.items() if PREFIX in k}
        self.sketches, self.known, self.moved = (mine[k] for k in ("sketches", "known", "moved"))
        self.history = [tuple(row) for row in mine["history"].tolist()]
        if self.known.any():
            self.use(sim, from_arrays(mine, len(self.known), self.graph.name))
        if len(pairs := mine["joined"]):
            self.joined = _of_pairs(pairs, len(self.known))


def new_edges(before: Graph, after: Graph) -> sp.csr_array:
    """The edges that only the second graph has, as an adjacency of 0 and 1."""
    there = (after.weights > 0).astype(np.int64)
    return sp.csr_array(there - there.multiply((before.weights > 0).astype(np.int64)))


def _of_pairs(pairs: NDArray[Any], clients: int) -> sp.csr_array:
    ones = np.ones(len(pairs), np.int64)
    return sp.csr_array((ones, tuple(pairs.T)), shape=(clients, clients))


def in_common(a: Graph, b: Graph) -> float:
    """Edges that both graphs have, of those that either has."""
    both = a.weights.multiply(b.weights).nnz
    either = a.weights.nnz + b.weights.nnz - both
    return both / either if either else 1.0


def check_rule(rule: GraphRule, method: Any) -> None:
    """Refuse gossip where there is a hub."""
    if rule.gossips and method.hub_between:
        raise InvalidInput(
            f"{rule.name}.gossip is above 0, but {method.name} has a hub, which hears every sketch"
            " once; gossip is for methods without one."
        )


def found(kin: Evident, ids: NDArray[Any], method: Any, seed: int, t: int) -> tuple[Graph, Bill]:
    """The graph before round t, for which these clients sent new sketches, and what it costs.

    A hub hears each sketch once and keeps the graph. Without a hub peers gossip, or everybody's
    sketch goes to everybody.
    """
    rule, clients = kin.rule, kin.evidence.clients
    if not method.hub_between:
        gossiped = rule.gossiped(kin.evidence, seed, t, kin.start.size)
        if gossiped is not None:
            return gossiped.graph, Bill(np.arange(clients), gossiped.up, gossiped.down, 0)
    size, graph = rule.sketch_bytes(kin.start.size), rule.graph(kin.evidence)
    if method.hub_between:
        return graph, Bill(ids, size, 0, 0)
    sent = np.zeros(clients, np.int64)
    sent[ids] = size
    return graph, Bill(np.arange(clients), sent * (clients - 1), size * len(ids) - sent, 0)
