"""Weights by attention (FedAMP, HeurFedAMP): whose model is near counts much.

`known` says which clients have been heard of; the others count nothing, except that a client always
counts for itself. `own` is the client that a row belongs to; nothing: rows 0 … N−1 in order.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from coterie.core.typing import Array, Scalar


def split(shape: tuple[int, ...], known: Array | None, own: Array | None) -> tuple[Any, Any]:
    """Masks of a table (or a row) of weights: where a client meets itself, and which others
    count.
    """
    clients = jnp.arange(shape[-1])
    mine = clients == jnp.asarray(clients if own is None else own)[..., None]
    return mine, ~mine if known is None else ~mine & known


def weights(
    distances: Array,
    known: Array | None = None,
    own: Array | None = None,
    *,
    alpha: Scalar,
    sigma: Scalar,
) -> Array:
    """FedAMP: ξ_kl = α A'(d_kl) = (α/σ) exp(−d_kl/σ) for squared distances d_kl, and 1 − Σ_l ξ_kl
    for the client itself.

    Rows add up to 1. With α ≤ σ/N nothing is negative, whatever the distances.

    >>> weights(jnp.array([[0.0, 0.0], [0.0, 0.0]]), alpha=0.5, sigma=1.0).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    mine, others = split(jnp.shape(distances), known, own)
    pull = jnp.where(others, alpha / sigma * jnp.exp(-distances / sigma), 0.0)
    return jnp.where(mine, 1.0 - jnp.sum(pull, -1, keepdims=True), pull)


def heuristic(
    cosines: Array,
    known: Array | None = None,
    own: Array | None = None,
    *,
    self_weight: Scalar,
    sigma: Scalar,
) -> Array:
    """HeurFedAMP: ξ_kk is given, and 1 − ξ_kk is shared out by the softmax of σ·cos over the
    others.

    Rows add up to 1. Who knows nobody else counts alone.

    >>> heuristic(jnp.ones((3, 3)), self_weight=0.5, sigma=2.0)[0].tolist()
    [0.5, 0.25, 0.25]
    """
    mine, others = split(jnp.shape(cosines), known, own)
    logits = jnp.where(others, sigma * cosines, -jnp.inf)
    anybody = jnp.any(others, -1, keepdims=True)
    top = jnp.where(anybody, jnp.max(logits, -1, keepdims=True), 0.0)
    parts = jnp.exp(logits - top)
    shares = parts / jnp.where(anybody, jnp.sum(parts, -1, keepdims=True), 1.0)
    return jnp.where(mine, jnp.where(anybody, self_weight, 1.0), (1.0 - self_weight) * shares)
