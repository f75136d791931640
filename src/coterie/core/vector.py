"""Arithmetic on whole models, so that a method reads like its equation.

A `Vector` wraps any pytree of arrays (the parameters of a model) and behaves like a point of R^d:
it can be added, subtracted, scaled, measured. Plain arrays support the same operators, so code such
as `w - eta * lam * (w - theta)` works for both, and nothing is flattened or copied in the inner
loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@jax.tree_util.register_pytree_node_class
class Vector:
    """A model as a point of R^d.

    >>> v = Vector({"w": jnp.ones((2, 3)), "b": jnp.zeros(2)})
    >>> v.size, float((2 * v - v).squared_norm())
    (8, 6.0)
    """

    __slots__ = ("tree",)
    __array_ufunc__ = None  # numpy scalars on the left defer to us

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self.tree,), None

    @classmethod
    def tree_unflatten(cls, _: None, children: tuple[Any]) -> Vector:
        return cls(children[0])

    def map(self, function: Callable[..., Any], *others: Vector) -> Vector:
        return Vector(jax.tree.map(function, self.tree, *(o.tree for o in others)))

    def _binary(self, function: Callable[[Any, Any], Any], other: Any) -> Vector:
        if isinstance(other, Vector):
            return self.map(function, other)
        return self.map(lambda leaf: function(leaf, jnp.asarray(other, leaf.dtype)))

    def __add__(self, other: Any) -> Vector:
        return self._binary(lambda a, b: a + b, other)

    def __sub__(self, other: Any) -> Vector:
        return self._binary(lambda a, b: a - b, other)

    def __mul__(self, other: Any) -> Vector:
        return self._binary(lambda a, b: a * b, other)

    def __truediv__(self, other: Any) -> Vector:
        return self._binary(lambda a, b: a / b, other)

    def __neg__(self) -> Vector:
        return self.map(lambda a: -a)

    __radd__ = __add__
    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"Vector({self.tree!r})"

    @property
    def leaves(self) -> list[Any]:
        return jax.tree.leaves(self.tree)

    @property
    def size(self) -> int:
        """d, the number of scalars."""
        return sum(math.prod(leaf.shape) for leaf in self.leaves)

    @property
    def dtype(self) -> Any:
        return np.result_type(*(leaf.dtype for leaf in self.leaves))

    def squared_norm(self) -> Any:
        return sum(jnp.sum(jnp.square(leaf)) for leaf in self.leaves)

    def flat(self) -> Any:
        """All scalars as one array of shape (d,), leaves in pytree order."""
        if all(
            isinstance(leaf, np.ndarray) for leaf in self.leaves
        ):  # a finished float64 model stays float64 whatever JAX's mode is
            return np.concatenate([np.ravel(leaf) for leaf in self.leaves])
        return jnp.concatenate([jnp.ravel(leaf) for leaf in self.leaves])

    def like(self, flat: Any) -> Vector:
        """The inverse of `flat`, with this vector's shapes."""
        leaves, structure = jax.tree.flatten(self.tree)
        out, start = [], 0
        for leaf in leaves:
            size = math.prod(leaf.shape)
            out.append(jnp.reshape(flat[start : start + size], leaf.shape).astype(leaf.dtype))
            start += size
        return Vector(jax.tree.unflatten(structure, out))


def squared_norm(x: Any) -> Any:
    """‖x‖² of a Vector or an array."""
    return x.squared_norm() if isinstance(x, Vector) else jnp.sum(jnp.square(x))


def all_finite(tree: Any) -> Any:
    """True when no leaf holds NaN or infinity."""
    flags = [
        jnp.all(jnp.isfinite(leaf))
        for leaf in jax.tree.leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    return jnp.all(jnp.stack(flags)) if flags else jnp.asarray(True)
