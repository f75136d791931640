"""Weights on the simplex (pFedGraph): near to the clients' shares of the data, and moved towards
those whose models are alike.
"""

from __future__ import annotations

import jax.numpy as jnp

from coterie.core.typing import Array, Scalar


def onto_simplex(v: Array, known: Array | None = None) -> Array:
    """The nearest point with entries ≥ 0 that sum to 1: max(v − θ, 0), θ found by sorting; along
    the last axis.

    Entries that are not `known` are 0, and all are where none is.

    >>> onto_simplex(jnp.array([0.5, 2.0, 1.5])).tolist()
    [0.0, 0.75, 0.25]
    """
    v = v if known is None else jnp.where(known, v, -jnp.inf)
    # A shift changes nothing, and so the largest entry always stays, whatever its size.
    v = v - jnp.max(v, -1, keepdims=True)
    ranked = -jnp.sort(-v)
    above = jnp.cumsum(ranked, -1) - 1
    count = jnp.arange(1, v.shape[-1] + 1)
    last = jnp.sum(ranked * count > above, -1, keepdims=True) - 1
    theta = jnp.take_along_axis(above / count, last, -1)
    found = jnp.maximum(v - theta, 0)
    return found if known is None else jnp.where(known, found, 0)


def weights(distances: Array, known: Array | None = None, *, sizes: Array, alpha: Scalar) -> Array:
    """pFedGraph: for each row the w on the simplex with the least

    Σ_l (w_l − p_l)² + α Σ_l w_l d_kl,  p_l = n_l/n over the known clients:

    the projection of p − (α/2) d.

    d_kl = −cos is −1 where k = l, so α moves weight to the client itself and to those alike. Rows
    add up to 1 as soon as anybody is known, and to 0 before.

    >>> weights(jnp.zeros((2, 2)), sizes=jnp.array([1.0, 3.0]), alpha=0.5).tolist()
    [[0.25, 0.75], [0.25, 0.75]]
    """
    counted = sizes if known is None else jnp.where(known, sizes, 0)
    total = jnp.sum(counted)
    shares = counted / jnp.where(total > 0, total, 1)
    return onto_simplex(shares - 0.5 * alpha * distances, known)
