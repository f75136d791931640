"""Training rows that a client sets aside to choose by."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from coterie.models.objective import Objective


def held_out(objective: Objective, share: Any) -> tuple[Objective, Objective]:
    """The client's rows for training, and those that something is tried on: the first of them, at
    least one; with a share of 0, and at a client with a single row, all are both.

    What is tried has no penalty on parameters.
    """
    size = jnp.asarray(objective.size)
    out = jnp.clip(jnp.floor(share * size).astype(size.dtype), 1, size)
    tried = dataclasses.replace(objective, size=jnp.where(share > 0, out, size), l2=0.0)
    first = jnp.where(share > 0, jnp.minimum(out, size - 1), 0)
    rest = dataclasses.replace(objective, start=objective.start + first, size=size - first)
    return rest, tried
