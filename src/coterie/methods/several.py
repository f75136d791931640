"""Several models at one hub: how they begin, what a client's data says of each of them, and how the
hub averages what was trained for each.

They are one Vector whose arrays have a first axis of length k.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from coterie.core.vector import Vector
from coterie.methods.star import Averaging, Cohort
from coterie.models.objective import Batch, Objective


def scattered(template: Vector, key: Any, count: int, spread: Any) -> Vector:
    """`count` models to begin with: the template, and copies with noise, from the shared seed.

    The noise of an array has the standard deviation of its entries times `spread`; where all are
    alike (zeros, ones) it has about the length `spread` as a whole.
    """
    leaves, structure = jax.tree.flatten(template)

    def around(i: int, leaf: Any) -> Any:
        shape = (count - 1, *leaf.shape)  # drawn alike in every precision
        noise = jax.random.normal(jax.random.fold_in(key, i), shape, jnp.float32)
        own = jnp.std(leaf)
        scale = spread * jnp.where(own > 0, own, leaf.size**-0.5)
        return jnp.concatenate([leaf[None], leaf + scale * noise.astype(leaf.dtype)])

    return jax.tree.unflatten(structure, [around(i, leaf) for i, leaf in enumerate(leaves)])


def one_of(models: Vector, i: Any) -> Vector:
    """Model i of several."""
    return models.map(lambda leaf: leaf[i])


def total_losses(models: Vector, objective: Objective, batches: int | None = None) -> Any:
    """The loss of each model, summed over the samples of an epoch of this round, or of its first
    `batches` mini-batches.
    """
    epoch = objective.steps_per_epoch

    def add(i: Any, total: Any) -> Any:
        batch: Batch = objective.batch(i)
        each = jax.vmap(lambda model: objective.loss(model, batch))(models)
        return total + jnp.sum(batch.weight) * each

    none = jnp.zeros(len(models.leaves[0]), models.dtype)
    last = epoch if batches is None else jnp.minimum(epoch, batches)
    return jax.lax.fori_loop(0, last, add, none)


def merged_by_cluster(
    method: Averaging, hub: Any, sent: tuple[Vector, Any], cohort: Cohort, t: Any
) -> Any:
    """What a hub keeps of its models, each moved to the mean of those that were trained for it;
    where there is none it stays.

    `sent` is the models that clients sent, stacked, and the number of the hub's model that each
    began from.
    """
    models, numbers = sent

    def one(kept: Any, j: Any) -> Any:
        mine = numbers == j
        picked = jnp.any(mine)
        weights = jnp.where(picked, cohort.weights * mine, cohort.weights)
        members = cohort._replace(weights=weights)
        mean = method.aggregate(method.current(kept), models, members, t)
        new = method.next(kept, mean, t)
        return jax.tree.map(lambda a, b: jnp.where(picked, a, b), new, kept)

    return jax.vmap(one)(hub, jnp.arange(len(jax.tree.leaves(hub)[0])))
