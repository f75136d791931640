"""A model behaves like a point of R^d."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from coterie.core.vector import Vector, all_finite, squared_norm

numbers = st.floats(-100, 100, width=32)
vectors = st.builds(
    lambda a, b, c: Vector({"a": jnp.asarray(a), "b": [jnp.asarray(b), jnp.asarray(c)]}),
    *(arrays(np.float32, s, elements=numbers) for s in ((2, 3), (4,), ())),
)


@settings(max_examples=40, deadline=None)
@given(u=vectors, v=vectors, a=numbers)
def test_arithmetic_is_that_of_the_flat_arrays(u: Vector, v: Vector, a: float) -> None:
    for got, expected in (
        (u + v, u.flat() + v.flat()),
        (u - v, u.flat() - v.flat()),
        (u * v, u.flat() * v.flat()),
        (a * u, jnp.float32(a) * u.flat()),
        (u * a, u.flat() * jnp.float32(a)),
        (u + a, u.flat() + jnp.float32(a)),
        (-u, -u.flat()),
        (u / 4.0, u.flat() / 4),
        (np.float32(2) * u, 2 * u.flat()),
    ):
        assert isinstance(got, Vector)
        np.testing.assert_array_equal(got.flat(), expected)
    tiny = float(
        np.finfo(np.float32).tiny
    )  # a square below it may be flushed to zero: float32 has no normal number there
    np.testing.assert_allclose(
        u.squared_norm(),
        np.sum(np.square(np.asarray(u.flat(), np.float64))),
        rtol=1e-5,
        atol=11 * tiny,
    )
    np.testing.assert_allclose(squared_norm(u), squared_norm(u.flat()), rtol=1e-5, atol=11 * tiny)


@settings(max_examples=25, deadline=None)
@given(u=vectors)
def test_like_is_the_inverse_of_flat(u: Vector) -> None:
    again = u.like(u.flat())
    assert jax.tree.structure(again) == jax.tree.structure(u)
    for a, b in zip(again.leaves, u.leaves, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert u.size == 11 == len(u.flat())


def test_a_vector_passes_through_jit_vmap_and_grad() -> None:
    v = Vector({"w": jnp.arange(6.0).reshape(3, 2), "b": jnp.ones(3)})
    assert isinstance(jax.jit(lambda x: 2 * x)(v), Vector)
    np.testing.assert_array_equal(jax.vmap(lambda x: x.squared_norm())(v), [2.0, 14.0, 42.0])
    np.testing.assert_array_equal(jax.grad(lambda x: 0.5 * x.squared_norm())(v).flat(), v.flat())


def test_scalars_do_not_change_the_precision() -> None:
    v = Vector({"w": jnp.ones(3, jnp.float32)})
    assert (np.float64(0.5) * v).dtype == jnp.float32
    assert (v - 1).dtype == jnp.float32


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_all_finite_sees_every_leaf(bad: float) -> None:
    tree: dict[str, Any] = {
        "a": jnp.ones(3),
        "n": jnp.arange(3),
        "b": Vector({"w": jnp.zeros((2, 2))}),
    }
    assert bool(all_finite(tree))
    assert not bool(all_finite({**tree, "c": jnp.array([1.0, bad])}))
    assert bool(all_finite(())), "nothing is finite"
