"""Inputs on a common scale: nothing is lost to rounding, and nothing unseen becomes huge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from coterie.core.errors import Notice
from coterie.data import Federation, from_arrays, from_table, get_source, standardise
from coterie.data.scaling import fit
from coterie.data.tables import newcomers_from_table

ROWS = 400


def hour() -> dict[str, np.ndarray]:
    """Timestamps in seconds within one hour, which single precision cannot tell apart."""
    seconds = 1_700_000_000.0 + np.sort(np.random.default_rng(0).uniform(0, 3600, ROWS))
    return {
        "site": np.arange(ROWS) % 4,
        "when": seconds,
        "label": np.array(["early", "late"])[(seconds > 1_700_001_800).astype(int)],
    }


def test_timestamps_within_an_hour_stay_apart() -> None:
    rows = hour()
    fed = from_table(rows, client="site", target="label", validation=0, test=0)
    assert fed.train.x.dtype == np.float32
    assert len(np.unique(fed.train.x)) == ROWS
    want = (rows["when"] - rows["when"].mean()) / rows["when"].std()
    np.testing.assert_allclose(np.sort(fed.train.x[:, 0]), np.sort(want), rtol=1e-5, atol=1e-6)


def test_so_do_those_of_a_newcomer() -> None:
    rows = hour()
    fed = from_table(rows, client="site", target="label", validation=0, test=0)
    new = newcomers_from_table(rows, fed, test=0)
    np.testing.assert_array_equal(np.sort(new.train.x[:, 0]), np.sort(fed.train.x[:, 0]))


def test_whole_nanoseconds_are_numbers_too() -> None:
    rows = hour()
    fed = from_table(
        rows | {"when": (rows["when"] * 1e9).astype(np.int64)},
        client="site",
        target="label",
        validation=0,
        test=0,
    )
    assert len(np.unique(fed.train.x)) == ROWS


def test_a_column_in_small_units_is_scaled_like_any_other() -> None:
    rows = hour() | {"when": np.random.default_rng(1).normal(2e-9, 1e-9, ROWS)}
    fed = from_table(rows, client="site", target="label", validation=0, test=0)
    assert fed.train.x.std() == pytest.approx(1, abs=1e-4)


def test_a_regression_target_is_centred_before_it_is_rounded() -> None:
    rows = hour()
    fed = from_table(
        {"site": rows["site"], "x": np.arange(ROWS * 1.0), "y": rows["when"]},
        client="site",
        target="y",
        standardise_target=True,
        validation=0,
        test=0,
    )
    assert len(np.unique(fed.train.y)) == ROWS
    back = fed.train.y.astype(np.float64) * fed.facts["target_scale"] + fed.facts["target_mean"]
    np.testing.assert_allclose(np.sort(back), rows["when"], atol=0.01, rtol=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_never_varies_in_training_is_zero_everywhere(dtype: type) -> None:
    x = np.stack([np.arange(40), np.full(40, 0.1)], 1).astype(dtype)
    fed = from_arrays("toy", x, np.arange(40) % 2, np.arange(40) % 2, validation=0)
    fed.test.x[:, 1] = 255
    made = standardise(fed)
    assert not made.train.x[:, 1].any()
    assert not made.test.x[:, 1].any()
    assert made.test.x[:, 0].any()
    assert made.train.x.dtype == dtype


def test_pixels_that_no_training_picture_uses_do_not_reach_a_model(real: Path) -> None:
    """Many pixels of MNIST are used by few pictures."""
    options = {"clients": 4, "mean_size": 50, "test": 0.5, "split": "iid"}
    fed, raw = (
        get_source("mnist", {**options, "standardise": scaled}).load(0) for scaled in (True, False)
    )
    constant = np.ptp(raw.train.x, axis=0) == 0
    used = constant & (np.ptp(raw.test.x, axis=0) > 0)
    assert used.any(), "otherwise this says nothing"
    assert not fed.test.x[:, constant].any()


def test_a_constant_column_of_a_table_is_said() -> None:
    rows = hour() | {"unit": np.full(ROWS, 7.0), "other": np.full(ROWS, -1)}
    with pytest.warns(Notice, match="'unit' and 'other' have the same value in every training row"):
        from_table(rows, client="site", target="label")


def test_single_precision_data_are_scaled_as_they_always_were() -> None:
    x = np.random.default_rng(2).normal(3, 2, (50, 3)).astype(np.float32)
    scaling = fit(x)
    mean = x.sum(0, dtype=np.float64) / 50
    gap = x - mean.astype(np.float32)
    deviation = np.sqrt(np.einsum("ij,ij->j", gap, gap).astype(np.float64) / 50)
    np.testing.assert_array_equal(scaling.mean, mean.astype(np.float32))
    np.testing.assert_array_equal(scaling.scale, deviation.astype(np.float32))
    assert isinstance(standardise(_of(x)), Federation)


def _of(x: np.ndarray) -> Federation:
    return from_arrays("toy", x, np.arange(len(x)) % 2, np.arange(len(x)) % 2)


def test_a_csv_keeps_what_a_parquet_keeps(tmp_path: Path) -> None:
    rows = hour()
    pyarrow.csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    from_csv = from_table(tmp_path / "t.csv", client="site", target="label")
    np.testing.assert_allclose(
        from_csv.train.x, from_table(rows, client="site", target="label").train.x, rtol=1e-5
    )
