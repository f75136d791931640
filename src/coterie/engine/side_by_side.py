"""How many clients are trained side by side on a CPU: as many as its caches hold.

All clients in one `vmap` walk through all their models at every gradient step, so models that are
too many for the caches come from memory each time. A group of clients that fits takes all its steps
before the next group's turn.
"""

from __future__ import annotations

import jax

CACHE = 2 << 20
"""Bytes of models in a group; `bench/groups.py` measures what it brings."""


def side_by_side(trainers: int, model_bytes: int, shared_bytes: int = 0) -> int:
    """Clients per group.

    `shared_bytes` is what all of them read at every step, such as lp-proj's matrix: a group must be
    large enough to be worth reading it again. A number that divides `trainers` is preferred: the
    rest would be a second, smaller program to compile.

    >>> side_by_side(1000, 31_400), side_by_side(100, 318_040)
    (50, 5)
    >>> side_by_side(100, 318_040, shared_bytes=100 * 318_040)
    100
    >>> side_by_side(100, 2_440), side_by_side(7, 10**9), side_by_side(1, 10**9)
    (100, 2, 1)
    """
    if jax.default_backend() != "cpu":
        return trainers
    target = max(2, CACHE // max(1, model_bytes), 2 * shared_bytes // max(1, model_bytes))
    if target >= trainers:
        return trainers
    dividing = [g for g in range(-(-target // 2), target + 1) if trainers % g == 0 and g > 1]
    return max(dividing) if dividing else target
