"""How a difference between two models is priced: g(v) = (1/p)‖v‖_p^p for p ≥ 1, and its gradient
ψ_p(v) = sign(v)|v|^(p−1).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from coterie.core.vector import Vector


def _each(function: Any, v: Any) -> Any:
    return v.map(function) if isinstance(v, Vector) else function(v)


def value(v: Any, p: float) -> Any:
    """(1/p)‖v‖_p^p."""
    return sum(jnp.sum(jnp.abs(leaf) ** p) for leaf in jax.tree.leaves(v)) / p


def gradient(v: Any, p: float) -> Any:
    """ψ_p(v); for p = 1 the subgradient sign(v), 0 at 0.

    `p` is static, so p = 1 and p = 2 cost nothing extra.

    >>> v = jnp.array([-2.0, 3.0])
    >>> gradient(jnp.array([-2.0, 0.0, 3.0]), 1).tolist(), gradient(v, 3).tolist()
    ([-1.0, 0.0, 1.0], [-4.0, 9.0])
    """
    if p == 2:
        return v
    if p == 1:
        return _each(jnp.sign, v)
    # |v|^(p−1) has no finite derivative at 0 for 1 < p < 2, but ψ itself is 0 there.
    return _each(lambda a: jnp.sign(a) * jnp.abs(a) ** (p - 1), v)


def pull(own: Any, others: Any, weights: Any, p: float) -> Any:
    """Σ_l a_l ψ_p(own − m_l) over messages m_l stacked along axis 0, with one weight each (0 for
    those that are no neighbours).

    For p = 2 this is (Σ a)·own − a·M, one matrix product when it is mapped over many clients that
    share the same messages.
    """
    weights = jnp.asarray(weights)

    def leaf(mine: Any, all_: Any) -> Any:
        a = weights.astype(mine.dtype)
        if p == 2:
            mixed = (a @ all_.reshape(len(all_), -1)).reshape(mine.shape)
            return jnp.sum(a) * mine - mixed
        terms = gradient(mine[None] - all_, p)
        return (a @ terms.reshape(len(all_), -1)).reshape(mine.shape)

    return jax.tree.map(leaf, own, others)
