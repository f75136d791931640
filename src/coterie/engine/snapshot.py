"""What a simulator gives: scores at an evaluation, and all that is needed to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.engine.evaluate import Scores
from coterie.engine.mesh import put

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator


@dataclasses.dataclass
class Snapshot:
    """One evaluation: after `round` rounds, per split the scores of all views and clients, and what
    it had cost by then.
    """

    round: int
    scores: dict[str, Scores]
    up: int
    down: int
    gradients: int


class Saved(NamedTuple):
    """All that a run must remember to go on, but for what its options say."""

    t: int
    hub: dict[str, NDArray[Any]]
    totals: dict[str, int]
    rows: Sequence[tuple[NDArray[np.int64], NDArray[np.uint8]]]
    """Clients and their states as bytes; of clients that are there twice the last one counts."""


def saved(sim: Simulator, clients: NDArray[np.int64]) -> Saved:
    """All that a simulator needs to go on; of the clients only those that are given."""
    with sim.precision():
        leaves = jax.tree.leaves(sim.hub_state)
        hub = {f"{i:04d}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        if sim.broadcasts.total:
            hub |= {"heard": sim.broadcasts.received, "said": np.array(sim.broadcasts.total)}
        if sim.kinship is not None:
            hub |= sim.kinship.saved()
        rows = [(clients.astype(np.int64), sim.store.packed(clients))]
    sim.dirty[clients] = False
    totals = sim.ledger.totals() | ({"unsent": sim.unsent} if sim.unsent else {})
    return Saved(sim.t, hub, totals, rows)


def restore(sim: Simulator, saved: Saved) -> None:
    """Go on from there; on a simulator that has not run yet."""
    sim.unseen.put_off(None, 0)
    with sim.precision():
        if "heard" in saved.hub:
            sim.broadcasts.received = saved.hub["heard"]
            sim.broadcasts.total = int(saved.hub["said"].item())
        leaves, structure = jax.tree.flatten(sim.hub_state)
        # Files have no arrays without a dimension.
        shaped = lambda i, leaf: jnp.asarray(saved.hub[f"{i:04d}"]).reshape(jnp.shape(leaf))
        kept = [shaped(i, leaf) for i, leaf in enumerate(leaves)]
        sim.hub_state = put(sim.spec.mesh, jax.tree.unflatten(structure, kept))
        if sim.kinship is not None:
            sim.kinship.restore(sim, saved.hub)
        for ids, packed in saved.rows:
            sim.store.load(ids, packed)
            sim.touched[ids] = True
    sim.t = saved.t
    sim.ledger.carry_on(saved.totals)
    sim.unsent = saved.totals.get("unsent", 0)
