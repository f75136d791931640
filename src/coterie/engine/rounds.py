"""One round, compiled over all clients: the functions of a method, mapped. Pure; knows nothing of stores, folders or progress bars."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from coterie.algorithms.base import Cohort, Method
from coterie.channel.codec import Codec
from coterie.objective import Learner, Objective
from coterie.randomness import Role, cohort, per_client, stream
from coterie.vector import all_finite

PULL_NUMBERS = 1 << 24
"""How many numbers the differences between neighbours may take at once (64 MB in float32)."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that is static about a run: programs are shared between runs whose specs (and methods' static options) agree."""

    learner: Learner
    clients: int
    cohort: int
    at_once: int
    codec: Codec
    sort_by_work: bool = False


class Data(NamedTuple):
    """The packed training data on the device; client k owns rows start[k] … start[k] + size[k] − 1."""

    x: Any
    y: Any
    start: Any
    size: Any
    l2: Any
    batch_schedule: Any


class Coupled(NamedTuple):
    """A graph on the device: a dense matrix, or a table of neighbours when that is much smaller."""

    dense: Any = None
    index: Any = None
    weight: Any = None


class Log(NamedTuple):
    """What a round leaves for the bill and for finding trouble. Arrays over the clients that trained."""

    ids: Any
    gradients: Any
    finite: Any
    """Whether what each client computed was finite, before anything was mixed."""
    finite_after: Any
    """The same of its state after the exchange."""
    up: Any
    """Bytes of the message each client encoded."""
    hub_finite: Any


def objective_of(spec: Spec, data: Data, seed: Any, t: Any, client: Any) -> Objective:
    """f_k in round t, as a deployed client would build it from its own data."""
    return Objective(
        learner=spec.learner,
        x=data.x,
        y=data.y,
        start=data.start[client],
        size=data.size[client],
        key=per_client(stream(seed, Role.BATCH), t, client),
        private_key=per_client(stream(seed, Role.METHOD), t, client),
        t=t,
        l2=data.l2,
        batch_schedule=data.batch_schedule,
    )


def train(spec: Spec, method: Method, data: Data, seed: Any, t: Any, hub: Any, memories: Any, ids: Any) -> Any:
    """`local` of all given clients: (messages as they arrive, bytes, memories, gradients, finite), stacked."""

    def one(client: Any, memory: Any) -> Any:
        step = method.local(method.broadcast(hub, client), memory, objective_of(spec, data, seed, t, client))
        message, size = spec.codec.transmit(step.message)
        billed = jnp.where(step.sent, size, 0)
        gradients = jnp.asarray(step.gradients, jnp.int32)
        return message, billed.astype(jnp.int32), step.memory, gradients, all_finite((step.message, step.memory))

    count = len(ids)
    if spec.at_once >= count:
        return jax.vmap(one)(ids, memories)
    if not spec.sort_by_work:
        return lax.map(lambda a: one(*a), (ids, memories), batch_size=spec.at_once)
    # Clients with alike amounts of data go side by side: a group takes as long as its largest member.
    order = jnp.argsort(data.size[ids])
    out = lax.map(lambda a: one(*a), (ids[order], jax.tree.map(lambda m: m[order], memories)), batch_size=spec.at_once)
    back = jnp.argsort(order)
    return jax.tree.map(lambda leaf: leaf[back], out)


def neighbour_pull(method: Method, graph: Coupled, ids: Any, messages: Any, pool_ids: Any, pool: Any) -> Any:
    """Each client's pull from the messages in the pool (sorted by client number), by its weights in the graph."""
    arguments: tuple[Any, ...]
    if graph.dense is not None:
        # A pool may be padded by repeating its last client, who counts once.
        once = jnp.concatenate([jnp.ones(1, bool), pool_ids[1:] != pool_ids[:-1]])
        arguments = (messages, jnp.where(once, graph.dense[ids][:, pool_ids], 0))
        per_client_numbers = sum(leaf.size for leaf in jax.tree.leaves(pool))

        def one(own: Any, weights: Any, place: Any = None) -> Any:
            return method.pull(own, pool, weights)

    else:
        near = graph.index[ids]
        place = jnp.clip(jnp.searchsorted(pool_ids, near), 0, len(pool_ids) - 1)
        arguments = (messages, jnp.where(pool_ids[place] == near, graph.weight[ids], 0.0), place)
        per_client_numbers = sum(leaf.size // len(pool_ids) for leaf in jax.tree.leaves(pool)) * near.shape[1]

        def one(own: Any, weights: Any, place: Any = None) -> Any:
            return method.pull(own, jax.tree.map(lambda m: m[place], pool), weights)

    linear = method.pulls_linearly and graph.dense is not None  # one matrix product, nothing per pair
    group = len(ids) if linear else max(1, PULL_NUMBERS // max(1, per_client_numbers))
    if group >= len(ids):
        return jax.vmap(one)(*arguments)
    return lax.map(lambda a: one(*a), arguments, batch_size=group)


def one_round(
    spec: Spec,
    method: Method,
    data: Data,
    graph: Coupled,
    seed: Any,
    t: Any,
    hub: Any,
    ids: Any,
    memories: Any,
    sampled: Any,
    pool_ids: Any = None,
    pool_memories: Any = None,
) -> tuple[Any, Any, Log]:
    """One communication round for the clients `ids` that train, of which those at positions `sampled` take part in the exchange.

    `pool_ids` (sorted, including `ids`) and `pool_memories` are the clients whose last models count although they were not sampled.
    """
    mixed = method.exchange == "graph"
    messages, size, memories, gradients, finite = train(spec, method, data, seed, t, hub, memories, ids)
    if method.exchange in ("star", "pooled"):
        sent = messages if sampled is None else jax.tree.map(lambda m: m[sampled], messages)
        members = ids if sampled is None else ids[sampled]
        weights = data.size[members].astype(data.x.dtype) if method.by_samples else jnp.ones(len(members), data.x.dtype)
        hub = method.merge(hub, sent, Cohort(members, weights), t)
    elif mixed:
        if pool_ids is None:
            pool_ids, pool = ids, messages
        else:
            place = jnp.searchsorted(pool_ids, ids)
            pool = jax.tree.map(lambda p, m: p.at[place].set(m), jax.vmap(method.message)(pool_memories), messages)
        pulls = neighbour_pull(method, graph, ids, messages, pool_ids, pool)
        memories = jax.vmap(method.absorb, (0, 0, None))(memories, pulls, t)
    return hub, memories, Log(ids, gradients, finite, jax.vmap(all_finite)(memories) if mixed else finite, size, all_finite(hub))


def round_cohort(spec: Spec, seed: Any, t: Any) -> Any:
    """The clients sampled in round t, sorted."""
    if spec.cohort == spec.clients:
        return jnp.arange(spec.clients)
    return cohort(stream(seed, Role.COHORT), t, spec.clients, spec.cohort)


def stale_neighbours(spec: Spec, method: Method) -> bool:
    """True when unsampled neighbours count with their last models."""
    return method.exchange == "graph" and method.hears_all and spec.cohort < spec.clients


def device_round(spec: Spec, method: Method, data: Data, graph: Coupled, seed: Any, t: Any, hub: Any, rows: Any) -> tuple[Any, Any, Log]:
    """A round on the states of all N clients, kept on the device: take the rows that train, and put them back."""
    if method.exchange == "pooled":
        # A single learner whose data is everybody's: client 0 of `data`, which the simulator has widened to all rows.
        hub, _, log = one_round(spec, method, data, graph, seed, t, hub, jnp.zeros(1, jnp.int32), (), None)
        return hub, rows, log
    members = round_cohort(spec, seed, t)
    everyone = jnp.arange(spec.clients)
    if spec.cohort == spec.clients:
        hub, rows, log = one_round(spec, method, data, graph, seed, t, hub, everyone, rows, None)
    elif method.trains_all:
        hub, rows, log = one_round(spec, method, data, graph, seed, t, hub, everyone, rows, members)
    else:
        taken = jax.tree.map(lambda r: r[members], rows)
        pool = (everyone, rows) if stale_neighbours(spec, method) else (None, None)
        hub, taken, log = one_round(spec, method, data, graph, seed, t, hub, members, taken, None, *pool)
        rows = jax.tree.map(lambda r, v: r.at[members].set(v), rows, taken)
    return hub, rows, log


def rounds_block(
    spec: Spec, length: int, method: Method, data: Data, graph: Coupled, seed: Any, hub: Any, rows: Any, t0: Any, count: Any
) -> tuple[Any, Any, Log]:
    """Rounds t0 … t0 + count − 1 (count ≤ length) in one program; `count` is traced, so any number of rounds shares it."""
    step = partial(device_round, spec, method, data, graph, seed)
    shape = jax.eval_shape(lambda: step(t0, hub, rows)[2])
    logs = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shape)

    def body(i: Any, state: Any) -> Any:
        hub, rows, logs = state
        hub, rows, log = step(t0 + i, hub, rows)
        return hub, rows, jax.tree.map(lambda all_, new: all_.at[i].set(new), logs, log)

    return lax.fori_loop(0, count, body, (hub, rows, logs))


compiled_block = jax.jit(rounds_block, static_argnums=(0, 1), donate_argnums=(6, 7))
compiled_round = jax.jit(one_round, static_argnums=(0,))


def _mapped_block(
    spec: Spec,
    length: int,
    axes: tuple[int | None, ...],
    method: Method,
    data: Data,
    graph: Coupled,
    seeds: Any,
    hub: Any,
    rows: Any,
    t0: Any,
    count: Any,
) -> Any:
    leaves, structure = jax.tree.flatten(method)

    def run(leaves: Any, seed: Any, hub: Any, rows: Any) -> Any:
        return rounds_block(spec, length, jax.tree.unflatten(structure, leaves), data, graph, seed, hub, rows, t0, count)

    return jax.vmap(run, in_axes=(list(axes), 0, 0, 0))(leaves, seeds, hub, rows)


compiled_mapped_block = jax.jit(_mapped_block, static_argnums=(0, 1, 2), donate_argnums=(7, 8))
"""The same for several seeds or hyper-parameter values side by side; `axes` says which leaves of the method are stacked."""
