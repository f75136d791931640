"""A few coordinates of a message: the largest differences, or some that both ends draw."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel import coordinates
from coterie.channel import values as numbers
from coterie.channel.base import MEMORIES, MEMORY_HELP, Channel, channel
from coterie.channel.bits import BitReader, BitWriter, rice_parameter, whole_bytes
from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.randomness import permute
from coterie.core.sizes import parse_bytes

ORDER_OF_TURNS = 0
"""The key of the order in which coordinates take turns: a part of the wire format, the same in all
runs.
"""


class Picked(NamedTuple):
    """Chosen coordinates (increasing; empty when both ends know them) and their numbers."""

    indices: Any
    values: numbers.Coded


def count_of(share: float, k: int | None, d: int) -> int:
    """k, or that share of d, at least 1 and at most d.

    >>> count_of(0.01, None, 250), count_of(0.01, None, 20), count_of(0.01, 7, 5)
    (2, 1, 5)
    """
    return min(max(1, round(share * d)) if k is None else k, d)


def write_picked(kind: str, how: str, picked: Picked, d: int, writer: BitWriter) -> None:
    """The numbers, then the coordinates where they are sent: one stream of bits."""
    codes = np.asarray(picked.values.codes)
    bits = numbers.bits(kind, len(codes), codes.dtype)
    writer.raw(np.unpackbits(np.frombuffer(numbers.to_bytes(kind, picked.values), np.uint8))[:bits])
    if len(picked.indices):
        coordinates.write(writer, how, picked.indices, d)


def read_numbers(kind: str, reader: BitReader, count: int, dtype: Any) -> numbers.Coded:
    """The numbers from a stream of bits."""
    packed = np.packbits(reader.raw(numbers.bits(kind, count, dtype)))
    return numbers.from_bytes(kind, packed.tobytes(), count, dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sparse(Channel):
    """The options of every channel that sends k numbers."""

    memory: str = option("errors", MEMORY_HELP, choices=MEMORIES)
    share: float = option(
        0.01, "numbers per message, as a share of d", symbol="k/d", above=0, high=1, static=True
    )
    k: int | None = option(
        None, "numbers per message (at most d); nothing: share · d, at least 1", symbol="k", low=1
    )
    values: str = option("full", numbers.HELP, choices=numbers.KINDS)
    down_share: float | None = option(
        None,
        "the share of what a hub sends (with `down`); nothing: as going up",
        above=0,
        high=1,
        static=True,
    )

    def unused(self) -> dict[str, str]:
        return {} if self.k is None else {"share": f"{self.name}.k is {self.k}"}

    def downward(self) -> Channel:
        return self if self.down_share is None else self.replace(share=self.down_share, k=None)

    def count(self, d: int) -> int:
        """k for messages of length d."""
        return count_of(self.share, self.k, d)


@channel("top-k")
class TopK(Sparse):
    """The k coordinates with the largest |x − base|.

    x̂ᵢ = xᵢ (or baseᵢ + Q(x − base)ᵢ with lossy `values`) for the k chosen i, x̂ᵢ = baseᵢ
    elsewhere, so with full values ‖x − x̂‖² ≤ (1 − k/d)‖x − base‖². Biased: without memory small
    coordinates are never sent (Stich, Cordonnier, Jaggi: Sparsified SGD with memory, NeurIPS 2018),
    hence `memory = "errors"` by default.

    | symbol | option |
    |---|---|
    | k | k, or share = k/d |
    | Q | values |

    Bytes: the scale (2, where the kind has one), k numbers in the order of their coordinates, then
    the k coordinates as `indices` says; one stream of bits, padded with zeros. k is known to both
    ends and not sent. With k = d no coordinates are sent.
    """

    indices: str = option("gaps", coordinates.HELP, choices=coordinates.KINDS)

    @property
    def lossless(self) -> bool:
        return self.values == "full" and self.k is None and self.share == 1

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        d = x.shape[0]
        k = self.count(d)
        if k == d:
            return Picked((), numbers.code(self.values, x, base)), private
        chosen = jnp.sort(lax.top_k(jnp.abs(x - base), k)[1].astype(jnp.int32))
        return Picked(chosen, numbers.code(self.values, x[chosen], base[chosen])), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        if self.count(base.shape[0]) == base.shape[0]:
            return numbers.arrive(self.values, payload.values, base), shared
        chosen = payload.indices
        arrived = numbers.arrive(self.values, payload.values, base[chosen])
        return base.at[chosen].set(arrived, indices_are_sorted=True, unique_indices=True), shared

    def size(self, payload: Any, d: int) -> Any:
        k = self.count(d)
        bits = numbers.bits(self.values, k, payload.values.codes.dtype)
        if k < d:
            bits = bits + coordinates.bits(
                self.indices, payload.indices, d, k, rice_parameter(d, k)
            )
        return whole_bytes(bits)

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        if self.count(d) == d:
            return numbers.to_bytes(self.values, payload.values)
        writer = BitWriter()
        write_picked(self.values, self.indices, payload, d, writer)
        return writer.to_bytes()

    def decode(self, data: bytes, d: int, dtype: Any) -> Picked:
        k = self.count(d)
        if k == d:
            return Picked((), numbers.from_bytes(self.values, data, d, dtype))
        reader = BitReader(data)
        coded = read_numbers(self.values, reader, k, dtype)
        chosen = coordinates.read(reader, self.indices, d, k)
        reader.finish()
        return Picked(chosen, coded)


@channel("delta")
class Delta(TopK):
    """The delta channel: what changed since the last messages, a few coordinates at a time.

    Both ends of a link keep the same public copy h of the stream of messages. A message sends
    C(x − h), k of the differences, and both ends move their copy by what was sent:

        h ← h + C(x − h) = x̂

    What is cut off stays in x − h and is sent later, so nothing is lost and no error is added up;
    the copies follow the messages, and methods mix the copies. After CHOCO-SGD (Koloskova, Stich,
    Jaggi: Decentralized stochastic optimization and gossip algorithms with compressed
    communication, ICML 2019).

    Which k (`pick`):

    - "largest": the k largest differences, as `top-k`. A message brings its coordinates along.
    - "cyclic": all coordinates in turn, in an order that is drawn once and for all; round t sends
      entries tk, …, tk + k − 1 of it, counted anew after n = ⌈d/k⌉ rounds. The same for all clients
      and both directions, so no coordinates are sent, and what is mixed is equally old: the copies
      of a coordinate are of the same round at all clients. Every coordinate is sent at least once
      in n rounds, so n should be well below the number of rounds. Meant for FedU, with `values =
      "int4"`: its accuracy for far fewer bytes than with the largest differences
      (experiments/README.md; on the wire messages this small are mostly envelope, see
      bench/wire.py). dFedU loses more than with those, and a star learns n times more
      slowly. What is old must not be done again in every round until it is renewed: in a star only
      the round's coordinates of a client's update count (none are kept for later), and a peer
      compares its neighbours' copies with its own model instead of with its own copy, which would
      be as old as theirs.

    Otherwise the compressor of `top-k` with other defaults: both directions (`down`), 8-bit
    differences, gaps between coordinates.

    What neighbours on a graph and a hub say always goes over public copies. Only what a client
    sends to the hub of a star, an update and not a model, has a choice: with `memory = "errors"`,
    the default, what is cut off is added to its next update; with "copies" both ends keep a copy of
    its updates, which is worse where few numbers are sent: an update that has passed lives on in
    its copy (experiments/README.md). A hub's model that moves fast is steered by what it was rounds
    ago and can swing out of control; a smaller step (`beta`, or the method's own) or `down = false`
    is the remedy.

    | symbol | option |
    |---|---|
    | k | k, or share = k/d |
    | Q | values |

    Bytes: as `top-k`; with share = 0.01 a coordinate takes about 8 + 8 bits, and a message 2 bytes
    more for the scale. By turns: the scale, then k numbers in the order of their turns, 4 bits each
    with "int4".
    """

    down: bool = option(True, "compress what the hub sends, too")
    values: str = option("int8", numbers.HELP, choices=numbers.KINDS)
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"pick": {"turns": "cyclic"}}

    pick: str = option(
        "largest",
        "which coordinates are sent: the largest differences, or all in turn, the same for all",
        choices=("largest", "cyclic"),
    )

    budget: str | None = option(
        None,
        "bytes on the wire that a client may send and receive in the whole run, envelopes included,"
        ' e.g. "20kB": share, bits and exchange_every are then chosen (engine/budget.py)',
    )
    over: str = option(
        "zenoh",
        "what carries messages, for `budget`; payload: no envelopes are counted",
        choices=("zenoh", "flower", "payload"),
    )

    def validate(self) -> None:
        super().validate()
        if self.budget is not None:
            parse_bytes(self.budget)

    def unused(self) -> dict[str, str]:
        mine = super().unused()
        if self.budget is None:
            return {**mine, "over": f"{self.name}.budget is nothing"}
        reason = f"{self.name}.budget is {self.budget!r}, which chooses it"
        chosen = ("share", "k", "values", "pick", "down", "down_share")
        return {**mine, **dict.fromkeys(chosen, reason)}

    @property
    def cyclic(self) -> bool:
        return self.pick == "cyclic"

    def in_cycle(self, t: Any, d: int) -> Any:
        """The coordinates of round t, in the order in which they are sent; distinct."""
        k = self.count(d)
        first = (jnp.asarray(t, jnp.int32) % -(-d // k)) * k
        return permute(jax.random.key(ORDER_OF_TURNS), (first + jnp.arange(k)) % d, d)

    def _cyclic(self, d: int) -> bool:
        return self.cyclic and self.count(d) < d

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        if not self._cyclic(x.shape[0]):
            return super().compress(x, base, private, shared, key, t)
        chosen = self.in_cycle(t, x.shape[0])
        return Picked((), numbers.code(self.values, x[chosen], base[chosen])), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        if not self._cyclic(base.shape[0]):
            return super().expand(payload, base, shared, key, t)
        chosen = self.in_cycle(t, base.shape[0])
        return (
            base.at[chosen].set(
                numbers.arrive(self.values, payload.values, base[chosen]), unique_indices=True
            ),
            shared,
        )

    def size(self, payload: Any, d: int) -> Any:
        if not self._cyclic(d):
            return super().size(payload, d)
        return whole_bytes(numbers.bits(self.values, self.count(d), payload.values.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return (
            numbers.to_bytes(self.values, payload.values)
            if self._cyclic(d)
            else super().encode(payload, d, dtype)
        )

    def decode(self, data: bytes, d: int, dtype: Any) -> Picked:
        if not self._cyclic(d):
            return super().decode(data, d, dtype)
        return Picked((), numbers.from_bytes(self.values, data, self.count(d), dtype))


@channel("random-k")
class RandomK(Sparse):
    """k coordinates drawn afresh for every message, the same at both ends.

    x̂ᵢ = xᵢ (or baseᵢ + Q(x − base)ᵢ with lossy `values`) for the k drawn i, x̂ᵢ = baseᵢ elsewhere:
    E‖x − x̂‖² = (1 − k/d)‖x − base‖² with full values. With `scaled` instead
    x̂ᵢ = baseᵢ + (d/k)(x − base)ᵢ, so that E x̂ = x (Wangni et al., NeurIPS 2018); this is no
    contraction, so it is refused together with a memory.

    | symbol | option |
    |---|---|
    | k | k, or share = k/d |
    | Q | values |

    Bytes: the scale (2, where the kind has one), then k numbers in the order of their coordinates.
    Coordinates come from the key: none are sent.
    """

    scaled: bool = option(
        False, "multiply by d/k what is sent, which makes x̂ unbiased; only without memory"
    )

    def contracts(self) -> bool:
        return not self.scaled

    @property
    def lossless(self) -> bool:
        return self.values == "full" and self.k is None and self.share == 1 and not self.scaled

    def validate(self) -> None:
        if self.scaled and self.memory != "none":
            raise InvalidInput(
                f'{self.name}.scaled is true, but then {self.name}.memory must be "none", not'
                f" {self.memory!r}."
            )

    def draw(self, key: Any, d: int) -> Any:
        """The coordinates of a message, increasing."""
        k = self.count(d)
        return (
            jnp.arange(d, dtype=jnp.int32) if k == d else jnp.sort(permute(key, jnp.arange(k), d))
        )

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        chosen = self.draw(key, x.shape[0])
        if self.scaled:
            grown = x.shape[0] / self.count(x.shape[0])
            return (
                numbers.quantise(self.values, numbers.rounded((x - base)[chosen] * grown)),
                private,
            )
        return numbers.code(self.values, x[chosen], base[chosen]), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        chosen = self.draw(key, base.shape[0])
        if self.scaled:
            arrived = base[chosen] + numbers.restore(self.values, payload, base.dtype)
        else:
            arrived = numbers.arrive(self.values, payload, base[chosen])
        return base.at[chosen].set(arrived, indices_are_sorted=True, unique_indices=True), shared

    def size(self, payload: Any, d: int) -> Any:
        return whole_bytes(numbers.bits(self.values, self.count(d), payload.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return numbers.to_bytes(self.values, payload)

    def decode(self, data: bytes, d: int, dtype: Any) -> numbers.Coded:
        return numbers.from_bytes(self.values, data, self.count(d), dtype)
