"""Six clients in two hidden groups, and the weights that a hub gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie import Federation, Simulator
from coterie.data.federation import pack

SAME = np.equal.outer(np.arange(6) < 3, np.arange(6) < 3)
"""Who is in whose group."""
KIN = SAME & ~np.eye(6, dtype=bool)


def two_groups() -> Federation:
    """The first three clients have one true linear model, the others its negative."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(4)
    parts = []
    for k in range(6):
        x = rng.standard_normal((8 + k, 4))
        parts.append((x, x @ (truth if k < 3 else -truth) + 0.3 * rng.standard_normal(8 + k)))
    return Federation("groups", pack(parts), pack(parts), pack(parts), task="regression")


def for_all(simulator: Simulator, of: Callable[[Any], Any]) -> NDArray[np.float64]:
    """What a hub works out for client k, of(k), for all of them."""
    with simulator.precision():
        return np.asarray(jax.vmap(of)(np.arange(simulator.spec.clients)))


def rows(stacked: Any) -> NDArray[np.float64]:
    """Models stacked along axis 0, a row each."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(stacked)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
