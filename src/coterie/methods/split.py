"""Models in two parts: layers that all clients share, and layers that each client keeps to
itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from typing import Any, ClassVar, Self

import jax
from jax.tree_util import tree_flatten_with_path, tree_map_with_path

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.objective import Objective


def _word(key: Any) -> str:
    """One step of a path into a pytree, as plain text: a dictionary's key, a field's name, an index
    in a list.
    """
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _depth(paths: list[tuple[Any, ...]]) -> int:
    """How far down the entries have their names: below what all leaves have in common (Flax puts
    everything under "params").
    """
    deepest = min(len(p) for p in paths) - 1
    depth = 0
    while depth < deepest and len({p[depth] for p in paths}) == 1:
        depth += 1
    return depth


def _order(name: str) -> tuple[Any, ...]:
    """layer2 before layer10; an intercept comes after its weights, as it is added to their
    product.
    """
    parts = tuple(
        (0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", name) if p
    )
    return name in ("b", "bias"), parts


def layers(template: Vector) -> list[str]:
    """The named entries of a model, the first layer first: by name, or as they stand where the
    model keeps an order.

    >>> import numpy as np
    >>> one = np.zeros(1)
    >>> layers(Vector({"layer10": {"w": one}, "layer2": {"w": one, "b": one}}))
    ['layer2', 'layer10']
    >>> layers(Vector({"b": np.zeros(1), "w": np.zeros(1)}))
    ['w', 'b']
    """
    paths = [path for path, _ in tree_flatten_with_path(template.tree)[0]]
    depth = _depth(paths)
    names = list(dict.fromkeys(_word(path[depth]) if path else "parameters" for path in paths))
    # JAX sorts a dictionary's entries by name, but leaves an ordered one as it was made.
    return names if isinstance(template.tree, OrderedDict) else sorted(names, key=_order)


def part(template: Vector, names: set[str], inside: bool = True) -> Vector:
    """The leaves of the named entries (or, not `inside`, all others); None, which JAX takes for
    nothing, where the rest was.
    """
    depth = _depth([path for path, _ in tree_flatten_with_path(template.tree)[0]])

    def keep(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf if ((_word(path[depth]) if path else "parameters") in names) == inside else None

    return Vector(tree_map_with_path(keep, template.tree))


def _nothing(leaf: Any) -> bool:
    return leaf is None


def join(one: Vector, two: Vector) -> Vector:
    """The whole model from its two parts."""
    return Vector(
        jax.tree.map(lambda a, b: b if a is None else a, one.tree, two.tree, is_leaf=_nothing)
    )


def like(part: Vector, whole: Vector) -> Vector:
    """Of a whole model (or gradient), what belongs to this part."""
    return Vector(
        jax.tree.map(lambda a, b: None if a is None else b, part.tree, whole.tree, is_leaf=_nothing)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitModel(Averaging, LocalSGD):
    """Shared by methods whose hub averages some layers while each client keeps the others."""

    last_is_shared: ClassVar[bool] = False
    """The default split: share only the last layer, or all but the last."""

    shared: str | None = option(
        None,
        "names of the shared layers as they are called in the model's parameters, with commas"
        " between; nothing: split at the last layer",
    )
    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def shared_names(self, template: Vector) -> set[str]:
        """The layers that are averaged.

        A model with a single entry is shared as a whole by default.
        """
        known = layers(template)
        if self.shared is None:
            return set(known[-1:] if self.last_is_shared or len(known) == 1 else known[:-1])
        names = {name.strip() for name in self.shared.split(",")}
        if not names <= set(known):
            raise InvalidInput(
                f"{self.name}.shared is {self.shared!r}, but must name layers of the model, with"
                f" commas between: {', '.join(known)}."
            )
        return names

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        self.shared_names(template)
        return self

    def hub_init(self, template: Vector) -> Vector:
        return part(template, self.shared_names(template))

    def client_init(self, template: Vector) -> Vector:
        return part(template, self.shared_names(template), inside=False)

    def models(self, received: Vector, state: Vector, objective: Objective) -> dict[str, Vector]:
        return {"personal": join(received, state)}
