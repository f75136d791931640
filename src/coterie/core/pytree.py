"""Dataclasses as JAX trees, told apart by their class.

`jax.tree_util.register_dataclass` leaves the class out when structures are compared (jaxlib 0.10):
two classes with fields alike, such as two attacks or two schedules, are equal but for their hashes.
Compiled programs are looked up by structure, so once in a while one class would silently run the
program of another. Here the class is part of what is static.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def register(cls: type[T], data: Sequence[str], meta: Sequence[str]) -> type[T]:
    """Make a dataclass a tree with the fields `data` as children; those of `meta` are static."""
    made: Any = cls

    def static(x: Any) -> Any:
        return made, tuple(getattr(x, k) for k in meta)

    def flatten(x: Any) -> Any:
        return [getattr(x, k) for k in data], static(x)

    def flatten_with_keys(x: Any) -> Any:
        return [(jax.tree_util.GetAttrKey(k), getattr(x, k)) for k in data], static(x)

    def unflatten(known: Any, children: Any) -> Any:
        return made(
            **dict(zip(meta, known[1], strict=True)), **dict(zip(data, children, strict=True))
        )

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return cls


def tree(cls: type[T]) -> type[T]:
    """A decorator for dataclasses; fields with metadata `static` are static."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = [f.name for f in fields if f.metadata.get("static")]
    return register(cls, [f.name for f in fields if f.name not in static], static)
