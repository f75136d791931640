"""Codes for whole numbers, bit by bit: what is written, how it is read back, and how long it is
inside a compiled round.

Bits are written from the most significant one on and padded with zeros to whole bytes. With β(n)
the binary digits of n and |n| their number:

| code | of n ≥ | bits | length |
|---|---|---|---|
| fixed width w | 0 | n in w binary digits | w |
| Elias γ | 1 | \\|n\\| − 1 zeros, β(n) | 2\\|n\\| − 1 |
| Elias ω | 1 | code of \\|n\\| − 1 less its last zero, β(n), 0; of 1: 0 | log n + log log n + … |
| Rice, parameter b | 0 | ⌊n/2ᵇ⌋ ones, a zero, the last b binary digits of n | ⌊n/2ᵇ⌋ + 1 + b |

Lengths under `jnp` are computed with whole numbers only (a float's log₂ is wrong near powers of
two), for n up to 2³¹ − 1.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

Array = NDArray[Any]
LARGEST = 2**31 - 1
_PEEK = 12
_GOLDEN = 0.6180339887498949  # (√5 − 1)/2


def bit_length(n: Any) -> Any:
    """The number of binary digits of n ≥ 0 (jnp, int32)."""
    return 32 - lax.clz(jnp.asarray(n, jnp.int32))


def gamma_length(n: Any) -> Any:
    """Bits of the Elias γ code of n ≥ 1 (jnp)."""
    return 2 * bit_length(n) - 1


def omega_length(n: Any) -> Any:
    """Bits of the Elias ω code of n ≥ 1 (jnp).

    Four groups are enough: 31 digits, then 5, 3 and 2.
    """
    n = jnp.asarray(n, jnp.int32)
    total = jnp.ones_like(n)
    for _ in range(4):
        width = bit_length(n)
        total = total + jnp.where(n > 1, width, 0)
        n = jnp.where(n > 1, width - 1, 1)
    return total


def rice_length(n: Any, b: Any) -> Any:
    """Bits of the Rice code of n ≥ 0 with parameter b (jnp; b may be traced)."""
    return (jnp.asarray(n, jnp.int32) >> b) + 1 + b


def rice_parameter(d: int, k: int) -> int:
    """The best Rice parameter for the gaps between k of d coordinates drawn at random.

    Gaps are then geometric, P(gap ≥ m) = (1 − k/d)^m. With q = (1 − k/d)^(2ᵇ), one more bit in
    every code pays while q > (√5 − 1)/2 (the saving q/(1 − q²) exceeds 1). Only divisions and
    squares of floats, so that both ends find the same b on any machine.

    >>> [rice_parameter(1000, k) for k in (1000, 500, 100, 10, 1)]
    [0, 0, 3, 6, 9]
    """
    q, b = (d - k) / d, 0
    while q > _GOLDEN and b < 30:
        q, b = q * q, b + 1
    return b


def width_of(n: int) -> int:
    """Bits that tell n things apart: ⌈log₂ n⌉.

    >>> [width_of(n) for n in (1, 2, 3, 256, 257)]
    [0, 1, 2, 8, 9]
    """
    return max(n - 1, 0).bit_length()


def whole_bytes(bits: Any) -> Any:
    """Bytes that hold so many bits."""
    return (bits + 7) // 8


def _digits(n: Array) -> Array:
    """The number of binary digits, exact below 2⁵³."""
    return np.frexp(n.astype(np.float64))[1].astype(np.int64)


def _checked(values: Any, low: int) -> Array:
    n = np.asarray(values).astype(np.int64).reshape(-1)
    if n.size and not (low <= n.min() and n.max() <= LARGEST):
        raise InvalidInput(
            f"a code is asked for {n.min() if n.min() < low else n.max()}, but must be of a whole"
            f" number from {low} to {LARGEST}."
        )
    return n


class BitWriter:
    """Collects codes and gives them as bytes.

    >>> w = BitWriter()
    >>> w.omega([1, 2, 17]); w.fixed([5], 3)
    >>> "".join(map(str, w.bits())), w.to_bytes().hex()
    ('010010100100010101', '4a4540')
    """

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint8]] = []

    def __len__(self) -> int:
        return sum(len(p) for p in self._parts)

    def raw(self, bits: Any) -> None:
        """Bits as they are."""
        self._parts.append(np.asarray(bits).astype(np.uint8).reshape(-1))

    def whole(self, data: bytes) -> None:
        """All bits of some bytes."""
        self._parts.append(np.unpackbits(np.frombuffer(data, np.uint8)))

    def codes(self, codes: Array, lengths: Array) -> None:
        """Many codes at once, each right-aligned in a uint64."""
        ends = np.cumsum(lengths)
        out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
        live = np.arange(len(codes))
        for back in range(int(lengths.max(initial=0))):
            live = live[lengths[live] > back]
            out[ends[live] - 1 - back] = (codes[live] >> np.uint64(back)) & np.uint64(1)
        self._parts.append(out)

    def fixed(self, values: Any, width: int) -> None:
        n = _checked(values, 0)
        self.codes(n.astype(np.uint64), np.full(len(n), width))

    def gamma(self, values: Any) -> None:
        n = _checked(values, 1)
        self.codes(n.astype(np.uint64), 2 * _digits(n) - 1)

    def omega(self, values: Any) -> None:
        n = _checked(values, 1)
        code, length = np.zeros(len(n), np.uint64), np.ones(len(n), np.int64)
        while np.any(n > 1):
            width = np.where(n > 1, _digits(n), 0)
            code |= np.where(n > 1, n, 0).astype(np.uint64) << length.astype(np.uint64)
            length += width
            n = np.where(n > 1, width - 1, 1)
        self.codes(code, length)

    def rice(self, values: Any, b: int) -> None:
        n = _checked(values, 0)
        lengths = (n >> b) + 1 + b
        ends = np.cumsum(lengths)
        out = np.ones(int(ends[-1]) if len(ends) else 0, np.uint8)
        out[ends - 1 - b] = 0
        for back in range(b):
            out[ends - 1 - back] = (n >> back) & 1
        self._parts.append(out)

    def bits(self) -> NDArray[np.uint8]:
        return np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint8)

    def to_bytes(self) -> bytes:
        return np.packbits(self.bits()).tobytes()


class BitReader:
    """Reads what `BitWriter` wrote, in the same order; anything else is refused in one sentence."""

    def __init__(self, data: bytes) -> None:
        self._bytes = data + bytes(8)
        self._bits = np.unpackbits(np.frombuffer(data, np.uint8))
        self._at = 0

    def _need(self, end: int) -> None:
        if end > len(self._bits):
            raise InvalidInput(
                f"a message of {len(self._bits) // 8} bytes ends in the middle of a number."
            )

    def raw(self, count: int) -> NDArray[np.uint8]:
        """The next bits as they are."""
        self._need(self._at + count)
        self._at += count
        return self._bits[self._at - count : self._at]

    def whole(self, count: int) -> bytes:
        """The next bits as so many bytes."""
        return np.packbits(self.raw(8 * count)).tobytes()

    def fixed(self, count: int, width: int) -> NDArray[np.int64]:
        rows = self.raw(count * width).reshape(count, width)
        out = np.zeros(count, np.int64)
        for column in rows.T:
            out = (out << 1) | column
        return out

    def gamma(self, count: int) -> NDArray[np.int64]:
        out = np.empty(count, np.int64)
        for i in range(count):
            self._need(self._at + 1)
            zeros = 32 - self._peek(self._at, 32).bit_length()
            if zeros > 30:
                self._need(self._at + 63)
                raise InvalidInput(f"a message has a γ code of a number over {LARGEST}.")
            self._need(self._at + 2 * zeros + 1)
            out[i] = self._peek(self._at + zeros, zeros + 1)
            self._at += 2 * zeros + 1
        return out

    def omega(self, count: int) -> NDArray[np.int64]:
        short, data, at, total = _short_omegas(), self._bytes, self._at, len(self._bits)
        out = [0] * count
        for i in range(count):
            first = at >> 3
            window = int.from_bytes(data[first : first + 3], "big") if at < total else 0
            n, length = short[(window >> (24 - _PEEK - (at & 7))) & ((1 << _PEEK) - 1)]
            if not length:
                n, length = self._long_omega(at)
            at += length
            if at > total:
                self._need(at)
            out[i] = n
        self._at = at
        return np.array(out, np.int64)

    def rice(self, count: int, b: int) -> NDArray[np.int64]:
        rest = self._bits[self._at :]
        zeros_at = np.where(rest == 0, np.arange(len(rest)), len(rest))
        next_zero = np.minimum.accumulate(zeros_at[::-1])[::-1].tolist()
        at, size, zeros = 0, len(rest), np.empty(count, np.int64)
        for i in range(count):
            zero = next_zero[at] if at < size else size
            at = zero + 1 + b
            if at > size:
                self._need(len(self._bits) + 1)
            zeros[i] = zero
        starts = np.concatenate([[0], zeros[:-1] + 1 + b]) if count else zeros
        out = zeros - starts
        if count and int(out.max()) > LARGEST >> b:
            raise InvalidInput(f"a message has a Rice code of a number over {LARGEST}.")
        for i in range(b):
            out = (out << 1) | rest[zeros + 1 + i]
        self._at += at
        return out

    def finish(self) -> None:
        """Refuse bits that are left over: at most seven zeros may be."""
        left = self._bits[self._at :]
        if len(left) > 7:
            raise InvalidInput(f"a message has {len(left) // 8 or 1} bytes too many.")
        if np.any(left):
            raise InvalidInput("a message does not end in zero bits.")

    def _peek(self, at: int, width: int) -> int:
        """The next bits as a number, with zeros after the end; for width ≤ 32."""
        first = at >> 3
        return (
            int.from_bytes(self._bytes[first : first + 5].ljust(5, b"\0"), "big")
            >> (40 - width - (at & 7))
        ) & ((1 << width) - 1)

    def _long_omega(self, at: int) -> tuple[int, int]:
        n, start = 1, at
        while self._peek(at, 1):
            if n > 30:
                self._need(at + n + 1)
                raise InvalidInput(f"a message has an ω code of a number over {LARGEST}.")
            n, at = self._peek(at, n + 1), at + n + 1
            self._need(at)
        return n, at + 1 - start


@functools.cache
def _short_omegas() -> list[tuple[int, int]]:
    """For every window of `_PEEK` bits the ω code that it begins with, as (number, length), or
    length 0 if the code is longer.
    """
    table = [(0, 0)] * (1 << _PEEK)
    n = 1
    while True:
        w = BitWriter()
        w.omega([n])
        length = len(w)
        if length > _PEEK:
            return table
        code = int("".join(map(str, w.bits())), 2) << (_PEEK - length)
        table[code : code + (1 << (_PEEK - length))] = [(n, length)] * (1 << (_PEEK - length))
        n += 1
