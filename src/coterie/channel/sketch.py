"""Count sketches: a small table of random sums, from which the largest coordinates are found again."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel import values as numbers
from coterie.channel.base import channel
from coterie.channel.bits import whole_bytes
from coterie.channel.sparse import Sparse, count_of
from coterie.options import option


@channel("sketch")
class CountSketch(Sparse):
    """A count sketch and its heavy hitters (Ivkin et al., Communication-efficient distributed SGD with sketching, NeurIPS 2019).

    With v = x − base and, for each of r rows, hash functions h_j: {1…d} → {1…c} and s_j: {1…d} → {−1, 1} that never change:

        T_jm = Σ over i with h_j(i) = m of s_j(i) vᵢ,    v̂ᵢ = median over j of s_j(i) Q(T)_{j, h_j(i)}

    x̂ᵢ = baseᵢ + v̂ᵢ for the k coordinates with the largest |v̂ᵢ|, x̂ᵢ = baseᵢ elsewhere. For random hashes and full values, every row's estimate is
    unbiased with variance (‖v‖² − vᵢ²)/c, so that |v̂ᵢ − vᵢ| > √(3/c)‖v‖ has probability at most e^(−r/18) (Chebyshev in each row, Hoeffding
    for the median); rounding of T adds at most half a step. The table is linear in v.

    | symbol | option |
    |---|---|
    | r | rows |
    | c | columns · d |
    | k | k, or share = k/d |
    | Q | values |
    | h, s | hash_seed |

    Bytes: the scale (2, where the kind has one), then the table row by row, r·c numbers.
    """

    rows: int = option(5, "rows of the table; odd numbers have a true median", symbol="r", low=1)
    columns: float = option(0.02, "columns of the table, as a share of d (at least one)", symbol="c/d", above=0, high=1, static=True)
    hash_seed: int = option(0, "seed of the hash functions, the same at both ends", low=0)

    def width(self, d: int) -> int:
        """c for messages of length d."""
        return count_of(self.columns, None, d)

    def hashes(self, d: int) -> tuple[Any, Any]:
        """h and s, each of shape (rows, d)."""
        salts = np.random.SeedSequence(self.hash_seed).generate_state(4 * self.rows).reshape(4, self.rows, 1)
        places = _hash(jnp.arange(d, dtype=jnp.uint32), salts[0], salts[1]) % self.width(d)
        signs = _hash(jnp.arange(d, dtype=jnp.uint32), salts[2], salts[3]) >> 31
        return places.astype(jnp.int32), signs.astype(bool)

    def table(self, v: Any) -> Any:
        """T, of shape (rows, columns)."""
        places, signs = self.hashes(v.shape[0])
        row = jnp.arange(self.rows)[:, None]
        return jnp.zeros((self.rows, self.width(v.shape[0])), v.dtype).at[row, places].add(jnp.where(signs, -v, v))

    def rows_say(self, table: Any, d: int) -> Any:
        """What each row makes of v, of shape (rows, d)."""
        places, signs = self.hashes(d)
        seen = jnp.take_along_axis(table, places, axis=1)
        return jnp.where(signs, -seen, seen)

    def estimates(self, table: Any, d: int) -> Any:
        """v̂, all d of it."""
        ordered = jnp.sort(self.rows_say(table, d), axis=0)
        return (ordered[(self.rows - 1) // 2] + ordered[self.rows // 2]) / 2

    def compress(self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        return numbers.quantise(self.values, self.table(x - base).reshape(-1)), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        d = base.shape[0]
        table = numbers.restore(self.values, payload, base.dtype).reshape(self.rows, self.width(d))
        estimates = self.estimates(table, d)
        chosen = lax.top_k(jnp.abs(estimates), self.count(d))[1]
        return base.at[chosen].add(estimates[chosen], unique_indices=True), shared

    def size(self, payload: Any, d: int) -> Any:
        return whole_bytes(numbers.bits(self.values, self.rows * self.width(d), payload.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return numbers.to_bytes(self.values, payload)

    def decode(self, data: bytes, d: int, dtype: Any) -> numbers.Coded:
        return numbers.from_bytes(self.values, data, self.rows * self.width(d), dtype)


def _hash(i: Any, first: Any, second: Any) -> Any:
    """32 bits that depend on every bit of i and of both salts (the finaliser of MurmurHash3, twice)."""
    for salt in (first, second):
        i = i ^ jnp.asarray(salt, jnp.uint32)
        i = (i ^ (i >> 16)) * jnp.uint32(0x85EBCA6B)
        i = (i ^ (i >> 13)) * jnp.uint32(0xC2B2AE35)
        i = i ^ (i >> 16)
    return i
