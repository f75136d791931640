"""Count sketches: a small table of random sums, from which the largest coordinates are found
again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel import values as numbers
from coterie.channel.base import channel
from coterie.channel.bits import whole_bytes
from coterie.channel.sparse import Sparse, count_of
from coterie.core.errors import InvalidInput
from coterie.core.options import option


class Sketched(NamedTuple):
    """The table, row by row, and the numbers of the coordinates that are found in it (empty when
    estimates serve instead).
    """

    table: numbers.Coded
    found: numbers.Coded | tuple[()]


@channel("sketch")
class CountSketch(Sparse):
    """A count sketch and its heavy hitters (Ivkin et al., Communication-efficient distributed SGD
    with sketching, NeurIPS 2019).

    With v = x − base and, for each of r rows, hash functions h_j: {1…d} → {1…c} and
    s_j: {1…d} → {−1, 1}, the same for all clients and drawn anew for every round (else coordinates
    that share their cells with large ones are overlooked round after round):

        T_jm = Σ over i with h_j(i) = m of s_j(i) vᵢ
        v̂ᵢ = median over j of s_j(i) Q(T)_{j, h_j(i)}

    M = the k coordinates with the largest |v̂ᵢ|. x̂ᵢ = xᵢ (or baseᵢ + Q(v)ᵢ with lossy `values`)
    for i in M, x̂ᵢ = baseᵢ elsewhere. In the paper the receiver asks for the true vᵢ of M in a
    second message; here the sender, which can read its own table, finds M by itself and sends them
    along. So x̂ is never farther from x than base is, and error feedback can make up for
    coordinates that were not found.

    With `exact = false` estimates are all that arrives: x̂ᵢ = baseᵢ + v̂ᵢ for i in M. For random
    hashes and full values, every row's estimate is unbiased with variance (‖v‖² − vᵢ²)/c, so that
    |v̂ᵢ − vᵢ| > √(3/c)‖v‖ has probability at most e^(−r/18) (Chebyshev in each row, Hoeffding for
    the median); rounding of T adds at most half a step. When no coordinate of v stands out, the k
    largest estimates are mostly chance and may be farther from v than 0 is; error feedback sends
    that error again, and it grows. Hence only without memory. The table is linear in v.

    | symbol | option |
    |---|---|
    | r | rows |
    | c | columns · d |
    | k | k, or share = k/d |
    | Q | values |
    | h, s | hash_seed |

    Bytes: the scale (2, where the kind has one), then the table row by row, r·c numbers, padded to
    whole bytes; with `exact` another scale and the k numbers of M in the order of their
    coordinates.
    """

    rows: int = option(5, "rows of the table; odd numbers have a true median", symbol="r", low=1)
    columns: float = option(
        0.02,
        "columns of the table, as a share of d (at least one)",
        symbol="c/d",
        above=0,
        high=1,
        static=True,
    )
    exact: bool = option(
        True,
        "send the true numbers of the coordinates that are found along with the table; false: only"
        " estimates, without memory",
    )
    hash_seed: int = option(0, "seed of the hash functions, the same at both ends", low=0)

    def width(self, d: int) -> int:
        """c for messages of length d."""
        return count_of(self.columns, None, d)

    def hashes(self, d: int, t: Any) -> tuple[Any, Any]:
        """h and s of round t, each of shape (rows, d)."""
        salts = (
            np.random.SeedSequence(self.hash_seed)
            .generate_state(6 * self.rows)
            .reshape(3, 2, self.rows, 1)
        )
        of_round = _hash(jnp.asarray(t, jnp.uint32), *salts[0])
        buckets = _hash(jnp.arange(d, dtype=jnp.uint32) ^ of_round, *salts[1]) % self.width(d)
        signs = _hash(jnp.arange(d, dtype=jnp.uint32) ^ of_round, *salts[2]) >> 31
        return buckets.astype(jnp.int32), signs.astype(bool)

    def table(self, v: Any, t: Any) -> Any:
        """T, of shape (rows, columns)."""
        buckets, signs = self.hashes(v.shape[0], t)
        row = jnp.arange(self.rows)[:, None]
        return (
            jnp.zeros((self.rows, self.width(v.shape[0])), v.dtype)
            .at[row, buckets]
            .add(jnp.where(signs, -v, v))
        )

    def rows_say(self, table: Any, d: int, t: Any) -> Any:
        """What each row makes of v, of shape (rows, d)."""
        buckets, signs = self.hashes(d, t)
        seen = jnp.take_along_axis(table, buckets, axis=1)
        return jnp.where(signs, -seen, seen)

    def estimates(self, table: Any, d: int, t: Any) -> Any:
        """v̂, all d of it."""
        ordered = _ordered(self.rows_say(table, d, t))
        return (ordered[(self.rows - 1) // 2] + ordered[self.rows // 2]) / 2

    def contracts(self) -> bool:
        return self.exact

    def validate(self) -> None:
        if not self.exact and self.memory != "none":
            raise InvalidInput(
                f'{self.name}.exact is false, but then {self.name}.memory must be "none", not'
                f" {self.memory!r}: the error would grow."
            )

    def found(self, table: numbers.Coded, d: int, dtype: Any, t: Any) -> tuple[Any, Any]:
        """M, increasing, and the estimates there.

        Both ends find the same: a median is one of the numbers that were sent, or the mean of two.
        """
        estimates = self.estimates(
            numbers.restore(self.values, table, dtype).reshape(self.rows, self.width(d)), d, t
        )
        chosen = jnp.sort(lax.top_k(jnp.abs(estimates), self.count(d))[1].astype(jnp.int32))
        return chosen, estimates[chosen]

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        table = numbers.quantise(self.values, self.table(x - base, t).reshape(-1))
        if not self.exact:
            return Sketched(table, ()), private
        chosen, _ = self.found(table, x.shape[0], x.dtype, t)
        return Sketched(table, numbers.code(self.values, x[chosen], base[chosen])), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        chosen, estimates = self.found(payload.table, base.shape[0], base.dtype, t)
        arrived = (
            numbers.arrive(self.values, payload.found, base[chosen])
            if self.exact
            else base[chosen] + estimates
        )
        return base.at[chosen].set(arrived, indices_are_sorted=True, unique_indices=True), shared

    def _bytes(self, d: int, dtype: Any) -> tuple[int, int]:
        """Those of the table, and those of the numbers after it."""
        table, found = (
            whole_bytes(numbers.bits(self.values, n, dtype))
            for n in (self.rows * self.width(d), self.count(d))
        )
        return table, found if self.exact else 0

    def size(self, payload: Any, d: int) -> Any:
        return sum(self._bytes(d, payload.table.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return numbers.to_bytes(self.values, payload.table) + (
            numbers.to_bytes(self.values, payload.found) if self.exact else b""
        )

    def decode(self, data: bytes, d: int, dtype: Any) -> Sketched:
        table, found = self._bytes(d, dtype)
        if len(data) != table + found:
            raise InvalidInput(f"a sketch has {len(data)} bytes, but {table + found} are expected.")
        first = numbers.from_bytes(self.values, data[:table], self.rows * self.width(d), dtype)
        return Sketched(
            first,
            (
                numbers.from_bytes(self.values, data[table:], self.count(d), dtype)
                if self.exact
                else ()
            ),
        )


def _ordered(rows: Any) -> Any:
    """Every column sorted.

    Few rows are compared two by two, far faster on a CPU than XLA's sort of short columns.

    The loop is there so that rows are computed once: unrolled, they would be part of every
    comparison.
    """
    if len(rows) > 16:
        return jnp.sort(rows, axis=0)

    def two_phases(_: Any, rows: Any) -> Any:  # of odd-even transposition
        lines = list(rows)
        for first in (0, 1):
            for i in range(first, len(lines) - 1, 2):
                lines[i], lines[i + 1] = (
                    jnp.minimum(lines[i], lines[i + 1]),
                    jnp.maximum(lines[i], lines[i + 1]),
                )
        return jnp.stack(lines)

    return lax.fori_loop(0, -(-len(rows) // 2), two_phases, rows)


def _hash(i: Any, first: Any, second: Any) -> Any:
    """32 bits that depend on every bit of i and of both salts (the finaliser of MurmurHash3,
    twice).
    """
    for salt in (first, second):
        i = i ^ jnp.asarray(salt, jnp.uint32)
        i = (i ^ (i >> 16)) * jnp.uint32(0x85EBCA6B)
        i = (i ^ (i >> 13)) * jnp.uint32(0xC2B2AE35)
        i = i ^ (i >> 16)
    return i
