"""One round, compiled over all clients.

Pure; knows nothing of stores, folders or progress bars.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from coterie.core import randomness
from coterie.core.randomness import Role
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import all_finite
from coterie.engine.common import Common
from coterie.engine.exchange import exchange_of
from coterie.engine.exchange.base import Turn, honest
from coterie.engine.in_turn import in_turn
from coterie.engine.mesh import each_client, everywhere, spread
from coterie.engine.scattered import gathered
from coterie.engine.setting import ClientState, Log, Round, Setting, Spec, State, Who
from coterie.methods.base import Method
from coterie.methods.star import StarMethod
from coterie.models.objective import batches_of


def one_round(spec: Spec, setting: Setting, state: State, who: Who, t: Scalar) -> tuple[State, Log]:
    """One communication round for the clients `who.ids`, whose states `state.rows` are."""
    now = Round(spec, setting.poisoned(t), t)
    exchange = exchange_of(setting.method)
    common = Common.of(now, state.hub)
    turns = clients(now, partial(one_turn, spec), common, who, state.rows)
    turns = turns._replace(finite=honest(now, turns.finite, who.ids))
    closed = exchange.close(now, state, common.broadcast, turns, who)
    log = Log(
        who.ids,
        turns.gradients,
        turns.finite,
        closed.finite,
        turns.up,
        closed.down,
        all_finite(closed.hub.method_state),
        closed.unsent,
    )
    mesh = spec.mesh
    return State(everywhere(mesh, closed.hub), spread(mesh, closed.rows)), everywhere(mesh, log)


def one_turn(
    spec: Spec, common: Common, client: Scalar, row: ClientState, sending: Any = True
) -> Turn:
    """One client's turn, without what only a deployed client looks at."""
    exchange = exchange_of(common.setting.method)
    heard = common.heard(spec, client, row)
    turn = exchange.turn(common.round(spec), client, row, heard, sending)
    return turn._replace(sent=None, dropped=None)


def clients(
    now: Round, turn: Callable[..., PyTree], common: PyTree, who: Who, rows: ClientState
) -> PyTree:
    """`turn` of every client that trains, stacked; `common` is what all of them read."""
    spec, sends = now.spec, who.sends()
    arguments = (who.ids, rows) if sends is None else (who.ids, rows, sends)
    if not spec.sort_by_work:
        return each_client(spec.mesh, turn, common, *arguments, at_once=spec.at_once)
    # Clients with alike amounts of data go side by side: a group takes as long as its largest
    # member. Every device gets large and small ones.
    data = now.setting.data
    order = dealt(jnp.argsort(data.size[data.index_of(who.ids)]), spec.devices)
    sorted_ = jax.tree.map(lambda leaf: leaf[order], arguments)
    out = each_client(spec.mesh, turn, common, *sorted_, at_once=spec.at_once)
    back = jnp.argsort(order)
    return jax.tree.map(lambda leaf: leaf[back], out)


def dealt(order: Array, devices: int) -> Array:
    """A sorted order, dealt to devices like cards; each keeps its own sorted.

    >>> dealt(jnp.arange(5), 2).tolist()
    [0, 2, 4, 1, 3]
    """
    return jnp.concatenate([order[d::devices] for d in range(devices)])


def blown_up(log: Log) -> Any:
    """For every client of a round whether it is not finite any more; None: all is well.

    Those whose own work went wrong come first: only when all was well before mixing is it said whom
    the mixing broke.
    """
    if log.finite.all() and log.finite_after.all() and log.hub_finite:
        return None
    return ~log.finite if not log.finite.all() else ~log.finite_after


def round_cohort(spec: Spec, seed: Scalar, t: Scalar) -> Array:
    """The clients sampled in round t, sorted."""
    if spec.cohort == spec.clients:
        return jnp.arange(spec.clients)
    key = randomness.role_key(seed, Role.COHORT)
    return randomness.cohort(key, t, spec.clients, spec.cohort)


def stale_neighbours(spec: Spec, method: Method) -> bool:
    """True when unsampled neighbours count with their last models."""
    return bool(getattr(method, "hears_all", False)) and spec.cohort < spec.clients


def everybody_trains(spec: Spec, method: Method) -> bool:
    """False also where the work of those that were not sampled is put off (`spec.unseen`)."""
    return method.trains_all and not spec.unseen


def device_round(spec: Spec, setting: Setting, state: State, t: Scalar) -> tuple[State, Log]:
    """A round on the states of all N clients, kept on the device: take the rows that train, and put
    them back.

    Where the unsampled clients' work is put off (`spec.unseen`), those that train are the sampled
    ones, and the log is still everybody's.
    """
    if exchange_of(setting.method).pooled:
        learner = State(state.hub, ClientState(()))
        after, log = one_round(spec, setting, learner, Who(jnp.zeros(1, jnp.int32)), t)
        return State(after.hub, state.rows), log
    members = round_cohort(spec, setting.seed, t)
    everyone = jnp.arange(spec.clients)
    if spec.cohort == spec.clients:
        return one_round(spec, setting, state, Who(everyone), t)
    if everybody_trains(spec, setting.method):
        return one_round(spec, setting, state, Who(everyone, members), t)
    now, sizes = Round(spec, setting, t), setting.data.size
    setting = setting._replace(data=gathered(spec.mesh, setting.data, members))
    taken = jax.tree.map(lambda r: r[members], state.rows)
    stale = stale_neighbours(spec, setting.method)
    who = Who(members, pool=everyone if stale else None)
    there = State(state.hub, taken, state.rows if stale else None)
    after, log = one_round(spec, setting, there, who, t)
    rows = put_back(spec, state.rows, members, after.rows)
    if not spec.unseen:
        return State(after.hub, rows), log
    return State(after.hub, rows, before=state.hub), of_everybody(now, log, sizes)


def put_back(spec: Spec, rows: ClientState, ids: Array, new: ClientState) -> ClientState:
    """Everybody's states, with those of some clients in their places."""
    new = everywhere(spec.mesh, new)
    rows = jax.tree.map(lambda r, v: r.at[ids].set(v), rows, new)
    back: ClientState = spread(spec.mesh, rows)
    return back


def of_everybody(now: Round, log: Log, sizes: Array) -> Log:
    """The log of a round that all clients train in, from that of the sampled ones: the others, who
    have so many samples each, receive the same and take as many gradients, or as many a mini-batch
    where the method counts epochs, and send nothing. They count as finite: whether they are is seen
    when somebody looks.
    """
    number = now.spec.clients
    among = lambda others, found: jnp.full(number, others, found.dtype).at[log.ids].set(found)
    sizes = jnp.asarray(sizes)
    batches = jnp.ones_like(sizes)
    if now.method.work().epochs is not None:
        schedule = now.setting.data.batch_schedule
        batches = batches_of(now.spec.learner, sizes, schedule, now.t)
    each = jnp.max(log.gradients // jnp.maximum(1, batches[log.ids]))
    return Log(
        jnp.arange(number, dtype=log.ids.dtype),
        among(each * batches, log.gradients),
        among(True, log.finite),
        among(True, log.finite_after),
        among(0, log.up),
        among(log.down[0], log.down),
        log.hub_finite,
        among(False, log.unsent),
    )


def rounds_block(
    spec: Spec, length: int, setting: Setting, state: State, t0: Scalar, count: Scalar
) -> tuple[State, Log]:
    """Rounds t0 … t0 + count − 1 (count ≤ length) in one program; `count` is traced, so any number
    of rounds shares it.
    """
    step = partial(device_round, spec, setting)
    if spec.unseen:
        state = state._replace(before=state.hub)
    shape = jax.eval_shape(lambda: step(state, t0)[1])
    logs = jax.tree.map(lambda s: jnp.zeros((length, *s.shape), s.dtype), shape)
    if setting.threat is not None and isinstance(setting.method, StarMethod):
        return _until_unsent(step, (state, logs), t0, count)

    def body(i: Scalar, carried: tuple[State, Log]) -> tuple[State, Log]:
        state, logs = carried
        state, log = step(state, t0 + i)
        return state, jax.tree.map(lambda all_, new: all_.at[i].set(new), logs, log)

    return lax.fori_loop(0, count, body, (state, logs))


def _until_unsent(
    step: Callable[[State, Scalar], tuple[State, Log]],
    begun: tuple[State, Log],
    t0: Scalar,
    count: Scalar,
) -> tuple[State, Log]:
    """The same under attack: stops before a round in which a message is not finite.

    The log of that round says which. How many messages a hub merges is part of the program, so such
    a round is done apart.
    """

    def going(carried: tuple[Scalar, Scalar, tuple[State, Log]]) -> Scalar:
        i, stopped, _ = carried
        return (i < count) & ~stopped

    def body(carried: tuple[Scalar, Scalar, tuple[State, Log]]) -> Any:
        i, _, (old, logs) = carried
        new, log = step(old, t0 + i)
        stopped = jnp.any(log.unsent)
        state = jax.tree.map(lambda a, b: jnp.where(stopped, a, b), old, new)
        logs = jax.tree.map(lambda all_, one: all_.at[i].set(one), logs, log)
        return i + 1, stopped, (state, logs)

    return lax.while_loop(going, body, (jnp.int32(0), jnp.asarray(False), begun))[2]


compiled_round = in_turn(one_round, static_argnames="spec")
compiled_block = in_turn(rounds_block, static_argnames=("spec", "length"), donate_argnames="state")
compiled_cohort = in_turn(round_cohort, static_argnames="spec")
