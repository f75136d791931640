"""A few numbers of a rotated message: a fresh random subspace for every one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from coterie.channel import values as numbers
from coterie.channel.base import channel
from coterie.channel.bits import whole_bytes, width_of
from coterie.channel.sparse import Sparse, count_of
from coterie.core.randomness import permute


def hadamard(v: Any) -> Any:
    """H v by the fast Walsh–Hadamard transform: n log₂ n additions for length n, a power of two.

    Entries of H are ±1, H H = n I.

    >>> hadamard(jnp.array([1.0, 0.0, 0.0, 2.0])).tolist()
    [3.0, -1.0, -1.0, 3.0]
    """
    n, half = v.shape[0], 1
    while half < n:
        pairs = v.reshape(-1, 2, half)
        v = jnp.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(n)
        half *= 2
    return v


def random_signs(key: Any, n: int, dtype: Any) -> Any:
    """n random signs from n/32 random words."""
    words = jax.random.bits(key, (-(-n // 32),), jnp.uint32)
    bits = (words[:, None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return 1 - 2 * bits.reshape(-1)[:n].astype(dtype)


@channel("subspace")
class RandomSubspace(Sparse):
    """k numbers of a random rotation that both ends draw afresh for every message.

    x̂ = base + Aᵀ Q(A(x − base)), A = S H D/√n ∈ R^{k×d}: D are random signs, H is the
    Walsh–Hadamard transform of length n (d padded with zeros to a power of two), S takes k random
    ones of n numbers (the subsampled randomised Hadamard transform; Ailon and Chazelle 2006, Tropp
    2011). Rows of A are parts of orthonormal ones, so ‖A‖ ≤ 1: with full values x − x̂ is never
    longer than x − base, and E‖x − x̂‖² ≤ (1 − k/n)‖x − base‖². A fixed subspace would never see
    the rest; a fresh one sees everything in time, with `memory = "errors"` or "copies".

    | symbol | option |
    |---|---|
    | k | k, or share = k/d |
    | Q | values |

    Bytes: the scale (2, where the kind has one), then k numbers. D and S come from the key: no
    indices are sent. (1/n is a power of two and applied before sending; the receiver only adds, so
    that x̂ is the same in every program.)
    """

    def count(self, d: int) -> int:
        """k, at most n."""
        return count_of(self.share, None, d) if self.k is None else min(self.k, self.padded(d))

    @staticmethod
    def padded(d: int) -> int:
        """n, the power of two at or above d."""
        return 1 << width_of(d)

    def _draw(self, key: Any, d: int, dtype: Any) -> tuple[Any, Any]:
        """D (its first d signs) and the coordinates of S."""
        signs, chosen = jax.random.split(key)
        n, k = self.padded(d), self.count(d)
        return random_signs(signs, d, dtype), (
            jnp.arange(n) if k == n else permute(chosen, jnp.arange(k), n)
        )

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        d = x.shape[0]
        n = self.padded(d)
        signs, chosen = self._draw(key, d, x.dtype)
        rotated = hadamard(jnp.pad(signs * (x - base), (0, n - d)))
        return numbers.quantise(self.values, rotated[chosen] / n), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        d = base.shape[0]
        signs, chosen = self._draw(key, d, base.dtype)
        sent = numbers.restore(self.values, payload, base.dtype)
        rotated = jnp.zeros(self.padded(d), base.dtype).at[chosen].set(sent, unique_indices=True)
        return base + signs * hadamard(rotated)[:d], shared

    def size(self, payload: Any, d: int) -> Any:
        return whole_bytes(numbers.bits(self.values, self.count(d), payload.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return numbers.to_bytes(self.values, payload)

    def decode(self, data: bytes, d: int, dtype: Any) -> numbers.Coded:
        return numbers.from_bytes(self.values, data, self.count(d), dtype)
