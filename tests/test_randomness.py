"""The keyed permutation is one, cohorts are uniform and without replacement, streams are
independent of the method.
"""

from __future__ import annotations

from functools import partial
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.core.randomness import Role, cohort, per_client, permute, role_key

MOST = 5000
_padded = jax.jit(lambda seed, n: permute(jax.random.key(seed), jnp.arange(MOST), n))
"""n is traced: one program for all sizes; positions at or above n are padding."""


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, MOST), seed=st.integers(0, 2**31 - 1))
def test_permute_is_a_bijection_for_any_size_and_key(n: int, seed: int) -> None:
    image = np.asarray(_padded(seed, n))[:n]
    np.testing.assert_array_equal(np.sort(image), np.arange(n))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 99, 100, 101, 4096, 4999, 5000])
def test_traced_and_known_sizes_give_the_same_permutation(n: int) -> None:
    known = np.asarray(jax.jit(lambda: permute(jax.random.key(7), jnp.arange(n), n))())
    np.testing.assert_array_equal(known, np.asarray(_padded(7, n))[:n])
    assert known.dtype == np.int32


@pytest.mark.parametrize("n", [65_537, 1_000_003, 2**31 - 1])
def test_permute_stays_inside_and_one_to_one_for_large_sizes(n: int) -> None:
    image = np.asarray(permute(jax.random.key(1), jnp.arange(20_000), n)).astype(np.int64)
    assert image.min() >= 0
    assert image.max() < n
    assert len(np.unique(image)) == 20_000
    # Spread over the whole range, not bunched: Kolmogorov–Smirnov against the uniform law.
    assert stats.kstest(image / n, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_permutations_of_few_things_are_equally_likely(n: int) -> None:
    keys = jax.random.split(jax.random.key(0), 6000)
    images = np.asarray(jax.vmap(lambda k: permute(k, jnp.arange(n), n))(keys))
    every = list(permutations(range(n)))
    counts = [int((images == np.array(p)).all(1).sum()) for p in every]
    assert sum(counts) == 6000
    assert stats.chisquare(counts).pvalue > 1e-4, counts


@pytest.mark.parametrize(("n", "size"), [(7, 3), (20, 2), (20, 10), (50, 5), (6, 6)])
def test_cohorts_are_without_replacement_sorted_and_uniform(n: int, size: int) -> None:
    rounds = 3000
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda t: cohort(role_key(3, Role.COHORT), t, n, size)))(
            jnp.arange(rounds)
        )
    )
    assert drawn.shape == (rounds, size)
    assert (np.diff(drawn, axis=1) > 0).all()
    assert drawn.min() >= 0
    assert drawn.max() < n
    if size == n:
        return
    counts = np.bincount(drawn.reshape(-1), minlength=n)
    # Without replacement each client's count is binomial(rounds, S/N) with negative correlation:
    # Σ(O−E)²/E · (N−1)/(N−S) is chi-square with N−1.
    expected = rounds * size / n
    statistic = ((counts - expected) ** 2 / expected).sum() * (n - 1) / (n - size)
    assert stats.chi2.sf(statistic, n - 1) > 1e-4
    pairs = np.zeros((n, n))
    for row in drawn:
        pairs[np.ix_(row, row)] += 1
    together = pairs[np.triu_indices(n, 1)]
    each = rounds * size * (size - 1) / (n * (n - 1))
    assert np.abs(together - each).max() < 6 * np.sqrt(each), (
        "some pairs are sampled together too often or too seldom"
    )


def test_cohorts_differ_from_round_to_round_and_from_seed_to_seed() -> None:
    draw = jax.jit(lambda seed, t: cohort(role_key(seed, Role.COHORT), t, 30, 5))
    assert len({tuple(draw(seed, t).tolist()) for seed in range(5) for t in range(10)}) == 50


def test_roles_rounds_and_clients_have_streams_of_their_own() -> None:
    keys = {
        tuple(np.asarray(jax.random.key_data(per_client(role_key(seed, role), t, k))).tolist())
        for seed in range(2)
        for role in Role
        for t in range(3)
        for k in range(3)
    }
    assert len(keys) == 2 * len(Role) * 9


def test_the_numbers_of_the_roles_are_fixed_for_ever() -> None:
    names = (
        "INIT",
        "COHORT",
        "BATCH",
        "METHOD",
        "PROJECTION",
        "EVALUATION",
        "UPLINK",
        "DOWNLINK",
        "NEWCOMERS",
        "ATTACK",
        "KIN",
    )
    assert [(r.name, int(r)) for r in Role] == [(name, i) for i, name in enumerate(names)]


def test_seeds_may_be_traced() -> None:
    mapped = jax.vmap(partial(role_key, role=Role.BATCH))(jnp.arange(3))
    for seed in range(3):
        np.testing.assert_array_equal(
            jax.random.key_data(mapped)[seed], jax.random.key_data(role_key(seed, Role.BATCH))
        )
