"""How a difference between two models is priced: g(v) = (1/p)‖v‖_p^p for p ≥ 1, and its gradient
ψ_p(v) = sign(v)|v|^(p−1); or by its length, ‖v‖, whose gradient is v/‖v‖ (Network Lasso).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from coterie.core.vector import Vector

ROUNDING = 16
"""How many units in the last place count as rounding."""

Size = Callable[[Any], Any]
"""From the length of a message, the size of the numbers that it was computed from: its rounding is
of that order.
"""


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


def beyond_rounding(v: Any, scale: Any) -> Any:
    """v, but 0 where it is within the rounding of numbers of the size `scale`.

    For p < 2, ψ_p is steep or jumps at 0. Without this dead zone two equal models would be torn
    apart by the sign of a rounding error, and differently so on different machines. At 0 any value
    between −1 and 1 is a subgradient of |·|. A scale that is not finite has no dead zone.
    """
    rounding = ROUNDING * jnp.finfo(v.dtype).eps * jnp.asarray(scale, v.dtype)
    return jnp.where((jnp.abs(v) <= rounding) & jnp.isfinite(rounding), 0, v)


def lengths(messages: Any) -> Any:
    """‖m_l‖ of messages stacked along axis 0, over all leaves."""
    leaves = jax.tree.leaves(messages)
    return jnp.sqrt(sum(jnp.sum(jnp.square(m.reshape(len(m), -1)), axis=1) for m in leaves))


def differences(own: Any, others: Any, size: Size | None = None) -> Any:
    """own − m_l for messages m_l stacked along axis 0.

    With `size` (for p < 2), what is within rounding counts as 0: by the longer of the two messages,
    so that the difference of k to l is minus that of l to k.
    """
    gaps = jax.tree.map(lambda mine, all_: mine[None] - all_, own, others)
    if size is None:
        return gaps
    mine = lengths(jax.tree.map(lambda leaf: leaf[None], own))
    scale = size(jnp.maximum(mine, lengths(others)))
    return jax.tree.map(
        lambda gap: beyond_rounding(gap, scale.reshape(-1, *([1] * (gap.ndim - 1)))), gaps
    )


def pull(own: Any, others: Any, weights: Any, p: float, size: Size | None = None) -> Any:
    """Σ_l a_l ψ_p(own − m_l) over messages m_l stacked along axis 0, with one weight each (0 for
    those that are no neighbours).

    For p = 2 this is (Σ a)·own − a·M, one matrix product when it is mapped over many clients that
    share the same messages. `size`, used for p < 2, is that of `differences`.
    """
    weights = jnp.asarray(weights)

    def linear(mine: Any, all_: Any) -> Any:
        a = weights.astype(mine.dtype)
        mixed = (a @ all_.reshape(len(all_), -1)).reshape(mine.shape)
        return jnp.sum(a) * mine - mixed

    def leaf(mine: Any, gap: Any) -> Any:
        terms = gradient(gap, p)
        return (weights.astype(mine.dtype) @ terms.reshape(len(gap), -1)).reshape(mine.shape)

    if p == 2:
        return jax.tree.map(linear, own, others)
    return jax.tree.map(leaf, own, differences(own, others, size if p < 2 else None))


def unit_pull(own: Any, others: Any, weights: Any, size: Size | None = None) -> Any:
    """Σ_l a_l (own − m_l)/‖own − m_l‖ over messages m_l stacked along axis 0, the length over all
    leaves: a subgradient of Σ_l a_l ‖own − m_l‖. Who is where I am does not pull.

    `size` is that of `differences`.

    >>> near = jnp.array([[-3.0, -4.0], [0.0, 0.0]])
    >>> unit_pull(jnp.zeros(2), near, jnp.array([5.0, 1.0])).tolist()
    [3.0, 4.0]
    """
    weights = jnp.asarray(weights)
    gaps = differences(own, others, size)
    far = lengths(gaps)
    shares = jnp.where(far > 0, weights.astype(far.dtype) / jnp.where(far > 0, far, 1), 0)
    return jax.tree.map(lambda gap: jnp.tensordot(shares.astype(gap.dtype), gap, 1), gaps)
