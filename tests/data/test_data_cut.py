"""Cutting into train, validation and test; fewer data for some; scaling; Synthetic's sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput
from coterie.data import (
    Federation,
    from_arrays,
    get_source,
    partition,
    standardise,
    warn_without_test,
)
from coterie.data.federation import cut

seeds = st.integers(0, 2**31)


@given(
    st.lists(st.integers(-1, 5), min_size=1, max_size=120),
    st.floats(0, 0.45),
    st.floats(0, 0.45),
    seeds,
    st.booleans(),
)
def test_cut_is_disjoint_and_complete(
    owner: list[int], validation: float, test: float, seed: int, whole: bool
) -> None:
    client = np.array(owner)
    if client.max() < 0:
        with pytest.raises(InvalidInput, match="no sample is assigned to any client"):
            cut(client, validation=validation, test=test, seed=seed)
        return
    pieces = cut(client, validation=validation, test=test, seed=seed, whole_train=whole)
    rows = np.concatenate([r for r, _ in pieces])
    assert sorted(rows.tolist()) == np.flatnonzero(client >= 0).tolist()
    n = client.max() + 1
    have = np.bincount(client[client >= 0], minlength=n)
    for part, offsets in pieces:
        assert len(offsets) == n + 1
        for k in range(n):
            assert set(client[part[offsets[k] : offsets[k + 1]]]) <= {k}
    assert np.all(np.diff(pieces[0][1])[have > 0] >= 1)


def numbered(n: int = 6, each: int = 20) -> Federation:
    """A federation whose inputs are the numbers of its samples."""
    x = np.arange(n * each, dtype=np.float32)[:, None]
    return from_arrays("toy", x, np.arange(n * each) % 3, np.repeat(np.arange(n), each), classes=3)


@given(st.floats(0.01, 1), st.floats(0, 1), seeds)
def test_downsample(share: float, clients: float, seed: int) -> None:
    fed = numbered()
    less = partition.downsample(fed, share, clients, seed)
    poor = less.facts["downsampled"]
    assert len(poor) == round(6 * clients)
    for k in range(6):
        before, after = set(fed.train.client(k)[0][:, 0]), set(less.train.client(k)[0][:, 0])
        assert after <= before
        assert len(after) == (max(1, round(share * len(before))) if k in poor else len(before))
    np.testing.assert_array_equal(less.test.x, fed.test.x)
    np.testing.assert_array_equal(less.validation.x, fed.validation.x)
    again = partition.downsample(fed, share, clients, seed)
    np.testing.assert_array_equal(again.train.x, less.train.x)
    assert "downsampled" not in fed.facts


def test_downsample_as_an_option_and_refused_values() -> None:
    fed = get_source("digits", {"downsample": 0.2}).load(0)
    full = get_source("digits").load(0)
    poor = fed.facts["downsampled"]
    assert len(poor) == 10
    np.testing.assert_array_equal(
        fed.train.sizes[poor], [max(1, round(0.2 * s)) for s in full.train.sizes[poor]]
    )
    for bad in ({"share": 0.0}, {"share": 1.5}, {"clients": -0.1}):
        with pytest.raises(InvalidInput, match="down-sampled"):
            partition.downsample(full, **bad)


def test_standardise_looks_at_training_data_only() -> None:
    fed = numbered()
    made = standardise(fed)
    scale, mean = fed.train.x.std(), fed.train.x.mean()
    np.testing.assert_allclose(made.train.x, (fed.train.x - mean) / scale, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made.test.x, (fed.test.x - mean) / scale, rtol=1e-5, atol=1e-5)
    # Other test data, the same map.
    fed.test.x[:] = 1e4
    np.testing.assert_array_equal(standardise(fed).train.x, made.train.x)


def test_a_feature_that_is_constant_in_training_is_zero_everywhere() -> None:
    fed = numbered()
    fed.train.x[:] = 3
    fed.test.x[:] = 4
    made = standardise(fed)
    assert made.train.x.max() == 0
    assert made.test.x.max() == 0


def test_clients_without_test_data_are_named() -> None:
    x = np.zeros((13, 1), np.float32)
    fed = from_arrays("toy", x, np.arange(13) % 2, np.repeat([0, 1, 2], [6, 1, 6]))
    assert warn_without_test(fed) == "Client 1 of 'toy' has no test data and is left out of means."
    assert warn_without_test(numbered()) == ""


# ---- Synthetic in the papers' sizes --------------------------------------------------------------


def total(fed: Federation) -> np.ndarray:
    return np.sum([s.sizes for s in fed.splits], axis=0)


def test_synthetic_sizes_of_the_papers() -> None:
    pfedme = total(
        get_source("synthetic", {"alpha": 0.5, "beta": 0.5, "sizes": "pfedme", "features": 2}).load(
            7
        )
    )
    assert len(pfedme) == 100
    assert pfedme.min() == 250
    assert pfedme.max() == 25_810
    lp_proj = total(get_source("synthetic", {"sizes": "lp-proj", "features": 2}).load(7))
    assert lp_proj.mean() == 202
    assert lp_proj.min() >= 50
    fedprox = total(
        get_source("synthetic", {"sizes": "fedprox", "clients": 4000, "features": 1}).load(7)
    )
    assert fedprox.min() >= 50
    assert abs(np.median(fedprox - 50) - np.exp(4)) < 5


def test_synthetic_paper_protocol_is_pfedmes_data() -> None:
    fed = get_source(
        "synthetic", {"alpha": 0.5, "beta": 0.5, "protocol": "paper", "clients": 10}
    ).load(0)
    again = get_source(
        "synthetic", {"alpha": 0.5, "beta": 0.5, "protocol": "paper", "clients": 10}
    ).load(1)
    legacy = np.random.RandomState(0)
    sizes = (legacy.lognormal(4, 2, 10).astype(int) + 50) * 5
    np.testing.assert_array_equal(total(fed), sizes)
    np.testing.assert_array_equal(fed.train.sizes, (0.9 * sizes).astype(int))
    assert len(fed.validation) == 0
    # The same samples under another seed, cut otherwise.
    for k in range(10):
        both = [
            np.sort(np.concatenate([f.train.client(k)[0][:, 0], f.test.client(k)[0][:, 0]]))
            for f in (fed, again)
        ]
        np.testing.assert_array_equal(*both)
    assert not np.array_equal(fed.train.x, again.train.x)
