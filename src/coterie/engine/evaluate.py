"""Every client's models on its own data, in chunks of clients so that memory is bounded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from numpy.typing import NDArray

from coterie.core.metrics import DEFAULT, Metric
from coterie.core.vector import Vector
from coterie.data.federation import Split
from coterie.engine.common import Common
from coterie.engine.in_turn import in_turn
from coterie.engine.mesh import each_client, everywhere, put_data
from coterie.engine.outputs import TILE, Look, Tiles, host_scores
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec
from coterie.engine.store import Store
from coterie.engine.supply import Supply
from coterie.models.objective import Learner

AT_ONCE = 256
"""Tiles that are looked at at once where no option says it."""


class DeviceSplit(NamedTuple):
    """A split on the device."""

    x: Any
    y: Any
    start: Any
    size: Any

    def index_of(self, client: Any) -> Any:
        """A client's index in these arrays."""
        return client

    def of(self, ids: Any) -> DeviceSplit:
        """What holds the rows of these clients."""
        return self


class Scores(NamedTuple):
    """Per view and client: mean loss, and the score by the metric of the run (the larger the
    better; of errors the negated value); NaN for clients without samples, or for whose samples the
    metric has no meaning.
    """

    loss: NDArray[np.float64]
    score: NDArray[np.float64]


def to_device(split: Split, dtype: Any, mesh: Mesh | None = None) -> DeviceSplit:
    y = (
        split.y.astype(dtype)
        if np.issubdtype(split.y.dtype, np.floating)
        else split.y.astype(np.int32)
    )
    x = split.x.astype(dtype)
    if not len(x):  # nothing to look at, but shapes must be there
        x, y = np.zeros((1, *x.shape[1:]), dtype), np.zeros((1, *y.shape[1:]), y.dtype)
    where = split.offsets[:-1].astype(np.int32), split.sizes.astype(np.int32)
    return DeviceSplit(*(put_data(mesh, a) for a in (x, y, *where)))


def _scores(
    learner: Learner, models: Sequence[Vector], held: DeviceSplit, client: Any
) -> tuple[Any, Any]:
    """Mean loss and score of a client's models on its samples, a tile at a time."""
    mine = held.index_of(client)
    start, size = held.start[mine], held.size[mine]

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


def _outputs(
    learner: Learner, models: Sequence[Vector], held: DeviceSplit, client: Any, first: Any
) -> tuple[Any, Any]:
    """Outputs (views, TILE, classes) and losses (views, TILE) of a client's models on a tile."""
    mine = held.index_of(client)
    rows = held.start[mine] + jnp.minimum(first + jnp.arange(TILE), held.size[mine] - 1)
    x, y = held.x[rows], held.y[rows]
    found = []
    for model in models:
        outputs = learner.apply(model.tree, x)
        rows = outputs.T if learner.class_major else outputs
        found.append((rows, learner.sample_losses(outputs, y)))
    return jnp.stack([o for o, _ in found]), jnp.stack([loss for _, loss in found])


@partial(jax.jit, static_argnums=(0,))
def _score_all(learner: Learner, models: Sequence[Vector], held: DeviceSplit) -> tuple[Any, Any]:
    return jax.vmap(lambda client, models: _scores(learner, models, held, client))(
        jnp.arange(len(held.size)), models
    )


def scored_by(learner: Learner, metric: Metric) -> Learner:
    """A learner that scores samples by this metric, where it is a mean over samples. Training does
    not see it, so its programs are the same whatever the metric.
    """
    plain = metric.name == DEFAULT[learner.task] or not metric.rowwise
    return learner if plain else dataclasses.replace(learner, metric=metric.name)


@partial(jax.jit, static_argnums=(0,))
def _outputs_of(
    learner: Learner, models: Sequence[Vector], held: DeviceSplit, tiles: Tiles
) -> tuple[Any, Any]:
    one = lambda client, first, models: _outputs(learner, models, held, client, first)
    return jax.vmap(one)(*tiles, models)


def score_models(spec: Spec, models: Sequence[Vector], held: DeviceSplit, metric: Metric) -> Scores:
    """Scores of given models, stacked over the clients of a split."""
    if not metric.rowwise:
        size = np.asarray(held.size, np.int64)

        def look(tiles: Tiles) -> tuple[Any, Any]:
            mine = [m.map(lambda leaf: leaf[tiles.client]) for m in models]
            return _outputs_of(spec.learner, mine, held, tiles)

        return Scores(*host_scores(metric, look, held.y, size, len(models), at_once=AT_ONCE))
    loss, score = _score_all(scored_by(spec.learner, metric), models, held)
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
    def one(read: tuple[Common, DeviceSplit], client: Any, row: ClientState) -> tuple[Any, Any]:
        common, held = read
        return _scores(spec.learner, common.views(spec, client, row), held, client)

    read = Common.of(Round(spec, setting, t), hub), held
    found: tuple[Any, Any] = everywhere(spec.mesh, each_client(spec.mesh, one, read, *some))
    return found


compiled_chunk = in_turn(_chunk, static_argnames="spec")


def _tiles(
    spec: Spec,
    setting: Setting,
    hub: HubState,
    held: DeviceSplit,
    some: tuple[Tiles, ClientState],
    t: Any,
) -> tuple[Any, Any]:
    """Outputs and losses of all views, per tile."""

    def one(read: tuple[Common, DeviceSplit], tile: Tiles, row: ClientState) -> tuple[Any, Any]:
        common, held = read
        views = common.views(spec, tile.client, row)
        return _outputs(spec.learner, views, held, tile.client, tile.first)

    read = Common.of(Round(spec, setting, t), hub), held
    found: tuple[Any, Any] = everywhere(spec.mesh, each_client(spec.mesh, one, read, *some))
    return found


compiled_tiles = in_turn(_tiles, static_argnames="spec")


def looking(now: Round, hub: HubState, store: Store, held: Any, supply: Supply) -> Look:
    """What all clients' models give for tiles of their rows."""

    def look(tiles: Tiles) -> tuple[Any, Any]:
        who, some = tiles.client, (tiles, store.gather(tiles.client))
        setting = supply.setting(now.setting, who)
        found: tuple[Any, Any] = compiled_tiles(now.spec, setting, hub, held.of(who), some, now.t)
        return found

    return look


class Looked(NamedTuple):
    """Who is evaluated, and how."""

    at_once: int
    metric: Metric
    supply: Supply
    clients: NDArray[np.int64] | None = None
    """None: all of them."""


def evaluate(now: Round, hub: HubState, store: Store, held: Any, how: Looked) -> Scores:
    """Scores of clients; those with alike amounts of samples are evaluated side by side. Of clients
    that are not looked at they are NaN.
    """
    n, metric, views = now.spec.clients, how.metric, len(now.setting.method.model_views)
    size = np.asarray(held.size)
    if not metric.rowwise:
        if how.clients is not None:
            size = np.where(np.isin(np.arange(n), how.clients), size, 0)
        look = looking(now, hub, store, held, how.supply)
        width = store.fitting(how.at_once)
        found = host_scores(metric, look, held.y, size.astype(np.int64), views, at_once=width)
        return Scores(*found)
    spec = dataclasses.replace(now.spec, learner=scored_by(now.spec.learner, metric))
    who = np.arange(n) if how.clients is None else how.clients
    order = who[np.argsort(size[who], kind="stable")]
    width = min(store.fitting(how.at_once), len(who))
    loss, score = np.full((views, n), np.nan), np.full((views, n), np.nan)

    def note(ids: NDArray[Any], found: tuple[Any, Any]) -> None:
        loss[:, ids], score[:, ids] = (np.asarray(a).T[:, : len(ids)] for a in found)

    before = None
    for begin in range(0, len(who), width):
        ids = order[begin : begin + width]
        some = np.resize(ids, width)
        rows, setting = store.gather(some), how.supply.setting(now.setting, some)
        chunk = compiled_chunk(spec, setting, hub, held.of(some), (some, rows), now.t)
        if before is not None:  # one is computed while the next is gathered, and no more
            note(*before)
        before = ids, chunk
    if before is not None:
        note(*before)
    return Scores(loss, score)
