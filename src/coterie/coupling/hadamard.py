"""Products with large Hadamard matrices, without the matrix.

H of order n = r₁ r₂ … is the Kronecker product of small ones, and a product with it takes one small
matrix product per factor: n(r₁ + r₂ + …) multiplications instead of n². Factors of up to 32 suit a
CPU's matrix products better than the log₂ n steps with factors of 2 (`bench/dense.py`).

Sylvester's matrices have orders 2ᵃ. Paley's of order 12 and 20 make 3·2ᵃ and 5·2ᵃ possible as well,
so that a vector is lengthened by a third at most (d > 5), not to twice its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from numpy.typing import NDArray

LARGEST = 32
"""Of the factors."""
PALEY = (12, 20)


def order(d: int) -> int:
    """The least order ≥ d among 2ᵃ, 12·2ᵃ and 20·2ᵃ.

    >>> [order(d) for d in (1, 5, 9, 17, 21, 32, 7850, 79510)]
    [1, 8, 12, 20, 24, 32, 8192, 81920]
    """
    return min(m << max(0, (-(-d // m) - 1).bit_length()) for m in (1, *PALEY))


def factors(n: int) -> list[int]:
    """Orders whose product is n, none above `LARGEST`, powers of 2 as even as possible.

    >>> factors(1), factors(20), factors(81920), factors(1 << 17)
    ([], [20], [20, 16, 16, 16], [32, 16, 16, 16])
    """
    found = [m for m in PALEY if m // 4 == n // (n & -n)]
    bits = (n // math.prod(found)).bit_length() - 1
    count = -(-bits // (LARGEST.bit_length() - 1))
    return found + [1 << len(part) for part in np.array_split(np.arange(bits), count or 1) if bits]


@cache
def matrix(n: int) -> NDArray[np.int8]:
    """A Hadamard matrix of an order that `factors` gives: entries ±1, H Hᵀ = n I."""
    h = np.ones((1, 1), np.int8)
    if n in PALEY:  # I + S from the quadratic residues modulo the prime n − 1
        q = n - 1
        squares = {i * i % q for i in range(1, q)}
        character = np.array([0, *(1 if i in squares else -1 for i in range(1, q))], np.int8)
        h = np.eye(n, dtype=np.int8)
        h[0, 1:], h[1:, 0] = 1, -1
        h[1:, 1:] += character[np.subtract.outer(range(q), range(q)) % q]
        return h
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h


def times(x: Any, transposed: bool = False) -> Any:
    """H x, or Hᵀ x, for a vector whose length is an order."""
    for n in reversed(factors(x.size)):  # the last factor comes first in memory after its turn
        h = matrix(n).T if transposed else matrix(n)
        x = (jnp.asarray(h, x.dtype) @ x.reshape(-1, n).T).reshape(-1)
    return x


def one_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under `vmap`, vectors are done one after the other on a CPU: what a vector needs on the way
    then stays in the caches, and products need no transposed copies.
    """
    return sequential_vmap(function) if jax.default_backend() == "cpu" else function
