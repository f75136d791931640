"""Every coordinate of a message, as it is or in fewer bits."""

from __future__ import annotations

from typing import Any

from coterie.channel import values as numbers
from coterie.channel.base import Channel, channel
from coterie.channel.bits import whole_bytes
from coterie.channel.values import Coded
from coterie.core.options import option


@channel("plain")
class Plain(Channel):
    """Every coordinate, as it is or rounded to 16, 8, 4 or 1 bits.

    x̂ = x with `values = "full"`, else x̂ = base + Q(x − base) with Q to the nearest (see
    coterie.channel.values). With "sign", Q(v) = mean|v| · sign(v) (signSGD with a scale, Bernstein
    et al., ICML 2018), which can fail to converge unless `memory` is "errors" or "copies"
    (Karimireddy et al., ICML 2019).

    | symbol | option |
    |---|---|
    | Q | values |

    Bytes: the scale (2, where the kind has one), then d numbers in order.
    """

    values: str = option("full", numbers.HELP, symbol="Q", choices=numbers.KINDS)

    @property
    def lossless(self) -> bool:
        return self.values == "full"

    def compress(
        self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any
    ) -> tuple[Any, Any]:
        return numbers.code(self.values, x, base), private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        return numbers.arrive(self.values, payload, base), shared

    def size(self, payload: Any, d: int) -> Any:
        return whole_bytes(numbers.bits(self.values, d, payload.codes.dtype))

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return numbers.to_bytes(self.values, payload)

    def decode(self, data: bytes, d: int, dtype: Any) -> Coded:
        return numbers.from_bytes(self.values, data, d, dtype)
