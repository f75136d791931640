"""Splitting rules: every sample at most once, labels and sizes as promised, nothing global
touched.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput
from coterie.data import get_source, partition, pfedme_draw
from coterie.data.federation import cut

MNIST_COUNTS = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
"""Samples per digit, training and test file together."""


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sizes_of(owner: np.ndarray, clients: int) -> np.ndarray:
    return np.bincount(owner[owner >= 0], minlength=clients)


labels = st.integers(2, 6).flatmap(
    lambda c: st.lists(st.integers(0, c - 1), min_size=c * 12, max_size=160).map(np.array)
)
seeds = st.integers(0, 2**31)


@given(
    st.integers(0, 5000), st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40), st.integers(0, 9)
)
def test_apportion_is_exact(total: int, weights: list[float], minimum: int) -> None:
    if len(weights) * minimum > total:
        with pytest.raises(InvalidInput, match="there are only"):
            partition.apportion(total, np.array(weights), minimum)
        return
    sizes = partition.apportion(total, np.array(weights), minimum)
    assert sizes.sum() == total
    assert sizes.min() >= minimum
    if minimum == 0:
        share = total * np.array(weights) / np.sum(weights)
        assert np.all(np.abs(sizes - share) < 1 + 1e-6)


@given(st.integers(1, 400), st.integers(1, 20), st.sampled_from(partition.SIZES), seeds)
def test_iid_gives_every_sample_to_one_client(
    samples: int, clients: int, kind: str, seed: int
) -> None:
    if samples < clients:
        return
    weights = partition.size_weights(kind, clients, rng(seed))
    owner = partition.iid(samples, weights, rng(seed))
    assert owner.min() >= 0
    np.testing.assert_array_equal(sizes_of(owner, clients), partition.apportion(samples, weights))


@given(labels, st.integers(1, 8), st.integers(1, 6), st.sampled_from(partition.SIZES), seeds)
def test_labels_per_client_keeps_its_promise(
    y: np.ndarray, clients: int, k: int, kind: str, seed: int
) -> None:
    classes, counts = np.unique(y, return_counts=True)
    weights = partition.size_weights(kind, clients, rng(seed))
    if k > len(classes):
        with pytest.raises(
            InvalidInput,
            match=(
                f"{k} labels per client are asked for, but the data has only {len(classes)} labels"
            ),
        ):
            partition.labels_per_client(y, clients, k, k, rng(seed), weights=weights)
        return
    if counts.min() < clients:
        return
    owner = partition.labels_per_client(y, clients, k, k, rng(seed), weights=weights)
    assert owner.shape == y.shape
    assert owner.max() < clients
    for client in range(clients):
        assert len(np.unique(y[owner == client])) == k
    held = [len(np.unique(owner[(y == c) & (owner >= 0)])) for c in classes]
    assert sum(held) == clients * k
    assert max(held) - min(held) <= 1  # dealt in turn
    for c, n in zip(classes, held, strict=True):
        assert n == 0 or np.all(
            owner[y == c] >= 0
        )  # a label that somebody holds is given out whole


@settings(max_examples=60)
@given(labels, st.integers(1, 12), st.floats(1e-8, 1e4), st.integers(1, 5), seeds)
def test_dirichlet_always_ends_with_the_minimum(
    y: np.ndarray, clients: int, alpha: float, minimum: int, seed: int
) -> None:
    if clients * minimum > len(y):
        with pytest.raises(InvalidInput, match=f"the data has only {len(y)} samples"):
            partition.dirichlet(y, clients, alpha, rng(seed), minimum=minimum)
        return
    owner = partition.dirichlet(y, clients, alpha, rng(seed), minimum=minimum)
    assert owner.min() >= 0
    assert sizes_of(owner, clients).min() >= minimum
    assert sizes_of(owner, clients).sum() == len(y)


def test_dirichlet_when_everybody_needs_exactly_the_minimum() -> None:
    y = np.repeat(np.arange(4), 10)
    owner = partition.dirichlet(y, 8, 1e-6, rng(), minimum=5)
    assert sizes_of(owner, 8).tolist() == [5] * 8


def test_dirichlet_alpha_orders_heterogeneity() -> None:
    y = np.repeat(np.arange(10), 1000)
    spread = []
    for alpha in (0.01, 0.1, 10.0):
        owner = partition.dirichlet(y, 20, alpha, rng(1), minimum=1)
        counts = np.zeros((20, 10))
        np.add.at(counts, (owner, y), 1)
        spread.append(float(((counts / counts.sum(1, keepdims=True)) ** 2).sum(1).mean()))
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 0.13  # ten labels alike would be 0.1


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan")])
def test_dirichlet_refuses_alpha(alpha: float) -> None:
    with pytest.raises(InvalidInput, match=r"alpha is .* but must be a number > 0"):
        partition.dirichlet(np.array([0, 1]), 1, alpha, rng())
    with pytest.raises(InvalidInput, match=r"mnist\.alpha is .* but must be a number > 0"):
        get_source("mnist", {"alpha": alpha})


def test_more_clients_than_samples() -> None:
    y = np.array([0, 1, 0, 1])
    with pytest.raises(InvalidInput, match=r"5 clients.* but .* only 4 samples"):
        partition.dirichlet(y, 5, 1.0, rng())
    with pytest.raises(InvalidInput, match=r"5 clients.* but .* only 4 samples"):
        partition.iid(4, np.ones(5), rng())
    with pytest.raises(InvalidInput, match=r"5 clients.* but .* only 4 samples"):
        partition.labels_per_client(y, 5, 1, 1, rng())


@given(st.integers(2, 60), st.integers(1, 30), seeds)
def test_thin_keeps_labels_and_mean(per_label: int, mean: int, seed: int) -> None:
    y = np.repeat(np.arange(4), per_label * 4)
    owner = partition.labels_per_client(y, 8, 2, 2, rng(seed), weights=np.ones(8))
    available = len(y) // 8
    if mean > available:
        with pytest.raises(InvalidInput, match=f"{mean} samples per client are asked for"):
            partition.thin(owner, y, mean, rng(seed))
        return
    kept = partition.thin(owner, y, mean, rng(seed))
    assert np.all((kept == owner) | (kept == -1))
    sizes = sizes_of(kept, 8)
    assert np.all(np.abs(sizes - np.maximum(mean, 2)) <= 1)
    for k in range(8):
        assert set(y[kept == k]) == set(y[owner == k])


def test_size_rules() -> None:
    even = partition.size_weights("equal", 1000, rng())
    normal = partition.size_weights("log-normal", 20_000, rng(), spread=0.7)
    pareto = partition.size_weights("power-law", 20_000, rng(), exponent=2.0)
    assert even.tolist() == [1.0] * 1000
    assert abs(np.log(normal).std() - 0.7) < 0.02
    assert pareto.min() >= 1
    # P(w > 10) = 10^-2 for the exponent 2
    assert abs((pareto > 10).mean() - 0.01) < 0.003
    with pytest.raises(
        InvalidInput, match="the size rule 'lognormal' is unknown; did you mean 'log-normal'"
    ):
        partition.size_weights("lognormal", 3, rng())


def test_natural() -> None:
    owner, names = partition.natural([11, 2, 11, 3])
    assert owner.tolist() == [2, 0, 2, 1]
    assert names == ["2", "3", "11"]


# ---- the papers' splits --------------------------------------------------------------------------


def test_fedu_mnist_table_ii() -> None:
    """61,866 samples, mean 619 (618.66), standard deviation 343.8: Table II of the paper, from
    MNIST's label counts alone.
    """
    y = np.repeat(np.arange(10), MNIST_COUNTS)
    owner = partition.fedu(y)
    sizes = sizes_of(owner, 100)
    assert sizes.sum() == 61_866
    assert sizes.mean() == pytest.approx(618.66, abs=1e-9)
    assert round(float(sizes.std()), 1) == 343.8
    for u in range(100):
        assert set(y[owner == u]) == {u % 10, (u + 1) % 10}
    # Each client's first ten of a label come before anybody's further ones.
    for label in range(10):
        first = owner[y == label][:200]
        assert [k for k, _ in _runs(first)] == [
            u for u in range(100) if label in (u % 10, (u + 1) % 10)
        ]
        assert {n for _, n in _runs(first)} == {10}


def _runs(values: np.ndarray) -> list[tuple[int, int]]:
    ends = np.flatnonzero(np.diff(values)) + 1
    return [(int(part[0]), len(part)) for part in np.split(values, ends)]


def test_fedu_does_not_depend_on_the_order_of_samples_for_its_sizes() -> None:
    y = np.repeat(np.arange(10), MNIST_COUNTS)
    shuffled = rng(5).permutation(y)
    np.testing.assert_array_equal(
        sizes_of(partition.fedu(shuffled), 100), sizes_of(partition.fedu(y), 100)
    )


def test_fedu_cifar_table_ii() -> None:
    """54,572 samples, mean 2,729, standard deviation 851.4 over 20 clients with 3 labels."""
    y = np.repeat(np.arange(10), 6000)
    owner = partition.fedu(y, 20, 3, partition.FEDU_CIFAR)
    sizes = sizes_of(owner, 20)
    assert sizes.sum() == 54_572
    assert round(float(sizes.mean())) == 2729
    assert round(float(sizes.std()), 1) == 851.4
    for u in range(20):
        assert set(y[owner == u]) == {u % 10, (u + 1) % 10, (u + 2) % 10}


def test_pfedme_mnist_sizes() -> None:
    """20 clients, 2 labels; with a quarter for testing, training sizes from 1,165 to 3,834 as the
    paper says.
    """
    y = np.repeat(np.arange(10), MNIST_COUNTS)
    owner = partition.pfedme(y)
    sizes = sizes_of(owner, 20)
    train = cut(owner, validation=0, test=0.25, whole_train=True)[0][1]
    assert np.diff(train).min() == 1165
    assert np.diff(train).max() == 3834
    np.testing.assert_array_equal(np.diff(train), (0.75 * sizes).astype(int))
    assert all(len(set(y[owner == u])) == 2 for u in range(20))


def test_pfedme_as_published_shares_samples() -> None:
    """The sizes are those of the split without sharing; clients with a label in common have samples
    in common, from the label's first ones on.
    """
    y = np.repeat(np.arange(10), MNIST_COUNTS)
    rows, owner = pfedme_draw.shared(y)
    np.testing.assert_array_equal(np.bincount(owner), sizes_of(partition.pfedme(y), 20))
    for u in range(20):
        mine = rows[owner == u]
        assert set(y[mine]) == {u % 10, (u + 1) % 10}
        assert len(set(mine)) == len(mine)
    both = set(rows[owner == 0]) & set(rows[owner == 10])  # the same two labels
    assert len(both) > 1000
    assert {1, 2, MNIST_COUNTS[0] + 1} <= both


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda y: partition.fedu(y, 15), "needs a multiple of 10"),
        (
            lambda y: partition.fedu(y, 100, 11),
            "11 labels per client are asked for, but the data has only 10 labels",
        ),
        (lambda y: partition.fedu(y[::50], 100), "too few for 100 clients"),
        (lambda y: partition.pfedme(y, 7), "needs 2 · clients to be a multiple"),
        (lambda y: partition.pfedme(y[::2000], 20), "too few for 20 clients"),
    ],
)
def test_papers_splits_refuse_what_they_cannot_do(call: object, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        call(np.repeat(np.arange(10), MNIST_COUNTS))  # type: ignore[operator]


def test_nothing_depends_on_or_moves_the_global_generators() -> None:
    y = np.repeat(np.arange(10), MNIST_COUNTS)

    def everything() -> list[np.ndarray]:
        fed = get_source("synthetic", {"clients": 5, "sizes": "pfedme", "downsample": 0.2}).load(3)
        return [
            partition.fedu(y),
            partition.pfedme(y),
            partition.dirichlet(y, 10, 0.1, rng(1)),
            partition.labels_per_client(y, 10, 2, 2, rng(1), weights=np.ones(10)),
            fed.train.x,
            fed.train.offsets,
        ]

    np.random.seed(1)  # noqa: NPY002 - the global state is what is tested
    random.seed(1)
    before = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = everything()
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])  # noqa: NPY002
    assert random.getstate() == before[1]
    np.random.seed(2)  # noqa: NPY002
    random.seed(2)
    for a, b in zip(first, everything(), strict=True):
        np.testing.assert_array_equal(a, b)
