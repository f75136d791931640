"""A newcomer's table is read as the run's was: gaps and unknown categories included."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from coterie.core.errors import InvalidInput, Notice
from coterie.data import Federation, from_table
from coterie.data.tables import newcomers_from_table
from tests.support.tables import N, columns, table


def federation(**options: Any) -> Federation:
    return from_table(table(), client="site", target="label", **options)


def newcomer(like: Federation, **changes: Any) -> Federation:
    return newcomers_from_table(table(site=None, **changes), like, test=0)


def holed() -> list[float | None]:
    return [None if i % 7 == 0 else v for i, v in enumerate(columns()["heat"])]


def test_gaps_are_filled_if_the_run_filled_its_own() -> None:
    new = newcomer(federation(missing="mean"), heat=holed())
    assert np.sum(new.train.x[:, 0] == new.train.x[0, 0]) > 0
    assert np.sum(new.train.x[:, 0] == 0) == len(range(0, N, 7)), "the run's mean is 0 when scaled"
    with pytest.raises(InvalidInput, match="the feature column 'heat' has 9 missing values"):
        newcomer(federation(missing="refuse"), heat=holed())
    with pytest.raises(InvalidInput, match="the feature column 'heat' has 9 missing values"):
        newcomers_from_table(
            table(heat=holed(), site=None), federation(missing="mean"), missing="refuse"
        )


def test_a_newcomer_may_lack_a_measurement_altogether() -> None:
    new = newcomer(federation(missing="mean"), heat=[None] * N)
    assert not new.train.x[:, 0].any()


def test_an_unknown_category_is_none_of_the_known() -> None:
    colours = ["red", "purple", "mauve"] * (N // 3)
    fed = federation(standardise=False)
    with pytest.warns(
        Notice,
        match="the column 'colour' has 40 rows of 'mauve' and 'purple', which training did",
    ):
        new = newcomer(fed, colour=colours)
    assert new.train.x[:, 3:].sum() == N // 3
    red = fed.facts["features"].index("colour=red")
    assert new.train.x[:, red].sum() == N // 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        newcomer(fed, colour=["red", "blue", "blue"] * (N // 3))


def test_more_unknown_categories_than_may_become_columns() -> None:
    with pytest.warns(Notice, match="'note 0', 'note 1', 'note 10' and 57 more"):
        new = newcomer(federation(), colour=[f"note {i}" for i in range(N)])
    assert not new.train.x[:, 3:].any()


def test_categories_that_look_like_numbers(tmp_path: Path) -> None:
    fed = from_table(
        table(colour=[("1", "2", "x")[i % 3] for i in range(N)]), client="site", target="label"
    )
    pyarrow.csv.write_csv(
        table(site=None, colour=[("1", "2")[i % 2] for i in range(N)]).cast(
            table(site=None).schema
        ),
        tmp_path / "t.csv",
    )
    text = (tmp_path / "t.csv").read_text().replace('"', "")
    (tmp_path / "t.csv").write_text(text)
    new = newcomers_from_table(tmp_path / "t.csv", fed, test=0)
    np.testing.assert_array_equal(new.train.x[:, 3:].sum(0), [N // 2, N // 2, 0])


def test_a_column_of_another_kind_is_refused() -> None:
    with pytest.raises(
        InvalidInput,
        match="the column 'heat' holds text such as 'warm', but held numbers when the model was",
    ):
        newcomer(federation(), heat=["warm", "cold"] * (N // 2))


@pytest.mark.parametrize("labels", [["yes ", "no"], [" yes", "no "]])
def test_labels_are_found_despite_spaces(labels: list[str]) -> None:
    new = newcomer(federation(), label=labels * (N // 2))
    assert sorted(set(new.train.y.tolist())) == [0, 1]


def test_labels_are_found_despite_case_where_the_run_did_not_care() -> None:
    fed = from_table(
        table(label=[("Yes", "no", "yes", "No")[i % 4] for i in range(N)]),
        client="site",
        target="label",
        label_case="merge",
    )
    new = newcomer(fed, label=["YES", "no"] * (N // 2))
    assert sorted(set(new.train.y.tolist())) == [0, 1]
    with pytest.raises(InvalidInput, match="the newcomers have the label 'YES'"):
        newcomer(federation(), label=["YES", "no"] * (N // 2))


def test_whole_number_classes_written_as_floats_are_the_same_classes() -> None:
    fed = from_table(table(label=[i % 2 for i in range(N)]), client="site", target="label")
    new = newcomer(fed, label=[float(i % 2) for i in range(N)])
    assert sorted(set(new.train.y.tolist())) == [0, 1]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("heat,heat,label\n1,2,yes\n")
    with pytest.raises(InvalidInput, match="the table has 2 columns 'heat'"):
        newcomers_from_table(tmp_path / "t.csv", federation())
