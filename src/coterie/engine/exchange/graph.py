"""Graph: neighbours pull each other, by themselves or through a hub that knows the graph."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.adversary.base import each
from coterie.channel import link
from coterie.channel.link import LinkKind, Outgoing, Sent
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector, all_finite
from coterie.engine.exchange.base import (
    Accounts,
    Bill,
    Closed,
    Exchange,
    Heard,
    Offer,
    Turn,
    honest,
    integers,
)
from coterie.engine.mesh import everywhere
from coterie.engine.setting import ClientState, Coupled, HubState, Log, Round, State, Who

PULL_NUMBERS = 1 << 24
"""How many numbers the differences between neighbours may take at once (64 MB in float32)."""


class Graph(Exchange):
    kind = "graph"
    sends = True

    def up(self, now: Round) -> LinkKind:
        return link.graph_up(now.channel)

    def down(self, now: Round) -> LinkKind:
        return link.graph_down(now.channel)

    def open_client(self, now: Round, hub: HubState, template: Vector) -> ClientState:
        method_state = now.method.client_init(template)
        up, down = self.up(now), self.down(now)
        if up.passes and down.passes:
            return ClientState(method_state)
        message = now.method.message(method_state)
        # All start alike, so nobody is pulled anywhere: what comes down is the client's own part,
        # negated.
        silent = jax.tree.map(lambda leaf: -leaf, now.method.own_pull(message))
        between = now.method.hub_between
        return ClientState(
            method_state,
            link.open_link(up, now.channel, message),
            link.open_link(down, now.channel.downward(), silent) if between else (),
        )

    def turn(
        self, now: Round, client: Scalar, state: ClientState, heard: Heard, sending: Any = True
    ) -> Turn:
        talks = now.setting.graph.talks
        sending = sending if talks is None else sending & talks
        return super().turn(now, client, state, heard, sending)

    def close(
        self, now: Round, state: State, broadcast: Sent | None, turns: Turn, who: Who
    ) -> Closed:
        talks = now.setting.graph.talks
        closed = self.mixed(now, state, turns, who)
        if talks is None:
            return closed
        # Before there is a graph, a round is local work.
        rows = jax.tree.map(lambda a, b: jnp.where(talks, a, b), closed.rows, turns.state)
        return closed._replace(rows=rows, down=jnp.where(talks, closed.down, 0))

    def mixed(self, now: Round, state: State, turns: Turn, who: Who) -> Closed:
        """The end of a round in which neighbours pull."""
        ids, messages, rows = who.ids, turns.message, turns.state
        arrived = everywhere(now.spec.mesh, messages)
        pool_ids, pool, finite = self.arriving(now, state, who, arrived)
        unsent = jnp.zeros(len(ids), bool)
        if finite is not None:
            unsent = ~finite[jnp.searchsorted(pool_ids, ids)]
        own = jax.vmap(now.method.message)(rows.method_state) if compares_itself(now) else messages
        pulls, totals = neighbour_pull(now, Mixing(ids, own, pool_ids, pool, finite))
        if now.method.hub_between:
            carry = lambda *one: self.carry(now, *one)
            pulls, links, down = jax.vmap(carry)(ids, pulls, totals, messages, rows.down)
        else:
            links, down = rows.down, jnp.zeros(len(ids), jnp.int32)
        rows = rows._replace(down=links)
        rows = jax.vmap(lambda *one: self.absorb(now, *one))(rows, pulls, messages)
        finite_after = honest(now, jax.vmap(all_finite)(rows.method_state), ids)
        return Closed(state.hub, rows, down, finite_after, unsent)

    def arriving(
        self, now: Round, state: State, who: Who, messages: PyTree
    ) -> tuple[Array, PyTree, Array | None]:
        """The clients whose messages arrive, these messages (what they sent now or last, or a lie),
        and whose are finite (None: all). What is not finite counts as not sent.
        """
        threat, seed, t, ids = now.setting.threat, now.setting.seed, now.t, who.ids
        arrived = messages
        if threat is not None:
            arrived = threat.attack.apply(messages, threat.malicious[ids], seed, t)
        pool_ids, pool = ids, arrived
        if who.pool is not None:
            pool_ids = who.pool
            last = self.last_messages(now, state.others)
            if threat is not None:
                seen = messages, threat.malicious[ids]
                lie = jax.vmap(lambda m, k: threat.attack.stale(m, k, seen, seed, t))
                malicious = threat.malicious[pool_ids]
                pick = lambda a, b: jnp.where(each(malicious, a), b, a)
                last = jax.tree.map(pick, last, lie(last, pool_ids))
            index = jnp.searchsorted(pool_ids, ids)
            pool = jax.tree.map(lambda p, m: p.at[index].set(m), last, arrived)
        if threat is None:
            return pool_ids, pool, None
        there = jax.vmap(all_finite)(pool)
        return pool_ids, jax.tree.map(lambda m: jnp.where(each(there, m), m, 0), pool), there

    def carry(
        self, now: Round, client: Scalar, pull: PyTree, total: Scalar, own: PyTree, down: PyTree
    ) -> tuple[PyTree, PyTree, Array]:
        """With a hub: a pull on its way down, the link afterwards, and bytes."""
        kind = self.down(now)
        out = Outgoing(pull, now.method.own_pull(own), t=now.nth, scale=total)
        if not kind.passes:
            out = out._replace(key=now.down_key(client))
        sent = link.transmit(kind, now.channel.downward(), down, out)
        return sent.arrived, sent.link, jnp.asarray(sent.bytes, jnp.int32)

    def absorb(self, now: Round, state: ClientState, pull: PyTree, message: PyTree) -> ClientState:
        """The end of a client's round: it moves by the pull that reached it."""
        up = state.up
        if up != ():
            up = up._replace(public=self.follow(now, up.public, pull, message))
        return ClientState(now.method.absorb(state.method_state, pull, now.t), up, state.down)

    def follow(self, now: Round, public: PyTree, pull: PyTree, message: PyTree) -> PyTree:
        """With a hub: hub and client both know the pull, so their public copy of the client's
        message goes along with it, and none of that need be sent.
        """
        if not (now.method.hub_between and self.up(now).copies):
            return public
        return public._replace(copy=link.flat(now.method.moved(message, pull, now.t)))

    def last_messages(self, now: Round, rows: ClientState | None) -> PyTree:
        """What is known of clients that do not take part.

        Over public copies, those; else what their states say.
        """
        assert rows is not None
        kind, message = self.up(now), jax.vmap(now.method.message)
        if kind.passes:
            return message(rows.method_state)
        shapes = jax.eval_shape(message, rows.method_state)
        one = lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)
        like = jax.tree.map(one, shapes)
        return jax.vmap(lambda up: link.known(kind, up, like))(rows.up)

    def bill(self, log: Log, t: int, accounts: Accounts, method: Any) -> Bill:
        up = integers(log.up)
        if method.hub_between:
            return Bill(log.ids, up, integers(log.down), log.gradients)
        if accounts.edges is not None:
            up, down = accounts.edges.bill(log.ids, t, up)
            return Bill(log.ids, up, down, log.gradients)
        # Without a hub all take part.
        sent, got = up * accounts.degrees, accounts.adjacency @ up
        if accounts.joined is not None:  # who knows nothing of a neighbour yet gets it whole
            new = np.asarray(accounts.joined.sum(1))
            sent = sent + (accounts.whole_copy - up) * new
            got = got + accounts.whole_copy * new - accounts.joined @ up
        return Bill(log.ids, sent, got, log.gradients)

    def newcomer(
        self, now: Round, offer: Offer, client: Scalar, weights: Array, rounds: Scalar
    ) -> tuple[PyTree, PyTree]:
        method, pool = now.method, offer.messages
        joined = method.join(offer.template, pool, weights)
        # Without neighbours there is nobody to begin from but oneself.
        tied = jnp.sum(weights) > 0
        method_state = jax.tree.map(lambda a, b: jnp.where(tied, a, b), joined, offer.method_state)

        def together(i: Scalar, state: PyTree) -> PyTree:
            step = self.alone(now, offer.received, client, state, i)
            pull = method.pull(step.message, pool, method.effective(weights, now.t + i))
            return method.absorb(step.state, pull, now.t + i)

        return offer.received, lax.fori_loop(0, rounds, together, method_state)


class Mixing:
    """Who pulls whom in a round: clients, their own messages, and the pool of messages that
    arrived."""

    def __init__(
        self, ids: Array, own: PyTree, pool_ids: Array, pool: PyTree, finite: Array | None
    ) -> None:
        self.ids, self.own, self.pool_ids, self.pool, self.finite = ids, own, pool_ids, pool, finite


def compares_itself(now: Round) -> bool:
    """Whether a peer compares its neighbours' copies with its own model, and not with its own copy
    as the neighbours have it.

    Copies on both sides keep the mean of all models. But where coordinates take turns they do not
    change for many rounds, and the same difference would be applied in each of them; against its
    own model, which moves, a pull ends when it has had its effect.
    """
    return now.channel.cyclic and not now.method.hub_between


def neighbour_pull(now: Round, mix: Mixing) -> tuple[PyTree, Array]:
    """Each client's pull from the messages in the pool (sorted by client number), by its weights in
    the graph; and the sum of these weights.
    """
    method, graph = now.method, now.setting.graph
    if graph.dense is not None:
        weights, index = dense_weights(graph, mix), None
        numbers = sum(leaf.size for leaf in jax.tree.leaves(mix.pool))
    else:
        weights, index = table_weights(graph, mix)
        leaves = jax.tree.leaves(mix.pool)
        numbers = sum(leaf.size // len(mix.pool_ids) for leaf in leaves) * weights.shape[1]

    weights = method.effective(weights, now.t)

    def one(own: PyTree, weights: Array, index: Array | None = None) -> PyTree:
        near = mix.pool if index is None else jax.tree.map(lambda m: m[index], mix.pool)
        return method.pull(own, near, weights)

    arguments = (mix.own, weights) if index is None else (mix.own, weights, index)
    # A linear pull is one matrix product, nothing per pair.
    linear = method.pulls_linearly and graph.dense is not None
    count = len(mix.ids)
    group = count if linear else max(1, PULL_NUMBERS // max(1, numbers))
    if group >= count:
        pulls = jax.vmap(one)(*arguments)
    else:
        pulls = lax.map(lambda a: one(*a), arguments, batch_size=group)
    return pulls, weights.sum(1)


def dense_weights(graph: Coupled, mix: Mixing) -> Array:
    """The weights of the pool for each client. A pool may be padded by repeating its last client,
    who counts once.
    """
    once = jnp.concatenate([jnp.ones(1, bool), mix.pool_ids[1:] != mix.pool_ids[:-1]])
    if mix.finite is not None:
        once = once & mix.finite
    return jnp.where(once, graph.dense[mix.ids][:, mix.pool_ids], 0)


def table_weights(graph: Coupled, mix: Mixing) -> tuple[Array, Array]:
    """The weights of each client's neighbours, and their indices in the pool."""
    rows = graph.rows_of(mix.ids)
    near = graph.near[rows]
    index = jnp.clip(jnp.searchsorted(mix.pool_ids, near), 0, len(mix.pool_ids) - 1)
    there = mix.pool_ids[index] == near
    if mix.finite is not None:
        there = there & mix.finite[index]
    return jnp.where(there, graph.weight[rows], 0.0), index
