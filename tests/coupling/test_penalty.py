"""The pull of neighbours is the weighted sum of penalty gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.vector import Vector
from coterie.coupling import penalty


@settings(max_examples=25, deadline=None)
@given(p=st.sampled_from([1.0, 1.5, 2.0, 3.0]), seed=st.integers(0, 10**6))
def test_pull_is_the_sum_over_neighbours(p: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    own, others, weights = (
        rng.standard_normal(5),
        rng.standard_normal((4, 5)),
        rng.uniform(0, 2, 4) * rng.integers(0, 2, 4),
    )
    expected = sum(
        w * np.sign(own - m) * np.abs(own - m) ** (p - 1)
        for w, m in zip(weights, others, strict=True)
    )
    with jax.enable_x64(True):
        np.testing.assert_allclose(
            penalty.pull(jnp.asarray(own), jnp.asarray(others), jnp.asarray(weights), p),
            expected,
            atol=1e-12,
        )
        tree = penalty.pull(
            Vector({"a": own[:2], "b": own[2:]}),
            Vector({"a": others[:, :2], "b": others[:, 2:]}),
            jnp.asarray(weights),
            p,
        )
        np.testing.assert_allclose(tree.flat(), expected, atol=1e-12)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_gradient_at_zero_is_zero_and_finite(p: float) -> None:
    assert penalty.gradient(jnp.zeros(3), p).tolist() == [0, 0, 0]


def test_what_is_within_rounding_does_not_pull_and_all_else_does() -> None:
    """Messages of the length 8 from models ten times as long: 16 units in the last place of 80."""
    own = jnp.array([8.0, 0.0], jnp.float32)
    one = 16 * 2.0**-23 * 80
    others = own + jnp.array(
        [[0, one], [0, -one], [0, 1.1 * one], [0, 1e-3], [0, 1e30], [0, jnp.inf]]
    )
    weights = 2.0 ** jnp.arange(6)
    pulled = lambda used: penalty.pull(own, others, weights * used, 1.0, lambda length: 10 * length)
    assert pulled(jnp.array([1, 1, 0, 0, 0, 0])).tolist() == [0, 0]
    assert pulled(jnp.array([1, 1, 1, 1, 1, 1]))[1] == -(4 + 8 + 16 + 32)
    exact = penalty.pull(own, others[:2], weights[:2], 1.0)
    assert exact[1] == 1, "without a size there is no dead zone"
