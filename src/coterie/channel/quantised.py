"""Stochastic rounding to a few levels, unbiased, with the codes of the paper."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel.base import Channel, channel
from coterie.channel.bits import BitReader, BitWriter, omega_length, whole_bytes
from coterie.channel.values import shortened
from coterie.core.errors import InvalidInput
from coterie.core.options import option


class Levels(NamedTuple):
    """One step per bucket and one signed level per coordinate."""

    steps: Any
    levels: Any


@channel("qsgd")
class QSGD(Channel):
    """QSGD: every coordinate stochastically rounded to a few levels, unbiased (Alistarh et al.,
    NeurIPS 2017).

    v = x − base is cut into buckets of n coordinates. In each, with step Δ = ‖v‖₂/s, a coordinate
    becomes sign(vᵢ)·Δ·ℓᵢ, where ℓᵢ is one of the two whole numbers next to |vᵢ|/Δ, drawn so that
    E x̂ = x. The variance is at most min(n/s², √n/s)‖v‖², and s(s + √n) levels are expected not to
    be 0.

    | symbol | option |
    |---|---|
    | n | bucket |
    | s | levels |

    Levels are coded with Elias ω in the paper's two ways; a flag bit says which, and the shorter
    one is taken:

    - dense: ω(ℓᵢ + 1) for every coordinate, and the sign of every ℓᵢ ≠ 0;
    - sparse: ω(their number + 1), and for every ℓᵢ ≠ 0 its distance to the one before (ω), its sign
      and ω(ℓᵢ).

    (Equal parts stand together on the wire: all levels, then all signs. The length is the paper's;
    it leaves open how the sparse code ends.)

    Bytes: Δ of every bucket as a float32 (4 each), then flag and codes, padded with zeros. Δ is
    rounded up to so few bits that Δ·ℓ is exact in float32: both ends get the same x̂. v beyond
    float32's range is clipped. A memory makes sense only with s² > n, and is refused otherwise.
    """

    bucket: int = option(512, "coordinates that share a norm", symbol="n", low=1)
    levels: int = option(16, "levels per sign, besides 0", symbol="s", low=1, high=32767)

    def validate(self) -> None:
        if self.memory != "none" and not self.contracts():
            raise InvalidInput(
                f'qsgd.memory is {self.memory!r}, but must be "none" while bucket ({self.bucket})'
                f" is not below the square of levels ({self.levels}): what is cut off may exceed"
                " what was to be sent, and a memory would grow without bound."
            )

    def contracts(self) -> bool:
        return self.variance() < 1

    def variance(self) -> float:
        """The bound min(n/s², √n/s) on E‖x̂ − x‖²/‖x − base‖²."""
        ratio = math.sqrt(self.bucket) / self.levels
        return min(ratio, ratio * ratio)

    def _buckets(self, d: int) -> int:
        return -(-d // self.bucket)

    @property
    def _type(self) -> Any:
        return np.int8 if self.levels <= 127 else np.int16

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        d, v = x.shape[0], x - base
        steps = self._steps(v)
        spread = self._spread(steps, d).astype(v.dtype)
        height = jnp.abs(v) / jnp.where(spread == 0, 1, spread)
        below = jnp.floor(height)
        level = below + (jax.random.uniform(key, (d,), v.dtype) < height - below)
        level = jnp.where(jnp.isfinite(level), jnp.clip(level, 0, self.levels), 0)
        return Levels(steps, jnp.where(v < 0, -level, level).astype(self._type)), private

    def _steps(self, v: Any) -> Any:
        """‖v‖/s of every bucket, without overflow, in 24 − |s| bits."""
        count = self._buckets(v.shape[0])
        rows = jnp.abs(jnp.pad(v, (0, count * self.bucket - v.shape[0]))).reshape(
            count, self.bucket
        )
        peak = jnp.max(rows, axis=1)
        unit = jnp.where(peak == 0, 1, peak)
        norm = jnp.sqrt(jnp.sum((rows / unit[:, None]) ** 2, axis=1))
        return shortened(unit * (norm / self.levels), peak, self.levels.bit_length(), up=True)

    def _spread(self, steps: Any, d: int) -> Any:
        """The step of each coordinate."""
        return jnp.repeat(steps, self.bucket, total_repeat_length=self._buckets(d) * self.bucket)[
            :d
        ]

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        steps = self._spread(payload.steps, base.shape[0]).astype(base.dtype)
        return base + payload.levels.astype(base.dtype) * steps, shared

    def size(self, payload: Any, d: int) -> Any:
        return 4 * self._buckets(d) + whole_bytes(code_bits(payload.levels))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        levels = np.asarray(payload.levels).astype(np.int64)
        dense, sparse = _write_dense(levels), _write_sparse(levels)
        shorter = dense if len(dense) <= len(sparse) else sparse
        return np.asarray(payload.steps).astype("<f4").tobytes() + shorter.to_bytes()

    def decode(self, data: bytes, d: int, dtype: Any) -> Levels:
        head = 4 * self._buckets(d)
        if len(data) <= head:
            raise InvalidInput(f"a message has {len(data)} bytes, but must have more than {head}.")
        steps = np.frombuffer(data[:head], "<f4").astype(np.float32)
        if not np.all(np.isfinite(steps)) or np.any(np.signbit(steps)):
            raise InvalidInput("a message has a step that is not a finite number of at least 0.")
        if np.any(steps.view(np.uint32) & ((1 << self.levels.bit_length()) - 1)):
            raise InvalidInput(
                f"a message has a step of more than {24 - self.levels.bit_length()} bits."
            )
        reader = BitReader(data[head:])
        levels = _read_sparse(reader, d) if reader.raw(1)[0] else _read_dense(reader, d)
        reader.finish()
        if np.any(np.abs(levels) > self.levels):
            raise InvalidInput(
                f"a message has the level {np.abs(levels).max()}, but levels are at most"
                f" {self.levels}."
            )
        payload = Levels(steps, levels.astype(self._type))
        if self.encode(payload, d, dtype) != data:
            raise InvalidInput("a message is in the longer one of its two codes.")
        return payload


@jax.jit
def code_bits(levels: Any) -> Any:
    """The bits of the flag and of the shorter one of both codes."""
    level = jnp.abs(levels.astype(jnp.int32))
    there = level > 0
    count = jnp.sum(there, dtype=jnp.int32)
    index = jnp.arange(level.shape[0], dtype=jnp.int32)
    last = lax.cummax(jnp.where(there, index, -1))
    gap = index - jnp.concatenate([jnp.full(1, -1, jnp.int32), last[:-1]])
    dense = jnp.sum(omega_length(level + 1), dtype=jnp.int32)
    each = jnp.where(there, omega_length(gap) + omega_length(jnp.maximum(level, 1)), 0)
    sparse = omega_length(count + 1) + jnp.sum(each, dtype=jnp.int32)
    return 1 + count + jnp.minimum(dense, sparse)


def _write_dense(levels: Any) -> BitWriter:
    writer = BitWriter()
    writer.raw([0])
    writer.omega(np.abs(levels) + 1)
    writer.raw(levels[levels != 0] < 0)
    return writer


def _write_sparse(levels: Any) -> BitWriter:
    writer, there = BitWriter(), np.flatnonzero(levels)
    writer.raw([1])
    writer.omega([len(there) + 1])
    writer.omega(np.diff(there, prepend=-1))
    writer.raw(levels[there] < 0)
    writer.omega(np.abs(levels[there]))
    return writer


def _read_dense(reader: BitReader, d: int) -> Any:
    levels = reader.omega(d) - 1
    there = np.flatnonzero(levels)
    levels[there] *= 1 - 2 * reader.raw(len(there)).astype(np.int64)
    return levels


def _read_sparse(reader: BitReader, d: int) -> Any:
    count = int(reader.omega(1)[0]) - 1
    if count > d:
        raise InvalidInput(f"a message has {count} levels, but must have at most {d}.")
    there = np.cumsum(reader.omega(count)) - 1
    if count and there[-1] >= d:
        raise InvalidInput(
            f"a message has the coordinate {there[-1]}, but must have coordinates below {d}."
        )
    negative = reader.raw(count).astype(np.int64)
    levels = np.zeros(d, np.int64)
    levels[there] = reader.omega(count) * (1 - 2 * negative)
    return levels
