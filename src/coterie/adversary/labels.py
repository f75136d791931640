"""Attacks on data: malicious clients train on wrong labels, and may scale what they send on top."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
from numpy.typing import NDArray

from coterie.adversary.base import Attack, Sight, attack, each
from coterie.core.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Poisoning(Attack):
    """Shared by attacks on labels."""

    on_data: ClassVar[bool] = True

    scale: float = option(
        0.0,
        "on top, a message is multiplied by a number from N(0, scale²); 0: sent as it is",
        symbol="τ",
        low=0,
    )

    def lies(self, sight: Sight) -> Any:
        factor = jax.numpy.where(self.scale > 0, self.scale * sight.per_message(), 1.0)
        return jax.tree.map(lambda m: each(factor, m).astype(m.dtype) * m, sight.messages)


@attack("random-labels")
class RandomLabels(Poisoning):
    """Every label of a malicious client is drawn at random, and what it sends is multiplied by
    a number from N(0, 20²): the lp-proj paper's data poisoning.
    """

    scale: float = option(
        20.0,
        "on top, a message is multiplied by a number from N(0, scale²); 0: sent as it is",
        symbol="τ",
        low=0,
    )

    def poisoned(self, y: NDArray[Any], classes: int, rng: np.random.Generator) -> NDArray[Any]:
        return rng.integers(0, classes, len(y)).astype(y.dtype)


@attack("label-flip")
class LabelFlip(Poisoning):
    """A malicious client's label c becomes C − 1 − c."""

    def poisoned(self, y: NDArray[Any], classes: int, rng: np.random.Generator) -> NDArray[Any]:
        return (classes - 1 - y).astype(y.dtype)
