"""Merges that withstand some Byzantine clients: what a hub may do with messages instead of
averaging them.

Each takes messages stacked along axis 0 and a weight per message, and gives one message. All work
coordinate by coordinate or by distances between whole messages (Krum, geometric median, clipping),
over all leaves together.

| name | what it does | withstands f Byzantine clients of n |
|---|---|---|
| mean | Σ weight·m / Σ weight | none |
| median | coordinate-wise median | f < n/2 |
| trimmed | coordinate-wise mean without the `trim` share at either end | f ≤ trim·n |
| krum | the message nearest, in squared distances, to its n − f − 2 nearest | 2f + 2 < n |
| multi-krum | the mean of the n − f messages that Krum likes best | 2f + 2 < n |
| geometric-median | the point with the smallest sum of distances (Weiszfeld) | f < n/2 |
| clipping | mean difference to the old model, each cut to length `clip` | bounds each pull |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from coterie.coupling import penalty

KINDS = ("mean", "median", "trimmed", "krum", "multi-krum", "geometric-median", "clipping")
BY_COORDINATE = ("mean", "median")
"""Those that may be done for some coordinates at a time, and give the same bits."""
WEISZFELD_STEPS = 32


class Settings(NamedTuple):
    """Of a robust merge: which, and how much it distrusts."""

    kind: str = "mean"
    trim: Any = 0.1
    byzantine: int = 1
    clip: Any = 1.0


def weighted_mean(messages: Any, weights: Any) -> Any:
    """Σ_k weight_k · message_k / Σ_k weight_k, leaf by leaf."""
    share = weights / jnp.sum(weights)
    return jax.tree.map(lambda m: jnp.tensordot(share.astype(m.dtype), m, 1), messages)


def median(messages: Any) -> Any:
    """Coordinate-wise median."""
    return jax.tree.map(lambda m: jnp.median(m, axis=0), messages)


def _inner_mean(ranked: Any, count: Any, trim: Any) -> Any:
    """Mean over axis 0 of the first `count` sorted values without the ⌊trim·count⌋ at either end;
    at least one or two remain.
    """
    cut = jnp.minimum(
        jnp.floor(trim * count + 1e-6).astype(jnp.int32), jnp.maximum(count - 1, 0) // 2
    )
    rank = jnp.arange(ranked.shape[0])
    inside = ((rank >= cut) & (rank < count - cut)).reshape(-1, *([1] * (ranked.ndim - 1)))
    return jnp.sum(jnp.where(inside, ranked, 0), axis=0) / jnp.maximum(count - 2 * cut, 1).astype(
        ranked.dtype
    )


def trimmed_mean(messages: Any, trim: Any) -> Any:
    """Coordinate-wise mean without the share `trim` of the smallest and of the largest values."""
    return jax.tree.map(lambda m: _inner_mean(jnp.sort(m, axis=0), m.shape[0], trim), messages)


def squared_distances(messages: Any) -> Any:
    """‖m_i − m_j‖² over all leaves, (n, n); never negative, exactly 0 on the diagonal."""

    def leaf(m: Any) -> Any:
        flat = m.reshape(m.shape[0], -1)
        return jax.vmap(lambda one: jnp.sum(jnp.square(flat - one), axis=1))(flat)

    return sum(leaf(m) for m in jax.tree.leaves(messages))


def krum_scores(messages: Any, byzantine: int) -> Any:
    """Per message, the sum of squared distances to its n − f − 2 nearest others."""
    n = jax.tree.leaves(messages)[0].shape[0]
    near = max(1, n - byzantine - 2)
    ranked = jnp.sort(squared_distances(messages), axis=1)
    return ranked[:, 1 : near + 1].sum(1)  # column 0 is the distance to itself


def krum(messages: Any, byzantine: int) -> Any:
    """The message nearest to its neighbours."""
    best = jnp.argmin(krum_scores(messages, byzantine))
    return jax.tree.map(lambda m: m[best], messages)


def multi_krum(messages: Any, byzantine: int) -> Any:
    """The mean of the n − f messages with the best Krum scores."""
    n = jax.tree.leaves(messages)[0].shape[0]
    chosen = jnp.argsort(krum_scores(messages, byzantine))[: max(1, n - byzantine)]
    return jax.tree.map(lambda m: m[chosen].mean(0), messages)


def _squares(differences: Any) -> Any:
    """‖d_k‖² over all leaves, one number per message."""
    return sum(
        jnp.sum(jnp.square(d.reshape(d.shape[0], -1)), axis=1) for d in jax.tree.leaves(differences)
    )


def geometric_median(messages: Any, weights: Any) -> Any:
    """argmin_z Σ weight_k ‖m_k − z‖, by Weiszfeld's iteration from the coordinate-wise median."""

    def step(_: Any, z: Any) -> Any:
        differences = jax.tree.map(lambda m, c: m - c, messages, z)
        return weighted_mean(
            messages, weights / jnp.sqrt(jnp.maximum(_squares(differences), 1e-12))
        )

    return lax.fori_loop(0, WEISZFELD_STEPS, step, median(messages))


def clipped_mean(old: Any, messages: Any, weights: Any, clip: Any) -> Any:
    """old + mean of (m_k − old), each cut to length at most `clip`."""
    differences = jax.tree.map(lambda m, o: m - o, messages, old)
    factor = jnp.minimum(1.0, clip / jnp.sqrt(jnp.maximum(_squares(differences), 1e-30)))
    share = factor * weights / jnp.sum(weights)
    return jax.tree.map(
        lambda o, d: o + jnp.tensordot(share.astype(d.dtype), d, 1), old, differences
    )


def robust_merge(settings: Settings, old: Any, messages: Any, weights: Any) -> Any:
    """What the hub takes in place of the mean. `old` is the hub's model before (for clipping)."""
    makers: dict[str, Callable[[], Any]] = {
        "mean": lambda: weighted_mean(messages, weights),
        "median": lambda: median(messages),
        "trimmed": lambda: trimmed_mean(messages, settings.trim),
        "krum": lambda: krum(messages, settings.byzantine),
        "multi-krum": lambda: multi_krum(messages, settings.byzantine),
        "geometric-median": lambda: geometric_median(messages, weights),
        "clipping": lambda: clipped_mean(old, messages, weights, settings.clip),
    }
    return makers[settings.kind]()


def robust_pull(
    kind: str,
    own: Any,
    messages: Any,
    weights: Any,
    p: float,
    *,
    trim: Any = 0.1,
    clip: Any = 1.0,
    size: penalty.Size | None = None,
) -> Any:
    """The pull of the neighbours on a client, Σ a_l ψ_p(own − m_l), made robust.

    Messages with weight 0 are no neighbours.

    "median", "trimmed": (Σ a)·ψ_p(own − centre), with the coordinate-wise median or trimmed mean of
    the neighbours as centre (their weights tell only who is a neighbour); "clipping": each
    difference is cut to length `clip` before ψ_p. `size`, used for p < 2, is that of
    `penalty.differences`.
    """
    near = weights > 0
    size = size if p < 2 else None
    if kind == "clipping":
        differences = penalty.differences(own, messages, size)
        factor = jnp.minimum(1.0, clip / jnp.sqrt(jnp.maximum(_squares(differences), 1e-30)))

        def cut(d: Any) -> Any:
            shape = (-1, *([1] * (d.ndim - 1)))
            return jnp.tensordot(
                weights.astype(d.dtype),
                penalty.gradient(d * factor.reshape(shape).astype(d.dtype), p),
                1,
            )

        return jax.tree.map(cut, differences)

    def middle(m: Any) -> Any:
        shape = (-1, *([1] * (m.ndim - 1)))
        kept = jnp.where(
            near.reshape(shape), m, jnp.nan
        )  # NaN sorts last and is left out of medians
        return (
            jnp.nanmedian(kept, axis=0)
            if kind == "median"
            else _inner_mean(jnp.sort(kept, axis=0), jnp.sum(near), trim)
        )

    centre = jax.tree.map(lambda m: middle(m)[None], messages)

    def leaf(o: Any, gap: Any) -> Any:
        total = jnp.sum(weights).astype(o.dtype)
        return jnp.where(jnp.any(near), total * penalty.gradient(gap[0], p), 0)

    return jax.tree.map(leaf, own, penalty.differences(own, centre, size))
