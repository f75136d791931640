"""How a table was prepared is kept whole: other rows become inputs by it, and by nothing else."""

from __future__ import annotations

import datetime
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput, Notice
from coterie.data import Federation, from_table
from coterie.data.kinds import Column
from coterie.data.newcomers import newcomers_from_table
from coterie.data.prepared import Prepared, inputs_of, targets_of
from tests.support.tables import N, columns, table

BEGIN = datetime.datetime(2024, 3, 1, 6, 30)


def rich() -> pa.Table:
    """A column of every kind, with gaps, and one that never varies."""
    heat = columns()["heat"]
    return table(
        heat=[None if i % 7 == 0 else v for i, v in enumerate(heat)],
        when=[BEGIN + datetime.timedelta(hours=5.5 * i) for i in range(N)],
        text_day=[f"{1 + i % 28:02d}.03.2024" for i in range(N)],
        smokes=["yes", "no", "no"] * (N // 3),
        pair=[[float(i), 1 / (i + 1)] for i in range(N)],
        unit=[7.0] * N,
    )


@pytest.fixture(scope="module")
def fed() -> Federation:
    with pytest.warns(Notice):
        return from_table(rich(), client="site", target="label")


def kept(fed: Federation) -> Prepared:
    """As a process would have it that knows nothing but a JSON file."""
    return Prepared.from_config(json.loads(json.dumps(fed.facts["prepared"].to_config())))


def by_client_and_split(fed: Federation) -> np.ndarray:
    return np.concatenate([split.x for split in fed.splits])


def same_rows(a: np.ndarray, b: np.ndarray) -> None:
    order = [np.lexsort(x.T[::-1]) for x in (a, b)]
    np.testing.assert_array_equal(a[order[0]], b[order[1]])


def test_json_gives_the_same_again_to_the_last_bit(fed: Federation) -> None:
    assert kept(fed) == fed.facts["prepared"]
    text = json.dumps(fed.facts["prepared"].to_config(), allow_nan=False)
    assert '"scale": [null]' in text, "infinity is no JSON"


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4),
    st.floats(1e-300, 1e300),
)
def test_so_it_does_for_any_numbers(numbers: list[float], scale: float) -> None:
    column = Column("v", "list", length=len(numbers)).fitted(
        numbers, numbers, [scale, *[np.inf] * (len(numbers) - 1)]
    )
    made = Prepared((column,), task="regression", target="y", target_mean=scale)
    assert Prepared.from_config(json.loads(json.dumps(made.to_config()))) == made


def test_raw_rows_become_what_they_were_in_training(fed: Federation) -> None:
    x = inputs_of(kept(fed), rich().drop_columns(["site", "label"]))
    assert x.dtype == np.float32
    same_rows(x, by_client_and_split(fed))


def test_from_any_container(fed: Federation, tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rows = rich().drop_columns(["site", "label"])
    plain = rows.drop_columns(["pair"])
    want = inputs_of(kept(fed), rows)
    pyarrow.parquet.write_table(rows, tmp_path / "t.parquet")
    frames = [tmp_path / "t.parquet", rows.to_pandas(), polars.from_arrow(rows)]
    for data in (*frames, rows.select(sorted(rows.column_names))):
        np.testing.assert_array_equal(inputs_of(kept(fed), data), want)
    assert isinstance(frames[1], pandas.DataFrame)
    with pytest.warns(Notice):
        flat = from_table(rich().drop_columns(["pair"]), client="site", target="label")
    want = inputs_of(kept(flat), plain)
    pyarrow.csv.write_csv(plain, tmp_path / "t.csv")
    np.testing.assert_allclose(inputs_of(kept(flat), tmp_path / "t.csv"), want, atol=1e-6)
    some = {name: plain.column(name).to_pylist()[1:3] for name in plain.column_names}
    np.testing.assert_array_equal(inputs_of(kept(flat), some), want[1:3])


def test_what_each_column_became(fed: Federation) -> None:
    assert fed.facts["features"] == [
        *("heat", "heat is missing", "count", "on", "colour=blue", "colour=green", "colour=red"),
        *("when (days)", "when (hour sin)", "when (hour cos)"),
        *("when (weekday sin)", "when (weekday cos)"),
        *("text_day (days)", "text_day (weekday sin)", "text_day (weekday cos)"),
        *("smokes", "pair[0]", "pair[1]", "unit"),
    ]
    kinds = {column.name: column.kind for column in fed.facts["prepared"].columns}
    assert kinds == {
        **{"heat": "number", "count": "number", "on": "boolean", "colour": "category"},
        **{"when": "date", "text_day": "date", "smokes": "boolean", "pair": "list"},
        "unit": "number",
    }


def test_gaps_are_the_training_mean_and_are_told(fed: Federation) -> None:
    rows = rich().to_pydict()
    x = inputs_of(kept(fed), rich())
    flag = fed.facts["features"].index("heat is missing")
    np.testing.assert_array_equal(x[:, flag], [v is None for v in rows["heat"]])
    assert np.abs(x[x[:, flag] == 1, 0]).max() < 1e-6, "the training mean is 0 when scaled"
    with pytest.raises(InvalidInput, match="the feature column 'heat' has 9 missing values in 60"):
        inputs_of(kept(fed), rich(), missing="refuse")
    with pytest.warns(Notice, match="column 'count' has 60 missing values, but had none in train"):
        gone = inputs_of(kept(fed), table_with(count=[None] * N))
    assert not gone[:, fed.facts["features"].index("count")].any()


def table_with(**changes: Any) -> pa.Table:
    made = rich()
    for name, values in changes.items():
        made = made.set_column(made.column_names.index(name), name, pa.array(values))
    return made


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"heat": ["warm"] * N}, "column 'heat' holds text such as 'warm', but held numbers when"),
        ({"heat": [BEGIN] * N}, r"column 'heat' is of type timestamp\[us\], but held numbers when"),
        ({"on": ["maybe"] * N}, "the column 'on' holds 'maybe', but held true/false"),
        ({"on": [2] * N}, r"the column 'on' holds 2, but held true/false \(1/0\) when the model"),
        ({"colour": [[1]] * N}, "column 'colour' is of type list<.*>, but held text when"),
        ({"when": [1.0] * N}, "column 'when' is of type double, but held dates when"),
        ({"text_day": ["3/2024"] * N}, r"'text_day' holds text such as '3/2024', but held dates"),
        ({"pair": [[1.0]] * N}, "'pair' holds lists of 1 numbers, but held 2 when the model was"),
        ({"pair": [1.0] * N}, "'pair' is of type double, but held lists of 2 numbers when"),
        ({"count": [float("inf")] * N}, "the feature column 'count' holds infinity"),
    ],
)
def test_another_kind_is_refused_by_name(
    fed: Federation, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        inputs_of(kept(fed), table_with(**changes))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_column_that_is_not_there_is_named(fed: Federation) -> None:
    with pytest.raises(InvalidInput, match="the feature column 'heat' is not in the table"):
        inputs_of(kept(fed), rich().drop_columns(["heat"]))


def test_no_rows_are_no_inputs(fed: Federation) -> None:
    assert inputs_of(kept(fed), rich()[:0]).shape == (0, len(fed.facts["features"]))


def test_the_target_too(fed: Federation) -> None:
    y = targets_of(kept(fed), rich())
    assert [fed.facts["labels"][i] for i in y] == rich().column("label").to_pylist()
    made = from_table(
        table(label=[float(i) ** 1.5 for i in range(N)]),
        client="site",
        target="label",
        standardise_target=True,
    )
    z = targets_of(kept(made), table(label=[float(i) for i in range(N)]))
    np.testing.assert_allclose(kept(made).in_units(z), range(N), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 9}, "has version 9, but this coterie reads version 1"),
        ({"columns": {}}, "columns of the preparation is {}, but must be a list"),
        ({"columns": [{"name": "a"}]}, "column 0 of the preparation lacks 'kind'"),
        ({"columns": [{"name": "a", "kind": "x"}]}, "kind of column 0 .* is 'x', but must be one"),
        (
            {"columns": [{"name": "a", "kind": "number", "scale": [1.0, 2.0]}]},
            "scale of column 0 of the preparation has 2 numbers, but must have 1",
        ),
        ({"features": ["a"]}, "the inputs and the columns of the preparation differ in 'a'"),
        ({"task": "ranking"}, "task of the preparation is 'ranking', but must be one of"),
        ({"colour": 1}, "the key of the preparation, 'colour' is unknown"),
        ({"target_mean": "1"}, "target_mean of the preparation is '1', but must be float"),
    ],
)
def test_a_damaged_file_is_one_sentence(
    fed: Federation, change: dict[str, Any], sentence: str
) -> None:
    config = fed.facts["prepared"].to_config()
    with pytest.raises(InvalidInput, match=sentence):
        Prepared.from_config({**config, **change})


def test_a_few_rows_of_text_may_look_like_something_else(tmp_path: Path) -> None:
    """Codes, words and dates of a short file are read as those of the training table were."""
    codes, words = ["01", "02", "x7"] * (N // 3), ["True", "False", "unknown"] * (N // 3)
    days = [f"{1 + i % 28:02d}-03-2024" for i in range(N)]
    fed = from_table(table(code=codes, word=words, day=days), client="site", target="label")
    rows = table(code=codes, word=words, day=days)[:2]
    pyarrow.csv.write_csv(rows, tmp_path / "t.csv")
    text = (tmp_path / "t.csv").read_text().replace('"', "")
    (tmp_path / "t.csv").write_text(text)
    assert pa.types.is_integer(pyarrow.csv.read_csv(tmp_path / "t.csv").schema.field("code").type)
    want = inputs_of(kept(fed), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        np.testing.assert_allclose(inputs_of(kept(fed), tmp_path / "t.csv"), want, atol=1e-6)
        new = newcomers_from_table(tmp_path / "t.csv", fed, test=0)
    np.testing.assert_allclose(np.sort(new.train.x, 0), np.sort(want, 0), atol=1e-6)
