"""Folds for tuning: every row is validated on at most once, and no test row is among them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coterie
from coterie import InvalidInput
from coterie.data.blind import blind, folds
from coterie.data.federation import Federation, Split, pack


def numbered(sizes: list[int]) -> Federation:
    """Rows that say whose they are and which: (client, number); test rows are negative."""
    rows = lambda k, n, sign: np.array([(k, sign * (i + 1)) for i in range(n)], float).reshape(n, 2)
    split = lambda cuts, sign: pack(
        [(rows(k, n, sign), np.zeros(n, np.int64)) for k, n in enumerate(cuts)]
    )
    made = split(sizes, 1.0)
    held = [n // 3 for n in sizes]
    starts = made.offsets[:-1]
    train = [np.arange(s + h, s + n) for s, h, n in zip(starts, held, sizes, strict=True)]
    kept = [np.arange(s, s + h) for s, h in zip(starts, held, strict=True)]
    cut = lambda parts: pack([(made.x[p], made.y[p]) for p in parts])
    return Federation("n", cut(train), cut(kept), split([2] * len(sizes), -1.0), classes=1)


def ids(split: Split) -> list[tuple[float, float]]:
    return [tuple(row) for row in split.x]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(2, 5))
def test_folds_part_the_rows_of_every_client(sizes: list[int], count: int) -> None:
    fed = numbered(sizes)
    if sum(n for n in sizes if n > 1) < count:
        with pytest.raises(InvalidInput, match="too few"):
            folds(fed, count)
        return
    parts = folds(fed, count)
    everybody = sorted(ids(fed.train) + ids(fed.validation))
    validated: list[tuple[float, float]] = []
    for part in parts:
        assert sorted(ids(part.train) + ids(part.validation)) == everybody
        assert not len(part.test)
        assert (part.train.sizes > 0).all()
        assert all(
            (part.train.client(k)[0][:, 0] == k).all()
            and (part.validation.client(k)[0][:, 0] == k).all()
            for k in range(fed.clients)
        )
        validated += ids(part.validation)
    assert len(set(validated)) == len(validated)
    assert len({len(p.train) for p in parts}) == 1  # one program serves all folds
    spread = np.stack([p.validation.sizes for p in parts])
    assert (spread.max(0) - spread.min(0) <= 1).all()


def test_scaling_is_fitted_on_each_folds_training_rows() -> None:
    fed = coterie.load("digits", clients=3, validation=0.3)
    fed = dataclasses.replace(fed, facts={**fed.facts, "scaling": "fitted on training data"})
    for part in folds(fed, 3, seed=1):
        varying = part.train.x.std(0) > 0
        np.testing.assert_allclose(part.train.x.mean(0)[varying], 0, atol=1e-4)
        np.testing.assert_allclose(part.train.x.std(0)[varying], 1, rtol=1e-3)


def test_a_blind_federation_has_no_test_rows() -> None:
    fed = numbered([4, 5])
    assert not len(blind(fed).test)
    assert ids(blind(fed).train) == ids(fed.train)
    assert blind(fed).clients == 2


def test_one_fold_is_none() -> None:
    with pytest.raises(InvalidInput, match="folds is 1, but must be a whole number ≥ 2"):
        folds(numbered([4]), 1)
