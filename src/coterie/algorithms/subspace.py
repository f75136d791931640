"""The options of a shared random subspace, for methods that send P x instead of x."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp

from coterie.algorithms.base import Method
from coterie.coupling import projection
from coterie.options import hidden, option
from coterie.vector import Vector


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subspace(Method):
    """P is drawn from a seed that all participants share, so it is never sent."""

    dsub: int = option(50, "numbers per message", symbol="dsub", low=1)
    projection: str = option(
        "dense", "P: Gaussian unit rows, orthonormal rows, block-diagonal, one block per layer, or the identity", choices=projection.KINDS
    )
    blocks: int = option(1, 'number of blocks of the kind "block"', symbol="k", low=1)
    regenerate: bool = option(False, 'kind "block": keep one block in memory at a time and draw it again when needed')
    projection_seed: int | None = option(None, "seed of P; nothing: drawn from the run's seed", low=0)
    drawn: Any = hidden()

    def bind(self, template: Vector, key: Any) -> Self:
        if self.projection_seed is not None:
            key = jax.random.key(self.projection_seed)
        drawn = projection.draw(self.projection, template, self.dsub, key, blocks=self.blocks, regenerate=self.regenerate)
        return dataclasses.replace(self, drawn=drawn)  # type: ignore[type-var]

    def squared_norm_of_p(self, template: Vector) -> float:
        """‖P‖², by power iteration on PPᵀ (1 for orthonormal rows)."""
        if self.projection in ("identity", "orthogonal"):
            return 1.0
        v = jnp.ones(self.drawn.dsub, template.dtype)
        for _ in range(20):
            v = self.drawn(self.drawn.back(v / jnp.linalg.norm(v), template))
        return float(jnp.linalg.norm(v))
