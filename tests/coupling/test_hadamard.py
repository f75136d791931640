"""Hadamard matrices as operators, and the projection that samples their rows."""

from __future__ import annotations

from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.vector import Vector
from coterie.coupling import hadamard, projection

ORDERS = (1, 2, 4, 12, 20, 24, 64, 80, 96, 512, 640)


def written_out(n: int) -> Any:
    return reduce(np.kron, [hadamard.matrix(m).astype(int) for m in hadamard.factors(n)], np.eye(1))


def drawn(d: int, dsub: int, seed: int = 0) -> tuple[Any, Vector]:
    like = Vector({"w": jnp.zeros(d)})
    return projection.draw("srht", like, dsub, jax.random.key(seed)), like


@pytest.mark.parametrize("n", ORDERS)
def test_products_are_those_with_the_matrix_written_out(n: int) -> None:
    h = written_out(n)
    assert h.shape == (n, n)
    assert (np.abs(h) == 1).all()
    np.testing.assert_array_equal(h @ h.T, n * np.eye(n))
    x = np.random.default_rng(n).integers(-9, 10, n).astype(np.float32)  # sums are exact
    np.testing.assert_array_equal(hadamard.times(jnp.asarray(x)), h @ x)
    np.testing.assert_array_equal(hadamard.times(jnp.asarray(x), transposed=True), h.T @ x)


@settings(max_examples=200, deadline=None)
@given(d=st.integers(6, 10**8))
def test_a_vector_is_lengthened_by_a_third_at_most(d: int) -> None:
    n = hadamard.order(d)
    assert d <= n <= 4 * d / 3
    assert np.prod(hadamard.factors(n), dtype=int) == n
    assert max(hadamard.factors(n)) <= hadamard.LARGEST


@pytest.mark.parametrize("d", [1, 3, 20, 27, 50, 64])
def test_srht_is_signs_then_hadamard_then_a_sample_of_rows(d: int) -> None:
    dsub = max(1, d // 2)
    p, like = drawn(d, dsub)
    n = hadamard.order(d)
    rows = np.asarray(p.rows)
    assert len(set(rows.tolist())) == dsub, "without replacement"
    assert ((rows >= 0) & (rows < n)).all()
    assert set(np.asarray(p.signs).tolist()) <= {-1, 1}
    matrix = written_out(n)[rows][:, :d] * np.asarray(p.signs) / np.sqrt(d)
    x = np.random.default_rng(0).standard_normal(d).astype(np.float32)
    v = np.random.default_rng(1).standard_normal(dsub).astype(np.float32)
    np.testing.assert_allclose(p(like.like(x)), matrix @ x, atol=1e-5)
    np.testing.assert_allclose(p.back(v, like).flat(), matrix.T @ v, atol=1e-5)
    assert np.linalg.norm(matrix, 2) ** 2 <= n / d + 1e-9
    if n == d:
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(dsub), atol=1e-12)


def test_many_clients_at_once_are_each_alone() -> None:
    p, like = drawn(50, 7)
    x = jax.random.normal(jax.random.key(1), (2, 3, 50))
    one = lambda row: p(like.like(row))
    many = jax.jit(jax.vmap(jax.vmap(one)))(x)
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(many[i, j], one(x[i, j]), rtol=1e-6, atol=1e-6)
    seeds = jax.vmap(
        lambda s: projection.draw("srht", like, 7, jax.random.key(s))(like.like(x[0, 0]))
    )
    np.testing.assert_allclose(
        seeds(jnp.arange(3))[2], drawn(50, 7, 2)[0](like.like(x[0, 0])), rtol=1e-5, atol=1e-6
    )


def test_lengths_are_kept_in_the_mean() -> None:
    """E‖P x‖² = ‖x‖² dsub/d over seeds, even for a vector with a single number in it."""
    d, dsub = 50, 10
    like = Vector({"w": jnp.zeros(d)})
    project = lambda s, x: projection.draw("srht", like, dsub, jax.random.key(s))(like.like(x))
    draws = jax.jit(jax.vmap(project, (0, None)))
    x = np.random.default_rng(3).standard_normal(d).astype(np.float32)
    for vector in (x / np.linalg.norm(x), np.eye(d, dtype=np.float32)[7]):
        squares = np.square(np.asarray(draws(jnp.arange(400), vector))).sum(1)
        error = squares.std() / np.sqrt(400)
        assert abs(squares.mean() - dsub / d) <= 4 * error + 1e-6


def test_a_large_model_needs_a_byte_per_parameter_and_no_matrix() -> None:
    """d = 3,000,000 and dsub = 1,000: P written out would take 12 GB."""
    p, like = drawn(3_000_000, 1_000)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(p)) == 3_000_000 + 4 * 1_000
    compiled = jax.jit(lambda p, x: p.back(p(x), x)).lower(p, like).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 6 * 4 * 3_000_000
