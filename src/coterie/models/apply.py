"""Models applied to rows, many rows and many clients' models at a time.

Rows are padded to one of few shapes, so that tables of all lengths share compiled programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.models.base import Model

ROWS = 4096
"""Rows that one model looks at at once."""
TILE = 64
"""Rows of one client that are looked at at once, where many clients have models of their own."""
NUMBERS = 2**24
"""Numbers of models and rows that are held at once."""

Array = NDArray[Any]


@contextlib.contextmanager
def _precision(parameters: Any) -> Iterator[None]:
    wide = any(np.asarray(leaf).dtype == np.float64 for leaf in jax.tree.leaves(parameters))
    with jax.enable_x64(wide):
        yield


def _kind(parameters: Any) -> Any:
    return np.result_type(*(np.asarray(leaf).dtype for leaf in jax.tree.leaves(parameters)))


def _outputs(apply: Callable[..., Any], class_major: bool, parameters: Any, x: Any) -> Any:
    out = apply(parameters, x)
    return out.T if class_major else out


_one = partial(jax.jit, static_argnums=(0, 1))(_outputs)


@partial(jax.jit, static_argnums=(0, 1))
def _tiles(apply: Any, class_major: bool, stacked: Any, which: Any, x: Any) -> Any:
    one = lambda k, rows: _outputs(apply, class_major, jax.tree.map(lambda a: a[k], stacked), rows)
    return jax.vmap(one)(which, x)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _mean(apply: Any, class_major: bool, classes: bool, stacked: Any, weights: Any, x: Any) -> Any:
    def add(k: Any, total: Any) -> Any:
        out = _outputs(apply, class_major, jax.tree.map(lambda a: a[k], stacked), x)
        return total + weights[k] * (jax.nn.softmax(out, -1) if classes else out)

    shape = jax.eval_shape(
        lambda: _outputs(apply, class_major, jax.tree.map(lambda a: a[0], stacked), x)
    )
    return jax.lax.fori_loop(0, len(weights), add, jnp.zeros(shape.shape, shape.dtype))


def _in_chunks(function: Callable[[Any], Any], x: Array, outputs: int, most: int) -> Array:
    """`function` over rows, in chunks of one shape."""
    width = min(most, 1 << max(3, (len(x) - 1).bit_length()))
    out = np.zeros((len(x), outputs), x.dtype)
    for begin in range(0, len(x), width):
        rows = x[begin : begin + width]
        count = len(rows)
        if count < width:
            rows = np.concatenate([rows, np.zeros((width - count, *x.shape[1:]), x.dtype)])
        out[begin : begin + count] = np.asarray(function(rows))[:count]
    return out


def _most(x: Array) -> int:
    per_row = max(1, int(np.prod(x.shape[1:])))
    return int(min(ROWS, max(8, 1 << (NUMBERS // per_row).bit_length() - 1)))


def outputs_of(model: Model, parameters: Any, x: Array, outputs: int) -> Array:
    """The outputs of one model, (rows, outputs): logits, or values."""
    with _precision(parameters):
        x = np.asarray(x, _kind(parameters))
        held = jax.tree.map(jnp.asarray, parameters)
        run = lambda rows: _one(model.apply, model.class_major, held, rows)
        return _in_chunks(run, x, outputs, _most(x))


def outputs_of_each(
    model: Model, stacked: Any, which: NDArray[np.integer[Any]], x: Array, outputs: int
) -> Array:
    """The outputs of the model `which[i]` for row i; models are stacked along axis 0."""
    with _precision(stacked):
        x = np.asarray(x, _kind(stacked))
        order = np.argsort(which, kind="stable")
        owners, counts = np.unique(which, return_counts=True)
        tiles = -(-counts // TILE)
        owner = np.repeat(owners, tiles)
        first = np.repeat(np.cumsum(counts) - counts, tiles)
        nth = np.arange(len(owner)) - np.repeat(np.cumsum(tiles) - tiles, tiles)
        place = (first + nth * TILE)[:, None] + np.arange(TILE)
        end = np.repeat(np.cumsum(counts), tiles)[:, None]
        real = place < end
        rows = order[np.minimum(place, end - 1)]
        size = sum(int(np.prod(a.shape[1:])) for a in jax.tree.leaves(stacked))
        numbers = size + TILE * int(np.prod(x.shape[1:]))
        at_once = max(1, min(len(owner), 256, NUMBERS // max(1, numbers)))
        held = jax.tree.map(jnp.asarray, stacked)
        out = np.zeros((len(x), outputs), x.dtype)
        for begin in range(0, len(owner), at_once):
            some = np.resize(np.arange(begin, min(begin + at_once, len(owner))), at_once)
            found = np.asarray(
                _tiles(model.apply, model.class_major, held, owner[some], x[rows[some]])
            )
            out[rows[some][real[some]]] = found[real[some]]
        return out


def mean_of_all(
    model: Model, stacked: Any, weights: Array, x: Array, outputs: int, *, classes: bool
) -> Array:
    """The weighted mean of all models' probabilities (`classes`) or values."""
    with _precision(stacked):
        x = np.asarray(x, _kind(stacked))
        held = jax.tree.map(jnp.asarray, stacked)
        share = jnp.asarray(weights / np.sum(weights), x.dtype)
        run = lambda rows: _mean(model.apply, model.class_major, classes, held, share, rows)
        return _in_chunks(run, x, outputs, _most(x))


def probabilities(outputs: Array) -> Array:
    """Softmax over the last axis."""
    moved = np.exp(outputs - outputs.max(-1, keepdims=True))
    return np.asarray(moved / moved.sum(-1, keepdims=True))
