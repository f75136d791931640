"""Pytrees as named arrays, for files: a leaf's name is its path, joined by dots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

ONLY = "parameters"
"""The name of a tree that is a single array."""


def _plain(step: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def _names(tree: Any) -> tuple[list[str], list[Any], Any]:
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [".".join(_plain(step) for step in path) or ONLY for path, _ in paths]
    return names, [leaf for _, leaf in paths], structure


def leaf_names(tree: Any) -> list[str]:
    """The names of the leaves, which may be shapes alone."""
    return _names(tree)[0]


def named_leaves(tree: Any) -> dict[str, NDArray[Any]]:
    """The leaves of a tree by name.

    >>> sorted(named_leaves({"first": {"w": np.ones(2), "b": np.zeros(1)}}))
    ['first.b', 'first.w']
    """
    names, leaves, _ = _names(tree)
    return {name: np.asarray(leaf, order="C") for name, leaf in zip(names, leaves, strict=True)}


def with_leaves(
    like: Any, leaves: Mapping[str, Any], what: str = "the model", *, stacked: bool = False
) -> Any:
    """The inverse of `named_leaves`: a tree of the structure of `like`, whose leaves may be shapes
    alone; refuses what does not fit. `stacked` leaves have one axis more, in front.

    >>> with_leaves({"w": np.zeros(2)}, {"w": np.ones(2)})
    {'w': array([1., 1.])}
    """
    names, shapes, structure = _names(like)
    for name, shape in zip(names, shapes, strict=True):
        if name not in leaves:
            raise InvalidInput(f"{what} lacks the array {name!r}.")
        found = tuple(leaves[name].shape)[1 if stacked else 0 :]
        if found != tuple(shape.shape):
            raise InvalidInput(
                f"the array {name!r} of {what} has the shape {found}, but must have"
                f" {tuple(shape.shape)}."
            )
    if extra := sorted(set(leaves) - set(names)):
        raise InvalidInput(f"{what} has the array {extra[0]!r}, which does not belong to it.")
    return jax.tree.unflatten(structure, [leaves[name] for name in names])
