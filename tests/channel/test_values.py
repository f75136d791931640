"""Rounding errors within their bounds, at the edges of the number formats too; what is written is
read back or refused.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.channel.values import (
    KINDS,
    LARGEST_CODE,
    Coded,
    arrive,
    bits,
    blank,
    code,
    from_bytes,
    quantise,
    restore,
    to_bytes,
)
from coterie.core.errors import InvalidInput

N = 24
LOSSY = KINDS[1:]


@jax.jit
def both_ends(v: Any) -> dict[str, tuple[Coded, Any]]:
    """Every lossy kind in one program."""
    out = {}
    for kind in LOSSY:
        coded = quantise(kind, v)
        out[kind] = coded, restore(kind, coded, v.dtype)
    return out


def vectors(scales: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    def draw(seed: int, scale: float, zeros: float) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return (rng.standard_normal(N) * scale * (rng.random(N) >= zeros)).astype(np.float32)

    return st.builds(draw, st.integers(0, 10**6), scales, st.sampled_from([0.0, 0.5, 1.0]))


@settings(max_examples=80, deadline=None)
@given(
    v=vectors(st.sampled_from([1e-45, 1e-39, 1e-37, 1e-30, 1e-6, 1e-3, 1.0, 1e3, 1e5, 1e20, 5e37]))
)
def test_errors_are_within_their_bounds(v: np.ndarray) -> None:
    seen = both_ends(v)
    exact = v.astype(np.float64)
    tiny = float(np.finfo(np.float32).tiny)
    for kind, largest in LARGEST_CODE.items():
        coded, back = seen[kind]
        scale = float(coded.scale)
        assert np.max(np.abs(np.asarray(coded.codes).astype(int))) <= largest
        assert (
            scale >= np.max(np.abs(exact)) / largest * (1 - 2**-20) or np.max(np.abs(exact)) < tiny
        )
        assert scale <= max(np.max(np.abs(exact)) / largest * (1 + 2**-7), tiny)
        assert np.max(np.abs(np.asarray(back, np.float64) - exact)) <= max(
            scale / 2 * (1 + 1e-5), tiny
        )
    half = np.asarray(seen["float16"][1], np.float64)
    assert np.all(
        np.abs(half - np.clip(exact, -65504, 65504))
        <= np.maximum(2.0**-11 * np.abs(exact), 2.0**-25)
    )
    coded, back = seen["sign"]
    assert abs(float(coded.scale) - np.mean(np.abs(exact))) <= max(
        2.0**-8 * float(coded.scale), tiny
    )
    normal = np.abs(v) >= tiny  # a processor may take smaller numbers for 0
    assert np.array_equal(np.asarray(back)[normal] < 0, v[normal] < 0)
    assert np.ptp(np.abs(np.asarray(back))) == 0


def test_zeros_stay_zeros() -> None:
    for coded, back in both_ends(np.zeros(N, np.float32)).values():
        assert not np.any(np.asarray(back))
        assert not np.any(np.asarray(coded.codes))


def test_float16_is_clipped_to_its_finite_range_and_keeps_its_small_numbers() -> None:
    v = np.zeros(N, np.float32)
    v[:4] = [1e6, -1e6, 65504 + 10, 6e-8]
    assert np.asarray(both_ends(v)["float16"][1])[:4].tolist() == [
        65504.0,
        -65504.0,
        65504.0,
        2.0**-24,
    ]


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_divergence_is_not_hidden(broken: float) -> None:
    v = np.ones(N, np.float32)
    v[3] = broken
    for coded, back in both_ends(v).values():
        assert not np.all(np.isfinite(np.asarray(back)))
        del coded


def test_codes_times_scale_is_exact_in_float32() -> None:
    """So that base + cΔ is rounded once, whether a compiler fuses the two operations or not."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        for kind in LARGEST_CODE:
            coded, back = both_ends(rng.standard_normal(N).astype(np.float32))[kind]
            assert np.array_equal(
                np.asarray(back, np.float64),
                np.asarray(coded.codes, np.float64) * float(coded.scale),
            )


def test_padding_does_not_count() -> None:
    """The mean of |v| is over the real numbers only."""
    v = jnp.asarray([4.0, -2.0, 0.0, 0.0], jnp.float32)
    assert float(quantise("sign", v, 2).scale) == 3.0
    assert float(quantise("sign", v).scale) == 1.5


def test_float64() -> None:
    with jax.enable_x64(True):
        v = np.random.default_rng(1).standard_normal(N)
        for kind, (coded, back) in both_ends(v).items():
            assert back.dtype == np.float64
            if kind in LARGEST_CODE:
                assert np.max(np.abs(np.asarray(back) - v)) <= float(coded.scale) / 2 * (1 + 1e-9)
        seen = both_ends(np.where(np.arange(N) < 2, 1e300, v))
        assert float(seen["int8"][1][0]) == 127 * float(
            jnp.finfo(jnp.bfloat16).max
        )  # clipped, as documented
        assert np.all(np.isfinite(np.asarray(seen["sign"][1])))
        small = both_ends(v * 1e-300)
        assert all(np.max(np.abs(np.asarray(back))) < 1e-36 for _, back in small.values())


def test_full_values_are_the_message_itself() -> None:
    x, base = np.float32([1.0, 1e-9, -0.0]), np.float32([1e8, 1.0, 3.0])
    assert np.asarray(arrive("full", code("full", x, base), base)).tobytes() == x.tobytes()
    assert np.array_equal(
        np.asarray(arrive("float16", code("float16", x[1:], base[1:]), base[1:])), [0.0, 0.0]
    )  # a difference


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 300),
    seed=st.integers(0, 10**6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_what_is_written_is_read_back(kind: str, n: int, seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    like = blank(kind, n, dtype)
    span = LARGEST_CODE.get(kind, 1)
    codes = (
        rng.standard_normal(n)
        if kind in ("full", "float16")
        else rng.integers(-span, span + 1, n)
        if kind != "sign"
        else rng.random(n) < 0.5
    )
    scale = (
        ()
        if isinstance(like.scale, tuple)
        else np.asarray(rng.random() * 10.0 ** rng.integers(-30, 30)).astype(like.scale.dtype)
    )
    coded = Coded(codes.astype(like.codes.dtype), scale)
    data = to_bytes(kind, coded)
    assert len(data) == -(-bits(kind, n, dtype) // 8)
    again = from_bytes(kind, data, n, dtype)
    assert again.codes.dtype == coded.codes.dtype
    assert again.codes.tobytes() == coded.codes.tobytes()
    assert np.asarray(again.scale).tobytes() == np.asarray(scale).tobytes()


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("full", bytes(11), "11 bytes"),
        ("float16", b"\x00\x7c" * 3, "not finite"),
        ("int8", b"\xc0\x7f\x00\x00\x00", "nan"),
        ("int8", b"\x80\xbf\x00\x00\x00", "not negative"),
        ("int8", b"\x80\x3f\x80\x00\x00", "-128"),
        ("int4", b"\x80\x3f\x80\x00", "-8"),
        ("int4", b"\x80\x3f\x00\x01", "zero bits"),
        ("sign", b"\x80\x3f\x10", "zero bits"),
        ("sign", b"\x80\x3f", "2 bytes"),
    ],
)
def test_what_cannot_have_been_written_is_refused(kind: str, data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        from_bytes(kind, data, 3, np.float32)
