"""Deep gradient compression: top-k with its own memory."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel import coordinates
from coterie.channel import values as numbers
from coterie.channel.base import MEMORIES, MEMORY_HELP, channel
from coterie.channel.bits import BitReader, BitWriter, rice_parameter, whole_bytes, width_of
from coterie.channel.sparse import Picked, Sparse, count_of, read_numbers, write_picked
from coterie.core.errors import InvalidInput
from coterie.core.options import option

START = 0.25  # the share of the first round, as in the paper


class Accumulated(NamedTuple):
    """What the sender keeps: the momentum u and the part v that was not sent yet."""

    u: Any
    v: Any


class Staged(NamedTuple):
    """Coordinates and numbers, of which as many are real as the stage of the warm-up says; the
    others are d and 0.
    """

    stage: Any
    indices: Any
    values: numbers.Coded


@channel("dgc")
class DGC(Sparse):
    """Deep gradient compression: top-k of an accumulated momentum (Lin et al., ICLR 2018).

    With g = x − base, on the sender:

        g ← g · min(1, clip/‖g‖),  u ← m u + g,  v ← v + u  (clip, momentum correction, sum)
        M = the k largest |v|;  x̂ = base + M ⊙ Q(v)
        u ← (1 − M) ⊙ u,  v ← v − M ⊙ Q(v)                       (momentum factor masking)

    With full values v is 0 where it was sent, as in the paper; with lossy ones, what rounding cut
    off stays. Warm-up: the share falls exponentially from 0.25 in round 0 to `share` in round
    `warmup`. u and v are the memory of this channel, so `memory` must be "none".

    | symbol | option |
    |---|---|
    | m | momentum |
    | k | k, or share = k/d, after the warm-up |
    | Q | values |
    | threshold of clipping | clip |

    Bytes: the stage min(t, warmup) in ⌈log₂(warmup + 1)⌉ bits, from which k follows; then as
    `top-k`: the scale (2 bytes, where the kind has one), k numbers, k coordinates; one stream of
    bits, padded with zeros.
    """

    accumulates: ClassVar[bool] = True

    memory: str = option("none", MEMORY_HELP, choices=MEMORIES)
    share: float = option(
        0.001,
        "numbers per message after the warm-up, as a share of d",
        symbol="k/d",
        above=0,
        high=1,
        static=True,
    )
    indices: str = option("gaps", coordinates.HELP, choices=coordinates.KINDS)
    momentum: float = option(0.9, "factor of the momentum correction", symbol="m", low=0, high=1)
    clip: float | None = option(
        None, "largest norm of what is new in a message; nothing: any", above=0
    )
    warmup: int = option(
        4, "rounds until the share has fallen from 0.25 to `share`", low=0, high=10_000
    )

    def validate(self) -> None:
        if self.memory != "none":
            raise InvalidInput(
                f'dgc.memory is {self.memory!r}, but must be "none": dgc has a memory of its own.'
            )

    def counts(self, d: int) -> list[int]:
        """k in the rounds 0 … warmup and after; never below k after the warm-up."""
        last = self.count(d)
        share = last / d
        if share >= START:
            return [last] * (self.warmup + 1)
        return [
            max(last, count_of(START * (share / START) ** (t / self.warmup), None, d))
            for t in range(self.warmup)
        ] + [last]

    def private_init(self, d: int, dtype: Any) -> Accumulated:
        return Accumulated(jnp.zeros(d, dtype), jnp.zeros(d, dtype))

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        d = x.shape[0]
        counts = self.counts(d)
        u = numbers.rounded(
            jnp.asarray(self.momentum, private.u.dtype) * private.u
        ) + self._clipped(x - base)
        v = private.v + u
        stage = jnp.clip(jnp.asarray(t, jnp.int32), 0, self.warmup)
        count = jnp.asarray(counts, jnp.int32)[stage]
        order = lax.top_k(jnp.abs(v), max(counts))[1].astype(jnp.int32)
        chosen = jnp.sort(jnp.where(jnp.arange(max(counts)) < count, order, d))
        coded = numbers.quantise(self.values, v.at[chosen].get(mode="fill", fill_value=0), count)
        sent = self._real(numbers.restore(self.values, coded, v.dtype), count)
        left = v.at[chosen].add(-sent, mode="drop", indices_are_sorted=True)
        return Staged(stage, chosen, coded), Accumulated(
            u.at[chosen].set(0, mode="drop", indices_are_sorted=True), left
        )

    def _clipped(self, g: Any) -> Any:
        if self.clip is None:
            return g
        norm = jnp.linalg.norm(g)
        return numbers.rounded(
            g * jnp.minimum(1, self.clip / jnp.where(norm == 0, 1, norm)).astype(g.dtype)
        )

    @staticmethod
    def _real(numbers_: Any, count: Any) -> Any:
        return jnp.where(jnp.arange(numbers_.shape[0]) < count, numbers_, 0)

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        """Needs no t: the stage is in the payload."""
        sent = numbers.restore(self.values, payload.values, base.dtype)
        return base.at[payload.indices].add(sent, mode="drop", indices_are_sorted=True), shared

    def size(self, payload: Any, d: int) -> Any:
        counts = self.counts(d)
        count = jnp.asarray(counts, jnp.int32)[payload.stage]
        parameter = jnp.asarray([rice_parameter(d, k) for k in counts], jnp.int32)[payload.stage]
        bits = width_of(self.warmup + 1) + numbers.bits(
            self.values, count, payload.values.codes.dtype
        )
        return whole_bytes(
            bits + coordinates.bits(self.indices, payload.indices, d, count, parameter)
        )

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        stage = int(payload.stage)
        count = self.counts(d)[stage]
        writer = BitWriter()
        writer.fixed([stage], width_of(self.warmup + 1))
        real = numbers.Coded(np.asarray(payload.values.codes)[:count], payload.values.scale)
        write_picked(
            self.values, self.indices, Picked(np.asarray(payload.indices)[:count], real), d, writer
        )
        return writer.to_bytes()

    def decode(self, data: bytes, d: int, dtype: Any) -> Staged:
        counts, reader = self.counts(d), BitReader(data)
        stage = int(reader.fixed(1, width_of(self.warmup + 1))[0])
        if stage > self.warmup:
            raise InvalidInput(
                f"a message has the stage {stage} of the warm-up, but must have one from 0 to"
                f" {self.warmup}."
            )
        coded = read_numbers(self.values, reader, counts[stage], dtype)
        chosen = coordinates.read(reader, self.indices, d, counts[stage])
        reader.finish()
        padding = max(counts) - counts[stage]
        codes = np.concatenate([coded.codes, np.zeros(padding, coded.codes.dtype)])
        return Staged(
            np.int32(stage),
            np.concatenate([chosen, np.full(padding, d, np.int32)]),
            numbers.Coded(codes, coded.scale),
        )
