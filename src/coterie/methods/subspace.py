"""The options of a shared random subspace, for methods that send P x instead of x."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from coterie.core.options import hidden, option
from coterie.core.search import Among
from coterie.core.vector import Vector
from coterie.coupling import penalty, projection
from coterie.data.shape import ProblemShape
from coterie.methods.base import Method


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subspace(Method):
    """P is drawn from a seed that all participants share, so it is never sent."""

    dsub: int = option(50, "numbers per message", symbol="dsub", low=1, search=Among((10, 50, 200)))
    projection: str = option(
        "dense",
        "P: Gaussian unit rows, orthonormal rows, block-diagonal, one block per layer, rows of a"
        " Hadamard matrix with random signs (no stored matrix), or the identity",
        choices=projection.KINDS,
    )
    blocks: int = option(1, 'number of blocks of the kind "block"', symbol="k", low=1)
    regenerate: bool = option(
        False, 'kind "block": keep one block in memory at a time and draw it again when needed'
    )
    projection_seed: int | None = option(
        None, "seed of P; nothing: drawn from the run's seed", low=0
    )
    drawn: Any = hidden()
    shape: Any = hidden()

    def unused(self) -> dict[str, str]:
        out = super().unused()
        reason = f'{self.name}.projection is "{self.projection}"'
        if self.projection != "block" and self.blocks != 1:
            out["blocks"] = reason
        if self.projection != "block" and self.regenerate:
            out["regenerate"] = reason
        return out

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        if self.projection_seed is not None:
            key = jax.random.key(self.projection_seed)
        drawn = projection.draw(
            self.projection,
            template,
            self.dsub,
            key,
            blocks=self.blocks,
            regenerate=self.regenerate,
        )
        return dataclasses.replace(self, drawn=drawn, shape=template)  # type: ignore[type-var]

    def squared_norm_of_p(self, template: Vector) -> float:
        """‖P‖², the largest eigenvalue of PPᵀ (1 for orthonormal rows)."""
        if self.projection in ("identity", "orthogonal"):
            return 1.0
        apply = jax.jit(lambda v: self.drawn(self.drawn.back(v, template)))
        n, dtype = self.drawn.dsub, np.dtype(template.dtype)
        if n <= 32:
            return float(
                np.linalg.eigvalsh(
                    np.stack([np.asarray(apply(row)) for row in np.eye(n, dtype=dtype)]).astype(
                        float
                    )
                )[-1]
            )
        operator = LinearOperator(
            (n, n),
            matvec=lambda v: np.asarray(apply(v.astype(dtype).reshape(-1)), float),
            dtype=float,
        )
        return float(
            eigsh(
                operator,
                k=1,
                which="LA",
                return_eigenvectors=False,
                v0=np.random.default_rng(0).standard_normal(n),
            )[0]
        )

    def difference(self, x: Vector, w: Any, p: float) -> Any:
        """P x − w.

        For p < 2 what is within the rounding of P x counts as 0. Rows of P have length 1, so that
        is of the order of eps·‖x‖.
        """
        v = self.drawn(x) - w
        return v if p >= 2 else penalty.beyond_rounding(v, jnp.sqrt(x.squared_norm()))
