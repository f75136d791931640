"""Every client's models on each of its own test rows: what tests of a gain are made from.

A client's rows are cut into tiles. Tiles are looked at side by side, so that one compiled program
serves clients of all sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.engine.evaluate import TILE, DeviceSplit
from coterie.engine.exchange import exchange_of
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec

if TYPE_CHECKING:
    from coterie.engine.simulate import Simulator


class RowScores(NamedTuple):
    """A score per test row and view: 1 or 0 for right or wrong, or the negated squared error.

    Rows are in the order of the test split; `row` counts from 0 within each client.
    """

    client: NDArray[np.int64]
    row: NDArray[np.int64]
    scores: dict[str, NDArray[Any]]


class _Tiles(NamedTuple):
    """Some rows of one client each."""

    client: NDArray[np.int64]
    first: NDArray[np.int64]


def _score_tiles(
    spec: Spec,
    setting: Setting,
    hub: HubState,
    held: DeviceSplit,
    some: tuple[_Tiles, ClientState],
    t: Any,
) -> Any:
    now, exchange, method = Round(spec, setting, t), exchange_of(setting.method), setting.method
    broadcast = exchange.speak(now, hub)

    def one(tile: _Tiles, row: ClientState) -> Any:
        client, learner = tile.client, spec.learner
        received = exchange.hear(now, hub, broadcast, client, row).received
        models = method.models(received, row.method_state, now.objective(client))
        index = jnp.minimum(tile.first + jnp.arange(TILE), held.size[client] - 1)
        x, y = held.x[held.start[client] + index], held.y[held.start[client] + index]
        scores = lambda model: learner.sample_scores(learner.apply(model.tree, x), y)
        return jnp.stack([scores(models[view]) for view in method.model_views])

    return jax.vmap(one)(*some)


_compiled = jax.jit(_score_tiles, static_argnames="spec")


def row_scores(simulator: Simulator) -> RowScores | None:
    """Of all clients that train and are honest; None without test data."""
    held = simulator.splits.get("test")
    if held is None:
        return None
    size = np.where(simulator.malicious, 0, np.asarray(held.size, np.int64))
    tiles_of = -(-size // TILE)
    client = np.repeat(np.arange(len(size)), tiles_of)
    begun = np.cumsum(tiles_of) - tiles_of
    first = TILE * (np.arange(len(client)) - begun[client])
    width = max(1, min(simulator.training.eval_at_once, len(client)))
    found = []
    with simulator.precision():
        for begin in range(0, len(client), width):
            here = np.resize(np.arange(begin, min(begin + width, len(client))), width)
            some = _Tiles(client[here], first[here]), simulator.store.gather(client[here])
            scores = _compiled(
                simulator.spec, simulator.setting, simulator.hub_state, held, some, simulator.t
            )
            found.append(np.asarray(scores)[: len(client) - begin])
    whole = np.concatenate(found) if found else np.zeros((0, len(simulator.method.model_views), 0))
    real = first[:, None] + np.arange(TILE) < size[client][:, None]
    owner = np.repeat(np.arange(len(size)), size)
    return RowScores(
        simulator.members[owner],
        np.concatenate([np.arange(n) for n in size]),
        {view: whole[:, i][real] for i, view in enumerate(simulator.method.model_views)},
    )
