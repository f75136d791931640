"""The models that rounds go through, and their weighted means over rounds: what theorems are about.

Theorems bound the loss of W̃ = Σ_t θ_t W_t / Σ_t θ_t, or the mean Σ_t θ_t g(W_t) / Σ_t θ_t over the
rounds t = 0 … T − 1, in expectation over mini-batches and cohorts. Here many seeds run from the
same first model in one program, and nothing is scored or billed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.core.errors import Diverged, InvalidInput
from coterie.core.typing import PyTree, Scalar
from coterie.engine.in_turn import in_turn
from coterie.engine.rounds import device_round
from coterie.engine.setting import Setting, Spec, State
from coterie.engine.simulator import Simulator
from coterie.engine.store import DeviceStore

Look = Callable[[State], PyTree]
"""What is followed of a state: `hub_model`, `client_models`, or any other function of it."""


class Followed(NamedTuple):
    """Of every seed (axis 0), at some rounds (axis 1)."""

    rounds: NDArray[np.int64]
    """0, every, 2·every, …: how many rounds there were before."""
    iterates: PyTree
    """What was looked at then."""
    averages: PyTree
    """Its weighted mean over the rounds before that (at round 0: the first itself)."""


def hub_model(state: State) -> PyTree:
    """What the hub keeps: w of pFedMe, w̃ of lp-proj."""
    return state.hub.method_state


def client_models(state: State) -> PyTree:
    """What the clients keep, stacked along axis 0."""
    return state.rows.method_state


def shares(log_weights: Any) -> NDArray[np.float64]:
    """θ_t / (θ_0 + … + θ_t) of weights that are given by their logarithms: theorems' weights grow
    beyond all floats.

    >>> shares(np.log([1.0, 1.0, 2.0])).round(3).tolist()
    [1.0, 0.5, 0.5]
    """
    logs = np.asarray(log_weights, float)
    found: NDArray[np.float64] = np.exp(logs - np.logaddexp.accumulate(logs))
    return found


def geometric(ratio: float, rounds: int) -> NDArray[np.float64]:
    """The shares of θ_t = ratio^−(t+1), ratio < 1: FedU's and pFedMe's averages."""
    return shares(-np.log(ratio) * np.arange(1, rounds + 1))


def follow(
    simulator: Simulator,
    look: Look,
    *,
    seeds: Sequence[int],
    shares: Any = None,
    every: int = 1,
) -> Followed:
    """All rounds of a simulator that has not run yet, once for every seed, all from its first
    state. It is left as it was. Raises Diverged.

    `shares` are those of the weights, one per round; nothing: a plain mean.
    """
    rounds = simulator.training.rounds
    if not isinstance(simulator.store, DeviceStore) or simulator.t or simulator.kinship is not None:
        raise InvalidInput(
            "follow needs a simulator that has not run yet, with the store 'device' and a graph"
            " that is not learnt."
        )
    if simulator.method.rests or simulator.supply.edges is not None or rounds % every:
        raise InvalidInput(
            f"follow looks at every {every}th of {rounds} rounds, which must divide them, and all"
            " must be alike: no exchange_every, no edges."
        )
    given = 1 / np.arange(1, rounds + 1) if shares is None else np.asarray(shares, float)
    if given.shape != (rounds,):
        raise InvalidInput(f"follow got {given.size} shares, but must have {rounds}: one a round.")
    with simulator.precision():
        state = State(simulator.hub_state, simulator.store.rows)
        iterates, averages = _compiled(
            dataclasses.replace(simulator.spec, unseen=0),  # all are looked at in every round
            look,
            simulator.setting,
            state,
            jnp.asarray(seeds),
            jnp.asarray(given.reshape(-1, every)),
        )
        whole = jax.tree.map(np.asarray, (iterates, averages))
    for i in range(rounds // every + 1):
        if not all(np.isfinite(leaf[:, i]).all() for leaf in jax.tree.leaves(whole[0])):
            broken = [str(c) for c in simulator.conditions() if not c.holds]
            raise Diverged(simulator.method.title, i * every, [], broken)
    return Followed(np.arange(0, rounds + 1, every), *whole)


def _follow(
    spec: Spec, look: Look, setting: Setting, state: State, seeds: Any, shares: Any
) -> tuple[PyTree, PyTree]:
    every = shares.shape[1]

    def one(seed: Scalar) -> tuple[PyTree, PyTree]:
        step = partial(device_round, spec, setting._replace(seed=seed))

        def round_(t: Scalar, carried: tuple[State, PyTree], share: Any) -> tuple[State, PyTree]:
            state, mean = carried
            mean = jax.tree.map(lambda m, x: m + share * (x - m), mean, look(state))
            return step(state, t)[0], mean

        def block(carried: Any, given: Any) -> Any:
            number, share = given
            each = lambda i, now: round_(number * every + i, now, share[i])
            after = lax.fori_loop(0, every, each, carried)
            return after, (look(after[0]), after[1])

        begin = look(state)
        numbers = jnp.arange(len(shares))
        _, found = lax.scan(block, (state, begin), (numbers, shares))
        first = lambda later: jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), begin, later)
        return first(found[0]), first(found[1])

    return jax.vmap(one)(seeds)


_compiled = in_turn(_follow, static_argnames=("spec", "look"))
