"""plain: every number as it is (a stand-in that is about to be replaced by the full one)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from coterie.channel.base import Channel, channel


@channel("plain")
class Plain(Channel):
    """Every number as it is."""

    @property
    def lossless(self) -> bool:
        return True

    def compress(self, x: Any, base: Any, private: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        return x, private

    def expand(self, payload: Any, base: Any, shared: Any, key: Any, t: Any) -> tuple[Any, Any]:
        return payload, shared

    def size(self, payload: Any, d: int) -> Any:
        return payload.size * jnp.dtype(payload.dtype).itemsize

    def encode(self, payload: Any, d: int, dtype: Any) -> bytes:
        return np.asarray(payload).astype(np.dtype(dtype).newbyteorder("<")).tobytes()

    def decode(self, data: bytes, d: int, dtype: Any) -> Any:
        return np.frombuffer(data, np.dtype(dtype).newbyteorder("<"), d).astype(dtype)
