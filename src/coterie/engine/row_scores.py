"""Every client's models on each of its own test rows: what tests of a gain are made from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.engine.common import Common
from coterie.engine.evaluate import DeviceSplit, looking, scored_by
from coterie.engine.in_turn import in_turn
from coterie.engine.mesh import each_client, everywhere
from coterie.engine.outputs import TILE, Tiles, by_rows
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulator


class RowScores(NamedTuple):
    """A score per test row and view, the larger the better: 1 or 0 for right or wrong, or the
    negated squared error, or what else the metric is a mean of.

    Where the metric is not a mean over rows there are no scores, but what the models gave
    (`outputs`, per view (rows, classes or targets)) and the true targets (`y`).

    Rows are in the order of the test split; `row` counts from 0 within each client.
    """

    client: NDArray[np.int64]
    row: NDArray[np.int64]
    scores: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]] | None = None
    y: NDArray[Any] | None = None


def _score_tiles(
    spec: Spec,
    setting: Setting,
    hub: HubState,
    held: DeviceSplit,
    some: tuple[Tiles, ClientState],
    t: Any,
) -> Any:
    def one(read: tuple[Common, Any], tile: Tiles, row: ClientState) -> Any:
        (common, held), client, learner = read, tile.client, spec.learner
        mine = held.index_of(client)
        rows = held.start[mine] + jnp.minimum(tile.first + jnp.arange(TILE), held.size[mine] - 1)
        x, y = held.x[rows], held.y[rows]
        scores = lambda model: learner.sample_scores(learner.apply(model.tree, x), y)
        return jnp.stack([scores(model) for model in common.views(spec, client, row)])

    read = Common.of(Round(spec, setting, t), hub), held
    return everywhere(spec.mesh, each_client(spec.mesh, one, read, *some))


_compiled = in_turn(_score_tiles, static_argnames="spec")


def row_scores(simulator: Simulator) -> RowScores | None:
    """Of all clients that train and are honest; None without test data."""
    held = simulator.splits.get("test")
    if held is None:
        return None
    sim, metric = simulator, simulator.metric
    unseen = sim.malicious if sim.seen is None else sim.malicious | ~sim.seen
    size = np.where(unseen, 0, np.asarray(held.size, np.int64))
    views: tuple[str, ...] = sim.method.model_views
    most = sim.store.fitting(sim.training.eval_at_once)
    width = max(1, min(most, len(Tiles.of(size).client)))
    learner = scored_by(sim.spec.learner, metric)
    spec = dataclasses.replace(sim.spec, learner=learner)

    def scores(tiles: Tiles) -> tuple[Any, ...]:
        who, some = tiles.client, (tiles, sim.store.gather(tiles.client))
        setting = sim.supply.setting(sim.setting, who)
        return (_compiled(spec, setting, sim.hub_state, held.of(who), some, sim.t),)

    outputs = looking(sim.now(), sim.hub_state, sim.store, held, sim.supply)
    with sim.precision():
        found = by_rows(scores if metric.rowwise else outputs, size, width)
    found = found or [np.zeros((len(views), 0, 0))]
    owner = np.repeat(np.arange(len(size)), size)
    row = np.arange(len(owner)) - np.repeat(np.cumsum(size) - size, size)
    each = dict(zip(views, found[0], strict=True))
    if metric.rowwise:
        return RowScores(sim.members[owner], row, each)
    y = np.asarray(held.y)[np.asarray(held.start, np.int64)[owner] + row]
    return RowScores(sim.members[owner], row, {}, each, y)
