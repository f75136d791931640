"""Every client's models on its own data, in chunks of clients so that memory is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.core.vector import Vector
from coterie.data.federation import Split
from coterie.engine.exchange import exchange_of
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec
from coterie.engine.store import Store
from coterie.models.objective import Learner

TILE = 64
"""Samples a client looks at at once."""


class DeviceSplit(NamedTuple):
    """A split on the device."""

    x: Any
    y: Any
    start: Any
    size: Any


class Scores(NamedTuple):
    """Per view and client: mean loss and mean score (accuracy, or the negated mean squared error);
    NaN for clients without samples.
    """

    loss: NDArray[np.float64]
    score: NDArray[np.float64]


def to_device(split: Split, dtype: Any) -> DeviceSplit:
    y = (
        split.y.astype(dtype)
        if np.issubdtype(split.y.dtype, np.floating)
        else split.y.astype(np.int32)
    )
    x = split.x.astype(dtype)
    if not len(x):  # nothing to look at, but shapes must be there
        x, y = np.zeros((1, *x.shape[1:]), dtype), np.zeros((1, *y.shape[1:]), y.dtype)
    return DeviceSplit(
        jnp.asarray(x),
        jnp.asarray(y),
        jnp.asarray(split.offsets[:-1], jnp.int32),
        jnp.asarray(split.sizes, jnp.int32),
    )


def _scores(
    learner: Learner, models: Sequence[Vector], held: DeviceSplit, client: Any
) -> tuple[Any, Any]:
    """Mean loss and score of a client's models on its samples, a tile at a time."""
    start, size = held.start[client], held.size[client]

    def tile(i: Any, sums: Any) -> Any:
        index = i * TILE + jnp.arange(TILE)
        real = index < size
        rows = start + jnp.clip(index, 0, jnp.maximum(size - 1, 0))
        x, y = held.x[rows], held.y[rows]
        out = []
        for model in models:
            outputs = learner.apply(model.tree, x)
            losses, scores = learner.sample_losses(outputs, y), learner.sample_scores(outputs, y)
            out.append((jnp.sum(jnp.where(real, losses, 0)), jnp.sum(jnp.where(real, scores, 0))))
        return sums + jnp.asarray(out)

    zero = jnp.zeros((len(models), 2), held.x.dtype)
    sums = lax.fori_loop(0, (size + TILE - 1) // TILE, tile, zero) / size
    return sums[:, 0], sums[:, 1]


@partial(jax.jit, static_argnums=(0,))
def _score_all(learner: Learner, models: Sequence[Vector], held: DeviceSplit) -> tuple[Any, Any]:
    return jax.vmap(lambda client, models: _scores(learner, models, held, client))(
        jnp.arange(len(held.size)), models
    )


def score_models(spec: Spec, models: Sequence[Vector], held: DeviceSplit) -> Scores:
    """Scores of given models, stacked over the clients of a split."""
    loss, score = _score_all(spec.learner, models, held)
    empty = np.asarray(held.size) == 0
    return Scores(*(np.where(empty, np.nan, np.asarray(a, np.float64).T) for a in (loss, score)))


def _chunk(
    spec: Spec,
    setting: Setting,
    hub: HubState,
    held: DeviceSplit,
    some: tuple[Any, ClientState],
    t: Any,
) -> tuple[Any, Any]:
    now, exchange = Round(spec, setting, t), exchange_of(setting.method)
    broadcast = exchange.speak(now, hub)

    def one(client: Any, row: ClientState) -> tuple[Any, Any]:
        received = exchange.hear(now, hub, broadcast, client, row).received
        models = setting.method.models(received, row.method_state, now.objective(client))
        views = [models[view] for view in setting.method.model_views]
        return _scores(spec.learner, views, held, client)

    return jax.vmap(one)(*some)


compiled_chunk = jax.jit(_chunk, static_argnames="spec")


def evaluate(now: Round, hub: HubState, store: Store, held: DeviceSplit, at_once: int) -> Scores:
    """Scores of all clients; clients with alike amounts of samples are evaluated side by side."""
    spec, setting, n = now.spec, now.setting, now.spec.clients
    order = np.argsort(np.asarray(held.size), kind="stable")
    width = min(at_once, n)
    views = len(setting.method.model_views)
    loss, score = np.full((views, n), np.nan), np.full((views, n), np.nan)
    pending = []
    for begin in range(0, n, width):
        ids = order[begin : begin + width]
        some = np.resize(ids, width)
        rows = store.gather(some)
        pending.append((ids, compiled_chunk(spec, setting, hub, held, (some, rows), now.t)))
    for ids, (losses, scores) in pending:
        loss[:, ids] = np.asarray(losses).T[:, : len(ids)]
        score[:, ids] = np.asarray(scores).T[:, : len(ids)]
    return Scores(loss, score)
