"""How the numbers of a message are written: at full precision, or in 16, 8, 4 or 1 bits each.

| kind | per number | besides | x̂ of a difference v |
|---|---|---|---|
| full | 4 or 8 bytes, as in the run | – | x itself |
| float16 | 2 bytes | – | the nearest float16; beyond ±65504 the nearest of these two |
| int8 | a whole c, −127 … 127 | scale Δ | cΔ, c the nearest to v/Δ, Δ = max\\|v\\|/127 rounded up |
| int4 | a whole number c from −7 to 7 | scale Δ | cΔ, Δ = max\\|v\\|/7 rounded up |
| sign | 1 bit | scale Δ | ±Δ, Δ = mean\\|v\\| to the nearest |

A scale is sent as a bfloat16 (2 bytes): float32's range, eight significant bits. Both ends use the
scale as it is sent. It is rounded up, so no |v|/Δ exceeds the largest code. Codes and scales have
so few bits that cΔ is exact in float32: base + cΔ is rounded once and comes out the same in every
compiled program (a compiler may fuse a product and a sum into one operation that rounds once, or
may not).

At full precision x itself is sent, not a difference: base + (x − base) need not be x, but x is.

A message with NaN or infinities stays so inside a simulation, so that divergence is seen; on the
wire, `from_bytes` refuses scales and float16 values that are not finite. float64 messages beyond
float32's range are clipped to the largest code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.channel.bits import whole_bytes
from coterie.core.errors import InvalidInput

KINDS = ("full", "float16", "int8", "int4", "sign")
LARGEST_CODE = {"int8": 127, "int4": 7}
HELP = (
    "how numbers are written: as in the run, or as differences in 16, 8, 4 or 1 bits each (with one"
    " scale per message)"
)
BFLOAT16 = np.dtype(jnp.bfloat16)
_WIDTH = {"float16": 16, "int8": 8, "int4": 4, "sign": 1}


class Coded(NamedTuple):
    """Numbers as they are sent; `scale` is empty for kinds without one."""

    codes: Any
    scale: Any = ()


def code(kind: str, x: Any, base: Any, count: Any = None) -> Coded:
    """What is sent of x when base is known: x itself at full precision, else x − base in few
    bits.
    """
    return quantise(kind, x if kind == "full" else x - base, count)


def arrive(kind: str, coded: Coded, base: Any) -> Any:
    """x̂ from what `code` made of x."""
    return coded.codes if kind == "full" else base + restore(kind, coded, base.dtype)


def quantise(kind: str, v: Any, count: Any = None) -> Coded:
    """v in few bits.

    With `count`, only so many of the numbers are real and the others are zeros.
    """
    if kind == "full":
        return Coded(v)
    if kind == "float16":
        return Coded(
            jnp.where(jnp.isfinite(v), jnp.clip(v, -65504.0, 65504.0), v).astype(jnp.float16)
        )
    if kind == "sign":
        return Coded(v < 0, _sign_scale(jnp.abs(v), v.shape[0] if count is None else count))
    largest = LARGEST_CODE[kind]
    peak = jnp.max(jnp.abs(v))
    scale = _bfloat16(peak / largest, peak, up=True)
    step = scale.astype(v.dtype)
    codes = jnp.clip(jnp.round(v / jnp.where(step == 0, 1, step)), -largest, largest)
    return Coded(jnp.where(jnp.isnan(codes), 0, codes).astype(jnp.int8), scale)


def restore(kind: str, coded: Coded, dtype: Any) -> Any:
    """The numbers back, as both ends see them."""
    if kind in ("full", "float16"):
        return coded.codes.astype(dtype)
    scale = coded.scale.astype(dtype)
    if kind == "sign":
        return jnp.where(coded.codes, -scale, scale)
    return coded.codes.astype(dtype) * scale


def rounded(product: Any) -> Any:
    """A product that a compiler cannot fuse with a later sum, so that every program rounds it
    alike. (−∞ becomes the lowest finite number.)

    Needed wherever a product that is not exact is added to something, in `compress` too: a
    simulation compiles both ends into one program. Measured on XLA's CPU compiler:
    `lax.optimization_barrier` and `lax.reduce_precision` do not keep it from fusing, a maximum
    does.
    """
    return jnp.maximum(product, jnp.finfo(product.dtype).min)


def bits(kind: str, n: Any, dtype: Any) -> Any:
    """The bits of n numbers together; n may be traced."""
    if kind == "full":
        return n * np.dtype(dtype).itemsize * 8
    return n * _WIDTH[kind] + (0 if kind == "float16" else 16)


def blank(kind: str, n: int, dtype: Any) -> Coded:
    """n zeros (NumPy)."""
    types = {
        "full": np.dtype(dtype),
        "float16": np.dtype(np.float16),
        "int8": np.dtype(np.int8),
        "int4": np.dtype(np.int8),
        "sign": np.dtype(bool),
    }
    return Coded(
        np.zeros(n, types[kind]), () if kind in ("full", "float16") else np.zeros((), BFLOAT16)
    )


def to_bytes(kind: str, coded: Coded) -> bytes:
    """On the wire: the scale, then the numbers, little-endian; int4 and sign packed from the
    highest bit on and padded with zeros.
    """
    codes = np.asarray(coded.codes)
    if kind in ("full", "float16"):
        return _little(codes)
    packed = np.packbits(codes) if kind == "sign" else _nibbles(codes) if kind == "int4" else codes
    return _little(np.asarray(coded.scale).view(np.uint16)) + packed.tobytes()


def from_bytes(kind: str, data: bytes, n: int, dtype: Any) -> Coded:
    """The inverse of `to_bytes`."""
    expected = whole_bytes(bits(kind, n, dtype))
    if len(data) != expected:
        raise InvalidInput(f"{n} numbers have {len(data)} bytes, but {expected} are expected.")
    if kind in ("full", "float16"):
        given = np.dtype(np.float16 if kind == "float16" else dtype)
        numbers = np.frombuffer(data, given.newbyteorder("<")).astype(given)
        if kind == "float16" and not _finite(numbers):
            raise InvalidInput("a message has a float16 that is not finite.")
        return Coded(numbers)
    scale = np.frombuffer(data[:2], "<u2").astype(np.uint16).view(BFLOAT16).reshape(())
    if not _finite(scale) or np.signbit(scale):
        raise InvalidInput(
            f"a message has the scale {scale}, but a scale must be finite and not negative."
        )
    return Coded(_from_packed(kind, np.frombuffer(data[2:], np.uint8), n), scale)


def _finite(array: Any) -> bool:
    """Without a warning where a stranger sent a signalling NaN."""
    with np.errstate(invalid="ignore"):
        return bool(np.all(np.isfinite(array)))


def _from_packed(kind: str, packed: Any, n: int) -> Any:
    if kind == "sign":
        spread = np.unpackbits(packed)
        if np.any(spread[n:]):
            raise InvalidInput("a message does not end in zero bits.")
        return spread[:n].astype(bool)
    codes = packed.view(np.int8)
    if kind == "int4":
        codes = np.stack([packed >> 4, packed & 15], axis=1).reshape(-1).astype(np.int8)
        codes = np.where(codes > 7, codes - 16, codes).astype(np.int8)
        if np.any(codes[n:]):
            raise InvalidInput("a message does not end in zero bits.")
    codes = codes[:n]
    largest = LARGEST_CODE[kind]
    if np.any(codes < -largest):
        raise InvalidInput(
            f"a message has the code {-largest - 1}, but codes are from {-largest} to {largest}."
        )
    return codes.copy()


def _little(array: Any) -> bytes:
    return np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("<")).tobytes()


def _nibbles(codes: Any) -> Any:
    """Two codes of four bits in a byte, the first one high."""
    low = np.concatenate([codes, np.zeros(len(codes) % 2, codes.dtype)]).view(np.uint8) & 15
    return (low[0::2] << 4) | low[1::2]


def _sign_scale(magnitudes: Any, count: Any) -> Any:
    """The mean, without overflow for large numbers."""
    peak = jnp.max(magnitudes)
    unit = jnp.where(peak == 0, 1, peak)
    return _bfloat16(unit * (jnp.sum(magnitudes / unit) / count), peak, up=False)


def _bfloat16(scale: Any, peak: Any, up: bool) -> Any:
    return shortened(scale, peak, 16, up).astype(jnp.bfloat16)


def shortened(scale: Any, peak: Any, dropped: int, up: bool) -> Any:
    """A scale ≥ 0 as a float32 whose last `dropped` bits are zero, rounded up or to the nearest.

    It is 0 only if the largest number `peak` is 0, else at least the smallest normal number:
    processors may flush smaller ones to 0.
    """
    single = scale.astype(jnp.float32)
    pattern = lax.bitcast_convert_type(
        jnp.minimum(single, float(jnp.finfo(jnp.bfloat16).max)), jnp.uint32
    )
    most = jnp.uint32((1 << dropped) - 1)
    half = most if up else (most >> 1) + ((pattern >> dropped) & 1)
    cut = lax.bitcast_convert_type((pattern + half) & ~most, jnp.float32)
    cut = jnp.where(peak > 0, jnp.maximum(cut, float(jnp.finfo(jnp.float32).tiny)), 0)
    return jnp.where(jnp.isfinite(scale), cut, single)
