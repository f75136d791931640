"""Do no harm: a client that also trains alone, and uses of its neighbours' help as much as its own
validation rows say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from coterie.core.vector import Vector
from coterie.models.objective import Objective

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""What is tried, from alone to fully coupled."""


class Guarded(NamedTuple):
    """What a guarded client keeps: the model that neighbours pull, the one that it trains alone,
    and the optimisers' states.
    """

    x: Vector
    optimizer: Any
    alone: Vector
    alone_optimizer: Any


def between(alone: Vector, coupled: Vector, share: Any) -> Vector:
    """alone + share · (coupled − alone)."""
    return alone.map(lambda a, c: a + share * (c - a), coupled)


def share_of(state: Guarded, objective: Objective) -> Any:
    """How much of its neighbours' help a client uses: the share with the least loss on its own
    validation rows, of equal ones the largest; 1 for who has no such rows.
    """
    shares = jnp.asarray(SHARES, state.x.dtype)
    tried = state.alone.map(lambda a, c: a + shares.reshape(-1, *([1] * a.ndim)) * (c - a), state.x)
    losses = objective.held_losses(tried)
    best = len(SHARES) - 1 - jnp.argmin(losses[::-1])
    return shares[best]
