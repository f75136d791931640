"""Federations are packed without padding and refused when anything is wrong with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie import Federation, InvalidInput, from_arrays
from coterie.data.federation import Split, pack
from coterie.data.partition import labels_per_client


def split(sizes: list[int], features: int = 2, classes: int = 3, **change: Any) -> Split:
    rng = np.random.default_rng(0)
    made = pack([(rng.standard_normal((n, features)), rng.integers(0, classes, n)) for n in sizes])
    return dataclasses.replace(made, **change)


def federation(train: Split | None = None, **more: Any) -> Federation:
    options: dict[str, Any] = {
        "validation": split([0, 1, 1]),
        "test": split([1, 0, 2]),
        "classes": 3,
        **more,
    }
    return Federation("mine", train or split([2, 3, 4]), **options)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_packing_keeps_every_clients_samples_in_order(sizes: list[int]) -> None:
    parts = [
        (np.full((n, 2), k) + np.arange(n)[:, None] / 10, np.full(n, k))
        for k, n in enumerate(sizes)
    ]
    made = pack(parts)
    assert len(made) == sum(sizes)
    assert made.sizes.tolist() == sizes
    for k, (x, y) in enumerate(parts):
        np.testing.assert_array_equal(made.client(k)[0], x)
        np.testing.assert_array_equal(made.client(k)[1], y)


def test_a_good_one_is_accepted() -> None:
    fed = federation()
    assert (fed.clients, fed.input_shape, fed.outputs) == (3, (2,), 3)
    assert fed.label_counts().sum(1).tolist() == [2, 3, 4]


def poisoned(value: float, row: int = 3) -> Split:
    made = split([2, 3, 4])
    x = made.x.copy()
    x[row, 1] = value
    return dataclasses.replace(made, x=x)


def labelled(label: int) -> Split:
    made = split([2, 3, 4])
    y = made.y.copy()
    y[5] = label
    return dataclasses.replace(made, y=y)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train": split([2, 0, 4])}, "client 1 of 'mine' has no training samples"),
        (
            {"train": poisoned(np.nan)},
            "train split of 'mine' has NaN or infinity in sample 1 of client 1",
        ),
        ({"train": poisoned(np.inf, 8)}, "NaN or infinity in sample 3 of client 2"),
        (
            {"test": dataclasses.replace(split([1, 0, 2]), x=np.full((3, 2), np.nan))},
            "test split of 'mine' has NaN",
        ),
        ({"train": labelled(3)}, "label 3, but labels must be from 0 to 2"),
        ({"train": labelled(-1)}, "label -1"),
        ({"classes": 1}, "labels must be from 0 to 0"),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), y=np.zeros(9))},
            "class numbers must be whole numbers",
        ),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), x=np.zeros((9, 2), complex))},
            "must be floating point, or whole numbers",
        ),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), offsets=np.array([0, 2, 5, 8]))},
            "offsets that do not cover",
        ),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), offsets=np.array([0, 5, 2, 9]))},
            "offsets that do not cover",
        ),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), offsets=np.array([1, 2, 5, 9]))},
            "offsets that do not cover",
        ),
        (
            {"train": dataclasses.replace(split([2, 3, 4]), y=np.zeros(8, int))},
            "9 inputs and 8 targets",
        ),
        ({"test": split([1, 2])}, "different numbers of clients"),
        ({"test": split([1, 0, 2], features=5)}, "shape"),
        ({"task": "regression"}, "as regression needs"),
    ],
)
def test_bad_data_is_refused_with_one_sentence(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        federation(**change)
    assert "\n" not in str(caught.value)


def test_bad_regression_targets_are_refused() -> None:
    whole = lambda sizes: dataclasses.replace(split(sizes), y=np.zeros(sum(sizes)))
    good = {
        "train": whole([2, 3, 4]),
        "validation": whole([0, 1, 1]),
        "test": whole([1, 0, 2]),
        "task": "regression",
    }
    assert federation(**good).outputs == 1
    with pytest.raises(InvalidInput, match="not finite"):
        federation(**{**good, "train": dataclasses.replace(good["train"], y=np.full(9, np.nan))})  # type: ignore[type-var]


def test_packing_refuses_nobody_and_unequal_counts() -> None:
    with pytest.raises(InvalidInput, match="at least 1 client"):
        pack([])
    with pytest.raises(InvalidInput, match="client 1 has 2 inputs but 3 targets"):
        pack([(np.ones((1, 2)), np.ones(1)), (np.ones((2, 2)), np.ones(3))])


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    validation=st.floats(0, 0.45),
    test=st.floats(0, 0.45),
    seed=st.integers(0, 100),
    nobody=st.integers(0, 4),
)
def test_splits_are_disjoint_cover_everything_and_leave_something_to_train_on(
    sizes: list[int], validation: float, test: float, seed: int, nobody: int
) -> None:
    owner = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(nobody, -1)])
    owner = np.random.default_rng(seed).permutation(owner)
    x = np.arange(len(owner), dtype=float)[:, None]
    shares: dict[str, Any] = {"validation": validation, "test": test, "seed": seed}
    make = lambda: from_arrays("mine", x, (x[:, 0] % 3).astype(int), owner, classes=3, **shares)
    fed = make()
    rows = np.concatenate([s.x[:, 0] for s in fed.splits]).astype(int)
    np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(owner >= 0))
    for k, n in enumerate(sizes):
        mine = [s.client(k)[0][:, 0].astype(int) for s in fed.splits]
        assert (owner[np.concatenate(mine)] == k).all()
        assert len(mine[0]) >= 1
        assert len(mine[2]) == min(round(n * test), n - 1)
        for s in fed.splits:
            np.testing.assert_array_equal(s.client(k)[1], s.client(k)[0][:, 0].astype(int) % 3)
    again = make()
    np.testing.assert_array_equal(again.train.x, fed.train.x)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"validation": -0.1}, "validation share is -0.1"),
        ({"test": 1.0}, "test share is 1.0"),
        ({"validation": 0.6, "test": 0.5}, "must leave something to train on"),
        ({"client": np.array([0, 0, 2, 2])}, "client 1 of 'mine' has no training samples"),
        ({"client": np.full(4, -1)}, "assigns no sample to any client"),
        ({"client": np.zeros(3, int)}, "4 inputs, 4 targets and 3 client numbers"),
        ({"classes": 1}, "labels must be from 0 to 0"),
    ],
)
def test_bad_arrays_are_refused(change: dict[str, Any], says: str) -> None:
    given_: dict[str, Any] = {
        "x": np.ones((4, 2)),
        "y": np.array([0, 1, 0, 1]),
        "client": np.array([0, 0, 1, 1]),
        **change,
    }
    with pytest.raises(InvalidInput, match=says):
        from_arrays("mine", **given_)


def test_majority_score_by_hand() -> None:
    y = np.array([0, 0, 1, 1, 1, 2])
    fed = Federation(
        "mine",
        Split(np.ones((6, 1)), y, np.array([0, 3, 6])),
        Split(np.ones((0, 1)), y[:0], np.array([0, 0, 0])),
        Split(np.ones((4, 1)), np.array([0, 1, 0, 0]), np.array([0, 4, 4])),
        classes=3,
    )
    score = fed.majority_score()
    assert score[0] == 0.75
    assert np.isnan(score[1]), "no test data: NaN, never 0"
    assert fed.label_counts().tolist() == [[2, 1, 0], [0, 2, 1]]


def test_astype_changes_inputs_only_for_classes() -> None:
    fed = federation().astype(np.float32)
    assert fed.train.x.dtype == np.float32
    assert np.issubdtype(fed.train.y.dtype, np.integer)


@settings(max_examples=25, deadline=None)
@given(
    clients=st.integers(1, 12),
    fewest=st.integers(1, 4),
    more=st.integers(0, 3),
    spread=st.floats(0, 2),
    seed=st.integers(0, 99),
)
def test_labels_per_client_are_as_promised(
    clients: int, fewest: int, more: int, spread: float, seed: int
) -> None:
    y = np.random.default_rng(seed).integers(0, 8, 400)
    most = min(fewest + more, 8)
    owner = labels_per_client(y, clients, fewest, most, np.random.default_rng(seed), spread=spread)
    assert owner.shape == y.shape
    for k in range(clients):
        assert fewest <= len(np.unique(y[owner == k])) <= most
    for c in np.unique(y):
        owners = owner[y == c]
        assert (owners >= 0).all() or (owners < 0).all(), (
            "a class somebody holds is dealt out completely"
        )


def test_built_in_sources_are_reproducible_and_differ_by_seed() -> None:
    for name, options in (
        ("synthetic", {"clients": 4, "mean_size": 60}),
        ("digits", {"clients": 5}),
        ("linear", {"clients": 3}),
    ):
        a, b, c = (coterie.load(name, seed=s, **options) for s in (1, 1, 2))
        np.testing.assert_array_equal(a.train.x, b.train.x)
        np.testing.assert_array_equal(a.train.y, b.train.y)
        assert a.train.x.shape != c.train.x.shape or not np.array_equal(a.train.x, c.train.x)


def test_global_random_state_is_neither_used_nor_changed() -> None:
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    a = coterie.load("synthetic", clients=3, mean_size=60)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(
        coterie.load("synthetic", clients=3, mean_size=60).train.x, a.train.x
    )


def test_digits_hold_two_or_three_labels_each() -> None:
    fed = coterie.load("digits", clients=20)
    labels = (fed.label_counts() > 0).sum(1)
    assert set(labels) <= {2, 3}
    assert sum(len(s) for s in fed.splits) <= 1797


def test_linear_refuses_fewer_samples_than_dimensions() -> None:
    with pytest.raises(InvalidInput, match=r"linear.samples is 4"):
        coterie.load("linear", samples=4, dimension=5)
