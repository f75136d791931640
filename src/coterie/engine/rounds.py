"""One round, compiled over all clients: the functions of a method, mapped.

Pure; knows nothing of stores, folders or progress bars.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from coterie.adversary.base import Threat
from coterie.channel import link
from coterie.channel.base import Channel
from coterie.channel.codec import size_of
from coterie.core import randomness as keys
from coterie.core.randomness import Role, cohort, per_client
from coterie.core.vector import all_finite
from coterie.methods.base import Cohort, Method
from coterie.models.objective import Learner, Objective

PULL_NUMBERS = 1 << 24
"""How many numbers the differences between neighbours may take at once (64 MB in float32)."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that is static about a run: programs are shared between runs whose specs (and methods'
    static options) agree.
    """

    learner: Learner
    clients: int
    cohort: int
    at_once: int
    sort_by_work: bool = False


class Hub(NamedTuple):
    """What is kept in the middle: the method's state, and the link by which the hub is heard (()
    unless that is compressed).
    """

    state: Any
    stream: Any = ()


class Row(NamedTuple):
    """What is kept for one client: the method's memory, its link up, and its link down where the
    hub tells each client something of its own.
    """

    memory: Any
    up: Any = ()
    down: Any = ()


class Data(NamedTuple):
    """The packed training data on the device; client k owns rows start[k] … start[k] + size[k]
    − 1.
    """

    x: Any
    y: Any
    start: Any
    size: Any
    l2: Any
    batch_schedule: Any
    lying_y: Any = None
    """The targets while an attack on data is under way."""


class Coupled(NamedTuple):
    """A graph on the device: a dense matrix, or a table of neighbours when that is much smaller."""

    dense: Any = None
    index: Any = None
    weight: Any = None


class Log(NamedTuple):
    """What a round leaves for the bill and for finding trouble.

    Arrays over the clients that trained.
    """

    ids: Any
    gradients: Any
    finite: Any
    """Whether what each client computed was finite, before anything was mixed."""
    finite_after: Any
    """The same of its state after the exchange."""
    up: Any
    """Bytes of the message each client encoded; 0 for those that sent nothing."""
    down: Any
    """Bytes of what the hub encoded for each."""
    hub_finite: Any


def objective_of(
    spec: Spec, data: Data, seed: Any, t: Any, client: Any, number: Any = None
) -> Objective:
    """f_k in round t, as a deployed client would build it from its own data.

    `number` is the client's for randomness, if not its place in `data`.
    """
    number = client if number is None else number
    return Objective(
        learner=spec.learner,
        x=data.x,
        y=data.y,
        start=data.start[client],
        size=data.size[client],
        key=per_client(keys.stream(seed, Role.BATCH), t, number),
        private_key=per_client(keys.stream(seed, Role.METHOD), t, number),
        t=t,
        l2=data.l2,
        batch_schedule=data.batch_schedule,
    )


def open_row(
    spec: Spec, method: Method, channel: Channel, data: Data, hub: Hub, template: Any
) -> Row:
    """What is kept for a client before the first round; all clients start alike."""
    memory = method.client_init(template)
    up, down = link.uplink(channel, method.exchange), link.downlink(channel, method.exchange)
    if up.passes and down.passes:
        return Row(memory)
    if method.exchange == "graph":
        message = method.message(memory)
        # All start alike, so nobody is pulled anywhere: what comes down is the client's own part,
        # negated.
        silent = jax.tree.map(lambda leaf: -leaf, method.own_pull(message))
        return Row(
            memory,
            link.open_link(up, channel, message),
            link.open_link(down, channel.downward(), silent) if method.hub_between else (),
        )
    if method.exchange != "star":
        return Row(memory)
    received = method.broadcast(hub.state, 0)
    message = jax.eval_shape(
        lambda: method.local(received, memory, objective_of(spec, data, 0, 0, 0)).message
    )
    # A star's copies are of updates, and the first update is taken to be nothing: only the shapes
    # of the message count.
    return Row(
        memory,
        link.open_link(up, channel, _zeros(message)),
        link.open_link(down, channel.downward(), received) if method.addressed else (),
    )


def _zeros(shapes: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def open_hub(method: Method, channel: Channel, template: Any) -> Hub:
    """The hub before the first round; what it would broadcast then is known to all."""
    # A copy, since rounds reuse the memory of what they are given and the template must stay.
    state = jax.tree.map(jnp.copy, method.hub_init(template))
    if method.exchange != "star" or method.addressed:
        return Hub(state)
    return Hub(
        state,
        link.open_link(
            link.downlink(channel, method.exchange), channel.downward(), method.broadcast(state, 0)
        ),
    )


class Heard(NamedTuple):
    """What a client has from the hub at the beginning of a round."""

    received: Any
    down: Any
    bytes: Any


def speak(method: Method, channel: Channel, seed: Any, t: Any, hub: Hub) -> link.Sent | None:
    """Star: what the hub says to all at once, over its link; None when it tells each client
    something of its own, or nothing is compressed.
    """
    stream = link.downlink(channel, method.exchange)
    if method.exchange != "star" or method.addressed or stream.passes:
        return None
    key = jax.random.fold_in(keys.stream(seed, Role.DOWNLINK), t)
    return link.transmit(
        stream, channel.downward(), hub.stream, method.broadcast(hub.state, 0), None, key, t
    )


def hear(
    method: Method,
    channel: Channel,
    seed: Any,
    t: Any,
    hub: Hub,
    said: link.Sent | None,
    client: Any,
    row: Row,
) -> Heard:
    """What a client receives in round t (or would, when it is evaluated)."""
    if said is not None:
        return Heard(said.arrived, row.down, said.bytes)
    received = method.broadcast(hub.state, client)
    if not method.addressed or not channel.down:
        return Heard(received, row.down, size_of(received))
    key = per_client(keys.stream(seed, Role.DOWNLINK), t, client)
    sent = link.transmit(
        link.downlink(channel, method.exchange),
        channel.downward(),
        row.down,
        received,
        None,
        key,
        t,
    )
    return Heard(sent.arrived, sent.link, sent.bytes)


def train(
    spec: Spec,
    method: Method,
    channel: Channel,
    data: Data,
    seed: Any,
    t: Any,
    hub: Hub,
    said: link.Sent | None,
    rows: Row,
    ids: Any,
    sends: Any,
) -> Any:
    """`local` of all given clients, and what they send on its way: (messages as they arrive, rows,
    gradients, finite, bytes up, bytes down), stacked.

    `sends` tells who sends (None: all); a link is left alone when its client sends nothing.
    """
    stream = link.uplink(channel, method.exchange)

    def one(client: Any, row: Row, sending: Any = True) -> Any:
        heard = hear(method, channel, seed, t, hub, said, client, row)
        step = method.local(heard.received, row.memory, objective_of(spec, data, seed, t, client))
        reference = (
            method.reference(heard.received, step.message) if method.exchange == "star" else None
        )
        key = None if stream.passes else per_client(keys.stream(seed, Role.UPLINK), t, client)
        sent = link.transmit(stream, channel, row.up, step.message, reference, key, t)
        real = sending & jnp.asarray(step.sent)
        keep = lambda new, old: jnp.where(real, new, old)
        arrived, up = sent.arrived, sent.link
        if not stream.passes:
            arrived, up = jax.tree.map(keep, arrived, step.message), jax.tree.map(keep, up, row.up)
        numbers = (
            jnp.asarray(n, jnp.int32)
            for n in (step.gradients, jnp.where(real, sent.bytes, 0), heard.bytes)
        )
        return (
            arrived,
            Row(step.memory, up, heard.down),
            all_finite((step.message, step.memory)),
            *numbers,
        )

    arguments = (ids, rows) if sends is None else (ids, rows, sends)
    count = len(ids)
    if spec.at_once >= count:
        return jax.vmap(one)(*arguments)
    if not spec.sort_by_work:
        return lax.map(lambda a: one(*a), arguments, batch_size=spec.at_once)
    # Clients with alike amounts of data go side by side: a group takes as long as its largest
    # member.
    order = jnp.argsort(data.size[ids])
    out = lax.map(
        lambda a: one(*a),
        jax.tree.map(lambda leaf: leaf[order], arguments),
        batch_size=spec.at_once,
    )
    back = jnp.argsort(order)
    return jax.tree.map(lambda leaf: leaf[back], out)


def neighbour_pull(
    method: Method, graph: Coupled, ids: Any, messages: Any, pool_ids: Any, pool: Any
) -> tuple[Any, Any]:
    """Each client's pull from the messages in the pool (sorted by client number), by its weights in
    the graph; and the sum of these weights.
    """
    arguments: tuple[Any, ...]
    if graph.dense is not None:
        # A pool may be padded by repeating its last client, who counts once.
        once = jnp.concatenate([jnp.ones(1, bool), pool_ids[1:] != pool_ids[:-1]])
        weights = jnp.where(once, graph.dense[ids][:, pool_ids], 0)
        arguments = (messages, weights)
        per_client_numbers = sum(leaf.size for leaf in jax.tree.leaves(pool))

        def one(own: Any, weights: Any, place: Any = None) -> Any:
            return method.pull(own, pool, weights)

    else:
        near = graph.index[ids]
        place = jnp.clip(jnp.searchsorted(pool_ids, near), 0, len(pool_ids) - 1)
        weights = jnp.where(pool_ids[place] == near, graph.weight[ids], 0.0)
        arguments = (messages, weights, place)
        per_client_numbers = (
            sum(leaf.size // len(pool_ids) for leaf in jax.tree.leaves(pool)) * near.shape[1]
        )

        def one(own: Any, weights: Any, place: Any = None) -> Any:
            return method.pull(own, jax.tree.map(lambda m: m[place], pool), weights)

    linear = (
        method.pulls_linearly and graph.dense is not None
    )  # one matrix product, nothing per pair
    group = len(ids) if linear else max(1, PULL_NUMBERS // max(1, per_client_numbers))
    pulls = (
        jax.vmap(one)(*arguments)
        if group >= len(ids)
        else lax.map(lambda a: one(*a), arguments, batch_size=group)
    )
    return pulls, weights.sum(1)


def one_round(
    spec: Spec,
    method: Method,
    channel: Channel,
    threat: Threat | None,
    data: Data,
    graph: Coupled,
    seed: Any,
    t: Any,
    hub: Hub,
    ids: Any,
    rows: Row,
    sampled: Any,
    pool_ids: Any = None,
    pool_rows: Any = None,
) -> tuple[Hub, Row, Log]:
    """One communication round for the clients `ids` that train, of which those at positions
    `sampled` (None: all) take part in the exchange.

    `pool_ids` (sorted, including `ids`) and `pool_rows` are the clients whose last messages count
    although they were not sampled.
    """
    if threat is not None and data.lying_y is not None:
        data = data._replace(y=jnp.where(threat.attack.active(t), data.lying_y, data.y))
    said = speak(method, channel, seed, t, hub)
    sends = None if sampled is None else jnp.zeros(len(ids), bool).at[sampled].set(True)
    messages, rows, finite, gradients, up, down = train(
        spec, method, channel, data, seed, t, hub, said, rows, ids, sends
    )
    finite = finite if threat is None else finite | threat.liars[ids]
    finite_after = finite
    if method.exchange in ("star", "pooled"):
        sent = messages if sampled is None else jax.tree.map(lambda m: m[sampled], messages)
        members = ids if sampled is None else ids[sampled]
        if said is not None:
            sent = ahead(method, method.broadcast(hub.state, 0), said.arrived, sent)
        if threat is not None:
            sent = threat.attack.apply(sent, threat.liars[members], seed, t)
        weights = (
            data.size[members].astype(data.x.dtype)
            if method.by_samples
            else jnp.ones(len(members), data.x.dtype)
        )
        state = method.merge(hub.state, sent, Cohort(members, weights), t)
        hub = Hub(state, hub.stream if said is None else said.link)
    elif method.exchange == "graph":
        if pool_ids is None:
            pool_ids, pool = ids, messages
        else:
            place = jnp.searchsorted(pool_ids, ids)
            pool = jax.tree.map(
                lambda p, m: p.at[place].set(m), last_messages(method, channel, pool_rows), messages
            )
        if threat is not None:
            pool = threat.attack.apply(pool, threat.liars[pool_ids], seed, t)
        own = (
            jax.vmap(method.message)(rows.memory) if compares_itself(method, channel) else messages
        )
        pulls, totals = neighbour_pull(method, graph, ids, own, pool_ids, pool)
        pulls, links, down = carry_pulls(
            method, channel, seed, t, ids, pulls, totals, messages, rows.down
        )
        ups = jax.vmap(partial(follow_mixing, method, channel, t))(rows.up, pulls, messages)
        rows = Row(jax.vmap(method.absorb, (0, 0, None))(rows.memory, pulls, t), ups, links)
        finite_after = jax.vmap(all_finite)(rows.memory)
        finite_after = finite_after if threat is None else finite_after | threat.liars[ids]
    return hub, rows, Log(ids, gradients, finite, finite_after, up, down, all_finite(hub.state))


def compares_itself(method: Method, channel: Channel) -> bool:
    """Whether a peer compares its neighbours' copies with its own model, and not with its own copy
    as the neighbours have it.

    Copies on both sides keep the mean of all models. But where coordinates take turns they do not
    change for many rounds, and the same difference would be applied in each of them; against its
    own model, which moves, a pull ends when it has had its effect.
    """
    return channel.takes_turns and not method.hub_between


def ahead(method: Method, broadcast: Any, arrived: Any, messages: Any) -> Any:
    """Star with a compressed downlink: messages as if their clients had begun from what the hub
    has, and not from what reached them of it.

    Else their mean would take the place of what the hub has, and what had not reached the clients
    yet would be forgotten instead of sent later. `messages` are stacked.
    """
    if not method.begins_from_received:
        return messages
    one = jax.tree.map(lambda leaf: leaf[0], messages)
    gap = jax.tree.map(
        lambda a, b: a - b, method.reference(broadcast, one), method.reference(arrived, one)
    )
    return jax.tree.map(lambda m, g: m + g, messages, gap)


def follow_mixing(
    method: Method, channel: Channel, t: Any, up: Any, pull: Any, message: Any
) -> Any:
    """Graph with a hub: hub and client both know the pull, so their public copy goes along with it,
    and none of that need be sent.
    """
    if not method.hub_between or not link.uplink(channel, method.exchange).copies:
        return up
    return up._replace(public=up.public._replace(copy=link.flat(method.moved(message, pull, t))))


def last_messages(method: Method, channel: Channel, rows: Row) -> Any:
    """Graph: what is known of clients that do not take part.

    Over public copies, those; else what their memories say.
    """
    stream = link.uplink(channel, method.exchange)
    messages = (
        jax.vmap(method.message)(rows.memory)
        if stream.passes
        else jax.eval_shape(jax.vmap(method.message), rows.memory)
    )
    if stream.passes:
        return messages
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), messages)
    return jax.vmap(lambda up: link.known(stream, up, like))(rows.up)


def carry_pulls(
    method: Method,
    channel: Channel,
    seed: Any,
    t: Any,
    ids: Any,
    pulls: Any,
    totals: Any,
    messages: Any,
    links: Any,
) -> Any:
    """Graph with a hub: the pulls on their way down, the links afterwards, and bytes per client.

    Without a hub nothing is sent back.
    """
    if not method.hub_between:
        return pulls, links, jnp.zeros(len(ids), jnp.int32)
    stream = link.downlink(channel, method.exchange)

    def one(client: Any, pull: Any, total: Any, own: Any, down: Any) -> Any:
        key = None if stream.passes else per_client(keys.stream(seed, Role.DOWNLINK), t, client)
        sent = link.transmit(
            stream, channel.downward(), down, pull, method.own_pull(own), key, t, total
        )
        return sent.arrived, sent.link, jnp.asarray(sent.bytes, jnp.int32)

    return jax.vmap(one)(ids, pulls, totals, messages, links)


def round_cohort(spec: Spec, seed: Any, t: Any) -> Any:
    """The clients sampled in round t, sorted."""
    if spec.cohort == spec.clients:
        return jnp.arange(spec.clients)
    return cohort(keys.stream(seed, Role.COHORT), t, spec.clients, spec.cohort)


def stale_neighbours(spec: Spec, method: Method) -> bool:
    """True when unsampled neighbours count with their last models."""
    return method.exchange == "graph" and method.hears_all and spec.cohort < spec.clients


def device_round(
    spec: Spec,
    method: Method,
    channel: Channel,
    threat: Threat | None,
    data: Data,
    graph: Coupled,
    seed: Any,
    t: Any,
    hub: Hub,
    rows: Row,
) -> tuple[Hub, Row, Log]:
    """A round on the states of all N clients, kept on the device: take the rows that train, and put
    them back.
    """
    if method.exchange == "pooled":
        # A single learner whose data is everybody's: client 0 of `data`, which the simulator has
        # widened to all rows.
        hub, _, log = one_round(
            spec,
            method,
            channel,
            threat,
            data,
            graph,
            seed,
            t,
            hub,
            jnp.zeros(1, jnp.int32),
            Row(()),
            None,
        )
        return hub, rows, log
    members = round_cohort(spec, seed, t)
    everyone = jnp.arange(spec.clients)
    if spec.cohort == spec.clients:
        hub, rows, log = one_round(
            spec, method, channel, threat, data, graph, seed, t, hub, everyone, rows, None
        )
    elif method.trains_all:
        hub, rows, log = one_round(
            spec, method, channel, threat, data, graph, seed, t, hub, everyone, rows, members
        )
    else:
        taken = jax.tree.map(lambda r: r[members], rows)
        pool = (everyone, rows) if stale_neighbours(spec, method) else (None, None)
        hub, taken, log = one_round(
            spec, method, channel, threat, data, graph, seed, t, hub, members, taken, None, *pool
        )
        rows = jax.tree.map(lambda r, v: r.at[members].set(v), rows, taken)
    return hub, rows, log


def rounds_block(
    spec: Spec,
    length: int,
    method: Method,
    channel: Channel,
    threat: Threat | None,
    data: Data,
    graph: Coupled,
    seed: Any,
    hub: Hub,
    rows: Row,
    t0: Any,
    count: Any,
) -> tuple[Hub, Row, Log]:
    """Rounds t0 … t0 + count − 1 (count ≤ length) in one program; `count` is traced, so any number
    of rounds shares it.
    """
    step = partial(device_round, spec, method, channel, threat, data, graph, seed)
    shape = jax.eval_shape(lambda: step(t0, hub, rows)[2])
    logs = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shape)

    def body(i: Any, state: Any) -> Any:
        hub, rows, logs = state
        hub, rows, log = step(t0 + i, hub, rows)
        return hub, rows, jax.tree.map(lambda all_, new: all_.at[i].set(new), logs, log)

    return lax.fori_loop(0, count, body, (hub, rows, logs))


compiled_block = jax.jit(rounds_block, static_argnums=(0, 1), donate_argnums=(8, 9))
compiled_round = jax.jit(one_round, static_argnums=(0,))


def _mapped_block(
    spec: Spec,
    length: int,
    axes: tuple[int | None, ...],
    method: Method,
    channel: Channel,
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
        return rounds_block(
            spec,
            length,
            jax.tree.unflatten(structure, leaves),
            channel,
            None,
            data,
            graph,
            seed,
            hub,
            rows,
            t0,
            count,
        )

    return jax.vmap(run, in_axes=(list(axes), 0, 0, 0))(leaves, seeds, hub, rows)


compiled_mapped_block = jax.jit(_mapped_block, static_argnums=(0, 1, 2), donate_argnums=(8, 9))
"""The same for several seeds or hyper-parameter values side by side; `axes` says which leaves of
the method are stacked.
"""
