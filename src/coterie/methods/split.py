"""Models in two parts: layers that all clients share, and layers that each client keeps to
itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections import OrderedDict
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import jax
from jax.tree_util import tree_flatten_with_path, tree_map_with_path

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step
from coterie.methods.sgd import LocalSGD, Trained
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


def named(template: Vector) -> list[str]:
    """The paths of all leaves, as in exported files.

    >>> import numpy as np
    >>> named(Vector({"layer0": {"norm": {"scale": np.zeros(1)}, "w": np.zeros(1)}}))
    ['layer0.norm.scale', 'layer0.w']
    """
    return [_dotted(path) for path, _ in tree_flatten_with_path(template.tree)[0]]


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(_word, path)) or "parameters"


def matching(template: Vector, patterns: str) -> set[str]:
    """The leaves that one of the patterns (with commas between) names: by a part of the path, or by
    the whole of it; capitals do not matter.

    >>> import numpy as np
    >>> tree = {"Dense_0": {"bias": np.zeros(1)}, "BatchNorm_0": {"bias": np.zeros(1)}}
    >>> matching(Vector(tree), "*norm*, bn*")
    {'BatchNorm_0.bias'}
    """
    wanted = [p.strip().lower() for p in patterns.split(",") if p.strip()]
    words = lambda path: [path.lower(), *path.lower().split(".")]
    return {
        path
        for path in named(template)
        if any(fnmatchcase(word, pattern) for word in words(path) for pattern in wanted)
    }


def cut(template: Vector, leaves: set[str], inside: bool = True) -> Vector:
    """The leaves at these paths (or, not `inside`, all others), as `part` does with entries."""

    def keep(path: tuple[Any, ...], leaf: Any) -> Any:
        return leaf if (_dotted(path) in leaves) == inside else None

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
        ' between; "*": all; nothing: split at the last layer',
    )
    personal: str | None = option(
        None,
        'patterns for what is personal, in place of `shared`, with commas between: "*norm*" names'
        " all parameters with such a word in their path",
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
        if self.shared.strip() == "*":
            return set(known)
        names = {name.strip() for name in self.shared.split(",")}
        if not names <= set(known):
            raise InvalidInput(
                f"{self.name}.shared is {self.shared!r}, but must name layers of the model, with"
                f" commas between: {', '.join(known)}."
            )
        return names

    def unused(self) -> dict[str, str]:
        mine = {"shared": f"{self.name}.personal is {self.personal!r}"} if self.personal else {}
        return {**super().unused(), **mine}

    def personal_leaves(self, template: Vector) -> set[str]:
        """The paths of the parameters that each client keeps."""
        if self.personal is None:
            return set(named(part(template, self.shared_names(template), inside=False)))
        found = matching(template, self.personal)
        if not found:
            raise InvalidInput(
                f"{self.name}.personal is {self.personal!r}, but must match parameters of the"
                f" model: {', '.join(named(template))}."
            )
        return found

    def parts(self, template: Vector) -> tuple[Vector, Vector]:
        """What is shared, and what is personal."""
        mine = self.personal_leaves(template)
        return cut(template, mine, inside=False), cut(template, mine)

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        self.personal_leaves(template)
        return self

    def hub_init(self, template: Vector) -> Any:
        return self.steered(self.parts(template)[0])

    def client_init(self, template: Vector) -> Trained:
        return Trained(self.parts(template)[1], self.opened(template))

    def local(self, received: Vector, state: Trained, objective: Objective) -> Step:
        """R steps on both parts together."""
        x, kept = self.descend(join(received, state.x), state.optimizer, objective)
        trained = Trained(like(state.x, x), kept)
        return Step(like(received, x), trained, self.steps(objective))

    def models(self, received: Vector, state: Trained, objective: Objective) -> dict[str, Vector]:
        return {"personal": join(received, state.x)}
