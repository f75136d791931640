"""What a hub does with the mean of its clients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.methods.star import beta_mix


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_a_mean_that_is_far_from_the_hubs_own_value_stays_a_number(beta: float) -> None:
    """old − new is beyond float32; with β = 1 that does not matter: the hub takes the mean."""
    old, new = jnp.float32(3e38), jnp.float32(-3e38)
    mixed = float(jax.jit(beta_mix)(old, new, beta))
    assert mixed == new if beta == 1.0 else not np.isfinite(mixed)


def test_it_is_the_weighted_mean() -> None:
    found = jax.jit(beta_mix)({"w": jnp.array([1.0, 4.0])}, {"w": jnp.array([3.0, 0.0])}, 0.25)
    np.testing.assert_allclose(found["w"], [1.5, 3.0])
