"""Look-back gradient multipliers: one number while the direction stays."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import values as numbers
from coterie.channel.base import Channel, channel
from coterie.channel.bits import whole_bytes
from coterie.core.errors import InvalidInput
from coterie.core.options import option


class Multiple(NamedTuple):
    """Either a multiplier of the look-back vector (`fresh` is false) or a whole message; the other
    one is zero.
    """

    fresh: Any
    multiplier: Any
    values: numbers.Coded


@channel("lbgm")
class LBGM(Channel):
    """LBGM: one number while a message points the same way as an earlier one (Azam et al., ICLR
    2022).

    Both ends keep the look-back vector l, the last difference that was sent whole. With
    g = x − base and ρ = ⟨g, l⟩/‖l‖²:

        1 − ⟨g, l⟩²/(‖g‖²‖l‖²) ≤ δ:  ρ is sent, x̂ = base + ρ l, so that ‖x − x̂‖² ≤ δ‖g‖²;
        else:                        g is sent, x̂ = base + Q(g) (x, if full), l ← x̂ − base.

    The first message is always whole. Look-back vectors replace a memory, so `memory` must be
    "none".

    | symbol | option |
    |---|---|
    | δ | threshold |
    | Q | values |

    Bytes: one byte 0 and ρ (4 or 8 bytes, as in the run), or one byte 1, the scale (2, where the
    kind has one) and d numbers.
    """

    threshold: float = option(
        0.2,
        "largest squared sine between a message and the look-back vector",
        symbol="δ",
        low=0,
        high=1,
    )
    values: str = option("full", numbers.HELP, symbol="Q", choices=numbers.KINDS)

    def validate(self) -> None:
        if self.memory != "none":
            raise InvalidInput(
                f'lbgm.memory is {self.memory!r}, but must be "none": the look-back vector takes'
                " its place."
            )

    def shared_init(self, d: int, dtype: Any) -> Any:
        return jnp.zeros(d, dtype)

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        g = x - base
        near, multiplier = self._look_back(g, shared)
        coded = numbers.code(self.values, x, base)
        kept = jax.tree.map(lambda part: jnp.where(near, jnp.zeros_like(part), part), coded)
        return Multiple(~near, jnp.where(near, multiplier, 0), kept), private

    def _look_back(self, g: Any, l: Any) -> tuple[Any, Any]:
        """Whether ρ is enough, and ρ.

        Both vectors are divided by their largest number first: squares of small ones would vanish.
        """
        high_g, high_l = jnp.max(jnp.abs(g)), jnp.max(jnp.abs(l))
        unit_g, unit_l = jnp.where(high_g == 0, 1, high_g), jnp.where(high_l == 0, 1, high_l)
        g, l = g / unit_g, l / unit_l
        gg, gl, ll = g @ g, g @ l, l @ l
        multiplier = gl / jnp.where(ll == 0, 1, ll) * (unit_g / unit_l)
        near = (high_l > 0) & (gl * gl >= (1 - self.threshold) * gg * ll) & jnp.isfinite(multiplier)
        return near, multiplier

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        whole = numbers.arrive(self.values, payload.values, base)
        again = base + numbers.rounded(payload.multiplier * shared)
        sent = (
            whole - base
            if self.values == "full"
            else numbers.restore(self.values, payload.values, base.dtype)
        )
        return jnp.where(payload.fresh, whole, again), jnp.where(payload.fresh, sent, shared)

    def size(self, payload: Any, d: int) -> Any:
        kind = payload.multiplier.dtype
        return jnp.where(
            payload.fresh,
            1 + whole_bytes(numbers.bits(self.values, d, kind)),
            1 + np.dtype(kind).itemsize,
        ).astype(jnp.int32)

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        if bool(payload.fresh):
            return b"\1" + numbers.to_bytes(self.values, payload.values)
        return (
            b"\0"
            + np.asarray(payload.multiplier).astype(np.dtype(dtype).newbyteorder("<")).tobytes()
        )

    def decode(self, data: bytes, d: int, dtype: Any) -> Multiple:
        kind = np.dtype(dtype)
        if data[:1] == b"\1":
            return Multiple(
                np.bool_(True),
                np.zeros((), kind),
                numbers.from_bytes(self.values, data[1:], d, dtype),
            )
        if data[:1] != b"\0":
            raise InvalidInput(
                f"a message begins with {data[:1].hex() or 'nothing'}, but must begin with a byte 0"
                " or 1."
            )
        if len(data) != 1 + kind.itemsize:
            raise InvalidInput(
                f"a message of one number has {len(data)} bytes, but must have {1 + kind.itemsize}."
            )
        multiplier = np.frombuffer(data[1:], kind.newbyteorder("<")).astype(kind).reshape(())
        if not np.isfinite(multiplier):
            raise InvalidInput(f"a message has the multiplier {multiplier}, but it must be finite.")
        return Multiple(np.bool_(False), multiplier, numbers.blank(self.values, d, dtype))
