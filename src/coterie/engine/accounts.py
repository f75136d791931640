"""What bills of a simulator's rounds need to know, beside the logs of these rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from coterie.channel.codec import size_of
from coterie.channel.link import HEADER
from coterie.engine import prepare
from coterie.engine.exchange.base import Accounts

if TYPE_CHECKING:
    from coterie.engine.simulator import Simulator


def accounts_of(sim: Simulator) -> Accounts:
    graph, adjacency, joined, link = sim.graph, None, None, sim.hub_state.link
    if graph is not None and not getattr(sim.method, "hub_between", True):
        adjacency = (graph.weights > 0).astype(np.int64)
        now = sim.now()
        link = jax.eval_shape(lambda: sim.exchange.open_client(now, sim.hub_state, sim.template).up)
        joined = None if sim.kinship is None or link == () else sim.kinship.joined
    return Accounts(
        sim.broadcasts,
        whole_copy(link),
        graph.degrees if graph is not None else None,
        adjacency,
        sim.cohort,
        prepare.data_bytes(sim.federation, sim.training),
        sim.supply.edges,
        joined,
    )


def whole_copy(link: Any) -> int:
    """Bytes of a whole copy over a link; 0 where there are no copies."""
    return 0 if link == () else size_of((link.public.copy, link.public.shared)) + HEADER
