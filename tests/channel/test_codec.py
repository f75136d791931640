"""What is encoded is decoded, and takes the bytes that are billed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from coterie.channel import PlainCodec, size_of
from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector

leaves = st.one_of(
    arrays(np.float32, array_shapes(min_dims=0, max_dims=3, max_side=4)),
    arrays(np.float64, array_shapes(min_dims=0, max_dims=2, max_side=4)),
    arrays(np.int32, array_shapes(min_dims=1, max_dims=2, max_side=4)),
    arrays(np.uint8, array_shapes(min_dims=1, max_dims=1, max_side=5)),
)


@settings(max_examples=60, deadline=None)
@given(
    message=st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        max_leaves=5,
    )
)
def test_decode_is_the_inverse_of_encode_to_the_bit(message: Any) -> None:
    codec = PlainCodec()
    data = codec.encode(message)
    assert len(data) == size_of(message) == codec.transmit(message)[1]
    again = codec.decode(data, message)
    assert jax.tree.structure(again) == jax.tree.structure(message)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(message), strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert (
            np.asarray(a).tobytes() == np.asarray(b).tobytes()
        )  # NaN payloads and signed zeros too


def test_values_are_little_endian_leaf_after_leaf() -> None:
    message = Vector({"a": jnp.array([1.0], jnp.float32), "b": jnp.array([2], jnp.int32)})
    assert PlainCodec().encode(message) == b"\x00\x00\x80\x3f\x02\x00\x00\x00"
    big_endian = {"a": np.array([1.0], ">f4")}
    assert PlainCodec().encode(big_endian) == b"\x00\x00\x80\x3f"


def test_nothing_takes_no_bytes() -> None:
    assert PlainCodec().encode(()) == b""
    assert PlainCodec().decode(b"", ()) == ()


@pytest.mark.parametrize("data", [b"", b"\x00" * 11, b"\x00" * 13])
def test_a_message_of_the_wrong_length_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=f"a message has {len(data)} bytes, but 12 are expected"):
        PlainCodec().decode(data, {"w": np.zeros(3, np.float32)})


def test_sizes_are_known_from_shapes_alone() -> None:
    shapes = jax.eval_shape(lambda: {"w": jnp.zeros((5, 3)), "n": jnp.zeros(2, jnp.int32)})
    assert size_of(shapes) == 5 * 3 * 4 + 2 * 4
