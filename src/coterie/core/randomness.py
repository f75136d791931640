"""All randomness of a run, derived from one seed by named roles.

Cohorts and mini-batches depend only on (seed, round, client, step), never on the method: at one
seed every method sees the same clients and the same batches, in the simulator and on a deployed
client alike.

`permute` is a keyed pseudo-random permutation of {0, …, n−1} that is evaluated point by point:
drawing a cohort of S out of N clients, or one mini-batch of a shuffled epoch, costs O(S) or O(B)
and needs no sort and no array of length n.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


class Role(enum.IntEnum):
    """Independent streams under one seed.

    The numbers are part of reproducibility: never renumber.
    """

    INIT = 0
    COHORT = 1
    BATCH = 2
    METHOD = 3
    PROJECTION = 4
    EVALUATION = 5
    UPLINK = 6
    DOWNLINK = 7
    NEWCOMERS = 8
    ATTACK = 9
    KIN = 10


def role_key(seed: Any, role: Role) -> Any:
    """The key of one role.

    `seed` may be traced, so that several seeds can be mapped in one program.
    """
    return jax.random.fold_in(jax.random.key(seed), int(role))


def per_client(key: Any, t: Any, client: Any) -> Any:
    """The key of a client in round t."""
    return jax.random.fold_in(jax.random.fold_in(key, t), client)


def up_key(seed: Any, t: Any, client: Any) -> Any:
    """What a client and its receiver both draw from for the client's message of round t."""
    return per_client(role_key(seed, Role.UPLINK), t, client)


def down_key(seed: Any, t: Any, client: Any) -> Any:
    """The same for what a hub tells one client."""
    return per_client(role_key(seed, Role.DOWNLINK), t, client)


def broadcast_key(seed: Any, t: Any) -> Any:
    """The same for what a hub tells all clients at once."""
    return jax.random.fold_in(role_key(seed, Role.DOWNLINK), t)


_ROUNDS = 8


def _mix(x: Any) -> Any:
    """A 32-bit finaliser (xor-shift-multiply): every input bit reaches every output bit."""
    x = x ^ (x >> 16)
    x = x * jnp.uint32(0x7FEB352D)
    x = x ^ (x >> 15)
    x = x * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _below(hashed: Any, bound: Any) -> Any:
    """A hash reduced to {0, …, bound−1} by multiplication, for bound < 2^16."""
    return ((hashed >> 16) * bound) >> 16


def permute(key: Any, index: Any, n: Any) -> Any:
    """Image of `index` (each in 0 … n−1) under a random permutation of {0, …, n−1} chosen by `key`.

    An alternating Feistel network on Z_a × Z_b with a = ⌈√n⌉ and b = ⌈n/a⌉; the few points that
    land at or above n (ab − n < a) are sent through again until they fall below, which keeps it a
    bijection. `n` may be traced, n < 2^31.

    >>> sorted(permute(jax.random.key(3), jnp.arange(7), 7).tolist())
    [0, 1, 2, 3, 4, 5, 6]
    """
    n = jnp.asarray(n, jnp.uint32)
    root = jnp.ceil(jnp.sqrt(n.astype(jnp.float32))).astype(jnp.uint32)
    a = jnp.maximum(root, 1)
    b = (n + a - 1) // a
    keys = jax.random.bits(key, (_ROUNDS,), jnp.uint32)

    def once(x: Any) -> Any:
        left, right = x // b, x % b
        for i in range(_ROUNDS):
            if i % 2 == 0:
                left = left + _below(_mix(right + keys[i]), a)
                left = jnp.where(left >= a, left - a, left)
            else:
                right = right + _below(_mix(left + keys[i]), b)
                right = jnp.where(right >= b, right - b, right)
        return left * b + right

    start = jnp.asarray(index).astype(jnp.uint32)

    # The first pass goes through the same loop, so that the network is compiled once. Positions
    # past n are padding: they need not settle.
    def outside(state: Any) -> Any:
        x, first = state
        return first | jnp.any((x >= n) & (start < n))

    def again(state: Any) -> Any:
        x, first = state
        return jnp.where(first | (x >= n), once(x), x), jnp.asarray(False)

    return lax.while_loop(outside, again, (start, jnp.asarray(True)))[0].astype(jnp.int32)


@partial(jax.jit, static_argnums=(1, 2))
def shuffled(seed: Any, role: Role, n: int) -> Any:
    """0 … n−1 in an order that belongs to a seed and a role."""
    return permute(role_key(seed, role), jnp.arange(n), n)


@partial(jax.jit, static_argnums=(1, 2, 3))
def some_of(seed: Any, role: Role, n: int, count: int) -> Any:
    """The first `count` of `shuffled`."""
    return permute(role_key(seed, role), jnp.arange(count), n)


def cohort(key: Any, t: Any, clients: Any, size: int) -> Any:
    """The `size` clients sampled in round t, without replacement, in increasing order."""
    return jnp.sort(permute(jax.random.fold_in(key, t), jnp.arange(size), clients))
