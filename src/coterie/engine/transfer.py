"""How well each client's model does at the others: who is like whom, and who is like nobody."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.core.vector import Vector
from coterie.engine.evaluate import DeviceSplit
from coterie.models.objective import Learner

ROWS = 64
"""Rows of each client that the others' models are tried on."""
MOST = 256
"""With more clients than this, the models of so many, evenly chosen, are tried."""
FEWEST = 4
"""Fewer clients do not show what is usual."""
FAR = 3.5
"""A client is unlike the others when it lies so many robust standard deviations below their
median (Iglewicz and Hoaglin 1993), on average of both ways of looking at it.
"""
NEAR = 2.0
"""And at least so many in each of them."""


@partial(jax.jit, static_argnums=0)
def _tried(learner: Learner, models: Vector, held: DeviceSplit) -> Any:
    """The mean score of every model on the first rows of every client, shape (models, clients)."""
    position = jnp.arange(ROWS)
    real = position[None] < held.size[:, None]
    last = jnp.maximum(held.size - 1, 0)[:, None]
    rows = held.start[:, None] + jnp.minimum(position[None], last)

    def one(model: Vector) -> Any:
        def at(some: Any) -> Any:
            return learner.sample_scores(learner.apply(model.tree, held.x[some]), held.y[some])

        scores = lax.map(at, rows)
        return jnp.sum(jnp.where(real, scores, 0), 1) / jnp.sum(real, 1)

    return lax.map(one, models)


class Transfer(NamedTuple):
    """Scores of some clients' models at all clients."""

    owner: NDArray[np.int64]
    """Whose model a line is of."""
    score: NDArray[np.float64]
    """Shape (owners, clients); NaN where a model meets its own client."""

    @property
    def elsewhere(self) -> NDArray[np.float64]:
        """Per owner, the median score of its model at the others."""
        return np.asarray(np.nanmedian(self.score, 1))

    @property
    def here(self) -> NDArray[np.float64]:
        """Per client, the median score of the others' models."""
        return np.asarray(np.nanmedian(self.score, 0))

    def unlike(self) -> list[int]:
        """The clients that are like nobody: their model fails at the others, and the others' models
        fail there; the strangest first. Nobody, if there are fewer than 4 clients.
        """
        if self.score.shape[1] < FEWEST:
            return []
        out, back = _below(self.elsewhere), _below(self.here)[self.owner]
        both, least = (out + back) / 2, np.minimum(out, back)
        order = np.argsort(-both, kind="stable")
        return [int(self.owner[i]) for i in order if both[i] > FAR and least[i] > NEAR]


def _below(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """By how many robust standard deviations each value lies below the median.

    The deviation is at least 2% of what there is to lose, so that equal values, which have none,
    make nobody strange.
    """
    middle = np.nanmedian(values)
    deviation = 1.4826 * np.nanmedian(np.abs(values - middle))
    deviation = max(float(deviation), 0.02 * max(abs(float(middle)), 1e-6))
    return np.nan_to_num((middle - values) / deviation)


def transfer(learner: Learner, models: Vector, held: DeviceSplit) -> Transfer:
    """Every client's model (stacked along axis 0) on the first rows of all others.

    `held` may be training data: a model is never tried on rows of its own client.
    """
    n = len(held.size)
    owner = np.unique(np.linspace(0, n - 1, min(n, MOST)).astype(np.int64))
    score = np.asarray(_tried(learner, models.map(lambda leaf: leaf[owner]), held), np.float64)
    score[np.arange(len(owner)), owner] = np.nan
    return Transfer(owner, score)
