"""Codes against the textbook, lengths against codes, and refusal of what no writer wrote."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.channel.bits import (
    LARGEST,
    BitReader,
    BitWriter,
    gamma_length,
    omega_length,
    rice_length,
    rice_parameter,
    whole_bytes,
)
from coterie.core.errors import InvalidInput

GAMMA = [
    "1",
    "010",
    "011",
    "00100",
    "00101",
    "00110",
    "00111",
    "0001000",
    "0001001",
    "0001010",
    "0001011",
    "0001100",
    "0001101",
    "0001110",
    "0001111",
    "000010000",
    "000010001",
]
OMEGA = [
    "0",
    "100",
    "110",
    "101000",
    "101010",
    "101100",
    "101110",
    "1110000",
    "1110010",
    "1110100",
    "1110110",
    "1111000",
    "1111010",
    "1111100",
    "1111110",
    "10100100000",
    "10100100010",
]
RICE_2 = ["000", "001", "010", "011", "1000", "1001", "1010", "1011", "11000", "11001"]

EDGES = sorted(
    {n for p in range(31) for n in (2**p - 1, 2**p, 2**p + 1) if 1 <= n <= LARGEST} | {LARGEST}
)
numbers = st.one_of(st.integers(1, 20), st.sampled_from(EDGES), st.integers(1, LARGEST))


def code_of(kind: str, n: int, *rest: int) -> str:
    writer = BitWriter()
    getattr(writer, kind)([n], *rest)
    return "".join(map(str, writer.bits()))


def test_codes_of_the_textbook() -> None:
    assert [code_of("gamma", n) for n in range(1, 18)] == GAMMA
    assert [code_of("omega", n) for n in range(1, 18)] == OMEGA
    assert [code_of("rice", n, 2) for n in range(10)] == RICE_2
    assert [code_of("rice", n, 0) for n in range(4)] == ["0", "10", "110", "1110"]
    assert code_of("fixed", 5, 4) == "0101"
    assert code_of("fixed", 0, 0) == ""


def test_lengths_are_those_of_the_codes() -> None:
    """At and around every power of two up to 2³¹ − 1, where a logarithm of floats goes wrong."""
    n = jnp.asarray(EDGES, jnp.int32)
    assert gamma_length(n).tolist() == [len(code_of("gamma", e)) for e in EDGES]
    assert omega_length(n).tolist() == [len(code_of("omega", e)) for e in EDGES]
    for b in (0, 3, 30):
        small = [e for e in EDGES if e >> b < 5000]
        assert rice_length(jnp.asarray(small, jnp.int32), b).tolist() == [
            len(code_of("rice", e, b)) for e in small
        ]


@settings(max_examples=150, deadline=None)
@given(values=st.lists(numbers, max_size=40), b=st.integers(0, 30), data=st.data())
def test_codes_one_after_the_other_are_read_back(
    values: list[int], b: int, data: st.DataObject
) -> None:
    small = data.draw(st.lists(st.integers(0, min(LARGEST, (1 << b) * 70)), max_size=20))
    bits = data.draw(st.lists(st.integers(0, 1), max_size=9))
    writer = BitWriter()
    writer.raw(bits)
    writer.omega(values)
    writer.rice(small, b)
    writer.fixed(values, 31)
    writer.gamma(values)
    message = writer.to_bytes()
    assert len(message) == whole_bytes(len(writer))
    reader = BitReader(message)
    assert reader.raw(len(bits)).tolist() == bits
    assert reader.omega(len(values)).tolist() == values
    assert reader.rice(len(small), b).tolist() == small
    assert reader.fixed(len(values), 31).tolist() == values
    assert reader.gamma(len(values)).tolist() == values
    reader.finish()


@settings(max_examples=100, deadline=None)
@given(
    data=st.binary(max_size=24),
    kind=st.sampled_from(["gamma", "omega", "rice"]),
    count=st.integers(1, 12),
    b=st.integers(0, 9),
)
def test_any_bytes_are_read_as_what_was_written_or_refused(
    data: bytes, kind: str, count: int, b: int
) -> None:
    rest = (b,) if kind == "rice" else ()
    reader = BitReader(data)
    try:
        values = getattr(reader, kind)(count, *rest)
        reader.finish()
    except InvalidInput:
        return
    writer = BitWriter()
    getattr(writer, kind)(values, *rest)
    assert writer.to_bytes() == data


@pytest.mark.parametrize(
    ("data", "kind", "rest"),
    [
        (b"", "omega", ()),
        (b"\xff", "omega", ()),
        (b"\xff" * 9, "omega", ()),
        (b"", "gamma", ()),
        (b"\x00", "gamma", ()),
        (b"\x00" * 9, "gamma", ()),
        (b"", "rice", (0,)),
        (b"\xff", "rice", (0,)),
        (b"\x00", "rice", (9,)),
        (b"\xff" * 4 + b"\x00" * 8, "rice", (30,)),
        (b"\x00", "fixed", (9,)),
    ],
)
def test_codes_that_are_cut_off_or_too_large_are_refused(
    data: bytes, kind: str, rest: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidInput, match=r"^a message .*\.$"):
        getattr(BitReader(data), kind)(1, *rest)


@pytest.mark.parametrize(("data", "why"), [(b"\x01", "zero bits"), (b"\x00\x00", "too many")])
def test_what_is_left_over_is_refused(data: bytes, why: str) -> None:
    reader = BitReader(data)
    reader.omega(1)
    with pytest.raises(InvalidInput, match=why):
        reader.finish()


@pytest.mark.parametrize(
    ("kind", "n"), [("omega", 0), ("gamma", 0), ("omega", LARGEST + 1), ("fixed", -1)]
)
def test_numbers_without_a_code_are_refused(kind: str, n: int) -> None:
    with pytest.raises(InvalidInput, match=str(n)):
        code_of(kind, n, *([4] if kind == "fixed" else []))


def test_the_rice_parameter_is_the_best_one() -> None:
    """Expected bits per gap, b + 1 + Σ_j (1 − k/d)^(j 2ᵇ), over all b."""
    for d in (2, 10, 1000, 10**6):
        for k in {1, 2, d // 100, d // 10, d // 2, d - 1} - {0}:
            q = [(1 - k / d) ** 2.0**b for b in range(31)]
            bits = [b + 1 + q_b / (1 - q_b) if q_b < 1 else np.inf for b, q_b in enumerate(q)]
            assert bits[rice_parameter(d, k)] <= min(bits) * (1 + 1e-9)
    assert rice_parameter(5, 5) == 0
