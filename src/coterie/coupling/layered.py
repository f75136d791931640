"""Which arrays of a model make a layer, and how the rows of a projection are shared among them."""

from __future__ import annotations

import re
from typing import Any

from jax.tree_util import SequenceKey, keystr, tree_flatten_with_path

from coterie.core.vector import Vector

WITHIN_A_LAYER = {
    *("w", "weight", "weights", "kernel", "scale", "gamma"),
    *("b", "bias", "biases", "intercept", "shift", "offset", "beta"),
}
"""Words in the names of a layer's arrays that do not tell it from another layer."""


def layers_of(like: Vector) -> tuple[int, ...]:
    """For every array of a model the number of its layer, counted as they come.

    Arrays whose names differ only in the words for weights and bias are of one layer, and so are
    those of one entry in a list of lists.

    >>> import numpy as np
    >>> one = np.zeros(1)
    >>> layers_of(Vector({"layer1": {"b": one, "w": one}, "layer2": {"b": one, "w": one}}))
    (0, 0, 1, 1)
    >>> layers_of(Vector({"0.bias": one, "0.weight": one, "conv": one}))
    (0, 0, 1)
    """
    names = [_layer_name(path) for path, _ in tree_flatten_with_path(like.tree)[0]]
    order = list(dict.fromkeys(names))
    return tuple(order.index(name) for name in names)


def _layer_name(path: tuple[Any, ...]) -> tuple[str, ...]:
    if len(path) > 1 and all(isinstance(key, SequenceKey) for key in path[-2:]):
        path = path[:-1]  # a list of pairs (w, b)
    words = re.findall(r"[a-z]+|\d+", keystr(path).lower())
    return tuple(word for word in words if word not in WITHIN_A_LAYER)


def layer_rows(sizes: list[int], dsub: int) -> list[int]:
    """dsub rows shared among layers in proportion to their sizes (largest remainders), at least 1
    and at most the layer's size each.

    >>> layer_rows([7840, 10], 50), layer_rows([100, 100, 2], 10)
    ([49, 1], [5, 4, 1])
    """
    total = sum(sizes)
    rows = [min(max(1, dsub * s // total), s) for s in sizes]
    order = sorted(range(len(sizes)), key=lambda i: -(dsub * sizes[i] / total - rows[i]))
    while sum(rows) != dsub:
        step = 1 if sum(rows) < dsub else -1
        able = [i for i in order if (rows[i] < sizes[i] if step > 0 else rows[i] > 1)]
        i = max(able, key=lambda i: step * (dsub * sizes[i] / total - rows[i]))
        rows[i] += step
    return rows
