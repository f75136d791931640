"""QSGD: unbiased, with the variance, the sparsity and the length that the paper promises."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coterie.channel.quantised import QSGD, Levels
from coterie.core.errors import InvalidInput

DRAWS = 3000


@functools.cache
def draws(made: QSGD) -> Any:
    """(x̂, levels, bytes) of many messages with base 0."""

    def one(v: Any, key: Any) -> Any:
        payload, _ = made.compress(v, jnp.zeros_like(v), (), (), key, 0)
        return (
            made.expand(payload, jnp.zeros_like(v), (), key, 0)[0],
            payload,
            made.size(payload, v.shape[0]),
        )

    run = jax.jit(
        lambda v: jax.vmap(lambda key: one(v, key))(jax.random.split(jax.random.key(7), DRAWS))
    )
    return lambda v: jax.tree.map(np.asarray, run(np.float32(v)))


@pytest.mark.parametrize(("n", "s"), [(20, 1), (20, 4), (20, 30)])
def test_unbiased_with_the_variance_and_sparsity_of_the_paper(n: int, s: int) -> None:
    v = np.random.default_rng(s).standard_normal(n)
    arrived, payload, _ = draws(QSGD(bucket=n, levels=s))(v)
    v = np.float64(np.float32(v))
    step = float(payload.steps[0, 0])
    assert np.linalg.norm(v) / s * (1 - 1e-6) <= step <= np.linalg.norm(v) / s * (1 + 2.0**-17)
    share = np.abs(v) / step % 1
    spread = np.sqrt(share * (1 - share)) * step  # of one coordinate of one message
    assert np.all(np.abs(arrived.mean(axis=0) - v) < 5 * spread / np.sqrt(DRAWS) + 1e-6)
    loss = np.sum((arrived.astype(np.float64) - v) ** 2, axis=1)
    bound = min(n / s**2, np.sqrt(n) / s) * np.sum(v**2)
    assert abs(loss.mean() - np.sum(spread**2)) < 5 * loss.std() / np.sqrt(DRAWS)
    assert loss.mean() < bound
    there = np.count_nonzero(payload.levels, axis=1)
    assert there.mean() < s * (s + np.sqrt(n))


def test_buckets_have_their_own_norms() -> None:
    v = np.concatenate([np.full(10, 1e-3), np.full(10, 1e3), np.zeros(10), [5.0]])
    arrived, payload, _ = draws(QSGD(bucket=10, levels=8))(v)
    assert payload.steps.shape == (DRAWS, 4)
    assert payload.steps[0, 2] == 0
    assert np.all(
        np.abs(arrived - np.float32(v)) <= np.repeat(payload.steps[0], 10)[:31] * (1 + 1e-5)
    )
    assert np.all(arrived[:, 20:30] == 0)
    np.testing.assert_allclose(arrived[:, 30], 5.0, rtol=2 / 8)


@pytest.mark.parametrize(("n", "s"), [(256, 1), (1024, 32)])
def test_the_expected_length_is_within_the_paper_s_bounds(n: int, s: int) -> None:
    """Sparse: (3 + (3/2 + o(1)) log₂(2(s² + n)/(s(s + √n)))) s(s + √n) + 32 bits, o(1) taken as 0;
    dense, for s = √n: 2.8n + 32 bits.

    For Gaussian messages. Ours has a flag, the number of levels and the padding besides.
    """
    _, _, size = draws(QSGD(bucket=n, levels=s))(np.random.default_rng(0).standard_normal(n))
    m = s * (s + np.sqrt(n))
    sparse = (3 + 1.5 * np.log2(2 * (s**2 + n) / m)) * m + 32
    assert 8 * size.mean() < min(sparse, 2.8 * n + 32)


def test_the_shorter_code_is_taken() -> None:
    made = QSGD(bucket=300, levels=4)
    step = np.ones(1, np.float32)
    few = np.zeros(300, np.int8)
    few[[7, 250]] = [1, -4]
    many = np.random.default_rng(0).integers(-4, 5, 300).astype(np.int8)
    flags = [made.encode(Levels(step, levels), 300, np.float32)[4] >> 7 for levels in (few, many)]
    assert flags == [1, 0]
    assert len(made.encode(Levels(step, few), 300, np.float32)) < 12


def test_levels_times_step_is_exact_in_float32() -> None:
    for s in (16, 32767):
        v = np.float32(np.random.default_rng(s).standard_normal(24))
        payload, _ = jax.jit(QSGD(bucket=8, levels=s).compress)(
            v, 0 * v, (), (), jax.random.key(0), 0
        )
        exact = np.asarray(payload.levels, np.float64) * np.repeat(
            np.asarray(payload.steps, np.float64), 8
        )
        assert np.array_equal(np.float32(exact).astype(np.float64), exact)
        norms = np.linalg.norm(np.float64(v).reshape(3, 8), axis=1)
        assert np.all(
            np.asarray(payload.steps) * s >= norms * (1 - 1e-6)
        )  # rounded up: the largest coordinate keeps its size


def test_extreme_messages() -> None:
    made = QSGD(bucket=4, levels=5)
    v = np.float32([3e38, -3e38, 3e38, 1.0, 1e-37, -2e-38, 0.0, 0.0, np.nan, 1.0, 1.0, 1.0])
    payload, _ = jax.jit(made.compress)(v, jnp.zeros(12), (), (), jax.random.key(0), 0)
    arrived = np.asarray(made.expand(payload, jnp.zeros(12), (), None, 0)[0])
    assert np.all(np.isfinite(arrived[:8]))
    assert np.all(np.isnan(arrived[8:]))  # divergence is not hidden
    assert np.max(np.abs(arrived[4:8] - np.asarray(v[4:8]))) <= float(payload.steps[1])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\xc0\x7f\x00", "finite"),
        (b"\x00\x00\x80\xbf\x00", "at least 0"),
        (b"\x01\x00\x80\x3f\x00", "bits"),
        (b"\x00\x00\x80\x3f", "more than 4"),
        (b"\x00\x00\x80\x3f\x7f", "middle"),
        (b"\x00\x00\x80\x3f\xff\xff", "over 2147483647|middle"),
        (b"\x00\x00\x80\x3f\x00", "longer"),
        (b"\x00\x00\x80\x3f\x54\x00", "level 4"),
    ],
)
def test_garbage_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        QSGD(bucket=8, levels=3).decode(data, 3, np.float32)
