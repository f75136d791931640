"""A participant's own table, read by the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from coterie.deploy.plan import Plan
from coterie.deploy.site import OwnData

START = 1_700_000_000.0


def plan(**problem: Any) -> Plan:
    return Plan.from_config(
        {
            "name": "wards",
            "clients": ["a", "b"],
            "problem": {
                "features": ["when", "sex=f", "sex=m"],
                "target": "label",
                "labels": ["NA", "yes"],
                **problem,
            },
            "model": "mlr",
            "training": {"rounds": 1},
            "method": "fedavg",
        }
    )


def ward(folder: Path, rows: int = 40) -> dict[str, list[Any]]:
    table = {
        "when": [START + 60.0 * i for i in range(rows)],
        "sex": ["f", "m"] * (rows // 2),
        "label": ["yes", "yes", "NA", "yes"] * (rows // 4),
    }
    pyarrow.csv.write_csv(pa.table(table), folder / "ward.csv")
    return table


@pytest.mark.parametrize("common", [False, True])
def test_timestamps_stay_apart_and_a_label_is_taken_as_it_stands(
    tmp_path: Path, common: bool
) -> None:
    when = np.array(ward(tmp_path)["when"])
    mean, scale = when.mean(), when.std()
    given = {"mean": [mean, 0.0, 0.0], "scale": [scale, 1.0, 1.0]} if common else {}
    fed = OwnData(path="ward.csv", test=0.0).load(plan(**given), tmp_path)
    np.testing.assert_allclose(
        np.sort(fed.train.x[:, 0]), (when - mean) / scale, rtol=1e-5, atol=1e-6
    )
    assert sorted(np.bincount(fed.train.y)) == [10, 30]


def test_gaps_are_filled_with_ones_own_mean_where_the_plan_has_none(tmp_path: Path) -> None:
    table = ward(tmp_path)
    table["when"][3] = None
    pyarrow.csv.write_csv(pa.table(table), tmp_path / "ward.csv")
    fed = OwnData(path="ward.csv", test=0.0, missing="mean").load(plan(), tmp_path)
    assert np.abs(fed.train.x[:, 0]).max() < 2
    assert np.sum(np.abs(fed.train.x[:, 0]) < 1e-6) == 1


def test_codes_of_a_category_keep_their_zeros(tmp_path: Path) -> None:
    """A ward whose table happens to have no other value than 01 and 02."""
    lines = [f"{START + i},{('01', '02')[i % 2]},yes" for i in range(8)]
    (tmp_path / "ward.csv").write_text("\n".join(["when,sex,label", *lines]))
    features = ["when", "sex=01", "sex=02", "sex=x"]
    fed = OwnData(path="ward.csv", test=0.0).load(plan(features=features), tmp_path)
    np.testing.assert_array_equal(fed.train.x[:, 1:].sum(0), [4, 4, 0])
