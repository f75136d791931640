"""What is decided for people when their table is read: handled and said, or refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coterie.core.errors import InvalidInput, Notice
from coterie.data import Federation, from_folder, from_table
from tests.support.tables import N, columns, table

USUAL = ["heat", "count", "on", "colour=blue", "colour=green", "colour=red"]


def make(data: Any, **options: Any) -> Federation:
    return from_table(data, **{"client": "site", "target": "label", **options})


def quiet(data: Any, **options: Any) -> Federation:
    """Read without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        return make(data, **options)


# ---- index columns -------------------------------------------------------------------------------


def test_the_index_that_pandas_writes_is_no_feature(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns())
    frame.to_csv(tmp_path / "t.csv")
    with pytest.warns(Notice, match="the nameless column of the table is left out") as said:
        fed = make(tmp_path / "t.csv")
    assert fed.facts["features"] == USUAL
    assert [w.filename for w in said if issubclass(w.category, Notice)] == [__file__]
    np.testing.assert_array_equal(fed.train.y, make(frame).train.y)
    pandas.read_csv(tmp_path / "t.csv").to_csv(tmp_path / "twice.csv", index=False)
    with pytest.warns(Notice, match="the column 'Unnamed: 0' of the table is left out"):
        assert make(tmp_path / "twice.csv").facts["features"] == USUAL
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "t.parquet")
    with pytest.warns(Notice, match="the column '__index_level_0__' of the table is left out"):
        assert make(tmp_path / "t.parquet").facts["features"] == USUAL
    named = frame.assign(row=[f"patient {i}" for i in range(N)]).set_index("row")
    named.to_parquet(tmp_path / "named.parquet")
    with pytest.warns(Notice, match="the column 'row' of the table is left out.* index"):
        assert make(tmp_path / "named.parquet").facts["features"] == USUAL
    frame.set_index("site").to_parquet(tmp_path / "site.parquet")
    assert quiet(tmp_path / "site.parquet").facts["features"] == USUAL


def test_an_index_that_is_asked_for_is_used() -> None:
    with_index = {"": list(range(N)), **columns()}
    assert quiet(with_index, features=["", "heat"]).facts["features"] == ["", "heat"]
    assert quiet(with_index, drop=[""]).facts["features"] == USUAL


# ---- labels and clients --------------------------------------------------------------------------


def test_spaces_around_labels_make_no_class() -> None:
    labels = [("yes", "no", "yes ", " no")[i % 4] for i in range(N)]
    with pytest.warns(Notice, match="spaces around labels of the target column 'label'"):
        fed = make(table(label=labels))
    assert fed.facts["labels"] == ["no", "yes"]
    assert quiet(table()).facts["labels"] == ["no", "yes"]


def test_labels_that_differ_in_case_only() -> None:
    labels = [("Yes", "no", "yes ", "no")[i % 4] for i in range(N)]
    with (
        pytest.warns(Notice),
        pytest.raises(InvalidInput, match="has the labels 'Yes' and 'yes', which differ in case"),
    ):
        make(table(label=labels))
    with pytest.warns(Notice, match="'Yes' and 'yes' of the target column 'label' are taken"):
        fed = make(table(label=labels), label_case="merge")
    assert fed.classes == 2
    with pytest.warns(Notice, match="spaces"):
        assert make(table(label=labels), label_case="keep").facts["labels"] == ["Yes", "no", "yes"]
    with pytest.raises(InvalidInput, match="label_case is 'x', but must be 'merge' or 'keep'"):
        make(table(), label_case="x")


def test_whole_numbers_written_as_floats_are_classes() -> None:
    with pytest.warns(Notice, match=r"holds 2 different whole numbers .*task = 'regression'"):
        fed = make(table(label=[float(i % 2) for i in range(N)]))
    assert (fed.task, fed.facts["labels"]) == ("classification", ["0", "1"])
    for task in ("classification", "regression"):
        assert quiet(table(label=[float(i % 2) for i in range(N)]), task=task).task == task
    assert quiet(table(label=[i * 1.0 for i in range(N)])).task == "regression"
    assert quiet(table(label=[i % 2 / 2 for i in range(N)])).task == "regression"


def test_a_site_called_na_is_a_site(tmp_path: Path) -> None:
    sites = [("NA", "EU", "nan")[i % 3] for i in range(N)]
    pyarrow.csv.write_csv(table(site=sites), tmp_path / "t.csv")
    with pytest.warns(
        Notice, match="the client column 'site' has 40 rows of 'NA' and 'nan', which"
    ):
        fed = make(tmp_path / "t.csv")
    assert fed.facts["clients"] == ["EU", "NA", "nan"]
    with pytest.warns(Notice, match="of 'NA' and 'nan'"):
        assert make(table(site=sites)).facts["clients"] == ["EU", "NA", "nan"]
    text = (tmp_path / "t.csv").read_text().replace('"EU"', '""')
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidInput, match="the client column 'site' has 20 missing values in 60"):
        make(tmp_path / "t.csv")


def test_so_is_a_label(tmp_path: Path) -> None:
    labels = [("NA", "EU")[i % 2] for i in range(N)]
    pyarrow.csv.write_csv(table(label=labels), tmp_path / "t.csv")
    with pytest.warns(Notice, match="the target column 'label' has 30 rows of 'NA', which"):
        assert make(tmp_path / "t.csv").facts["labels"] == ["EU", "NA"]
    (tmp_path / "clients").mkdir()
    for name in ("a", "b"):
        pyarrow.csv.write_csv(table(label=labels, site=None), tmp_path / "clients" / f"{name}.csv")
    with pytest.warns(Notice):
        fed = from_folder(tmp_path / "clients", target="label")
    assert fed.facts["labels"] == ["EU", "NA"]


def test_na_among_numbers_is_missing(tmp_path: Path) -> None:
    head = "site,heat,label\n"
    rows = [f"{i % 2},{i},{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text(head + "\n".join([*rows, "NA,1,1"]))
    with pytest.raises(InvalidInput, match="the client column 'site' has 1 missing value"):
        make(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(head + "\n".join([*rows, "1,NA,1"]))
    with pytest.raises(InvalidInput, match="the feature column 'heat' has 1 missing value"):
        make(tmp_path / "t.csv", missing="refuse")
    (tmp_path / "t.csv").write_text(head + "\n".join([*rows, "1,1,NA"]))
    with pytest.raises(InvalidInput, match="the target column 'label' has 1 missing value"):
        make(tmp_path / "t.csv")


# ---- columns without a value ---------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["refuse", "mean"])
@pytest.mark.parametrize("nothing", [float("nan"), None])
def test_an_empty_column_is_refused(missing: str, nothing: float | None) -> None:
    empty = pa.array([nothing] * N, pa.float64())
    with pytest.raises(InvalidInput, match="column 'heat' is empty; leave it out with drop"):
        make(table(heat=empty), missing=missing)


def test_a_column_that_no_training_row_has_is_refused() -> None:
    whole = quiet(table(number=list(range(N))), standardise=False)
    number = whole.facts["features"].index("number")
    tested = {int(i) for i in whole.test.x[:, number]}
    heat = [float(i) if i in tested else None for i in range(N)]
    with pytest.raises(
        InvalidInput, match="column 'heat' has no value in any training row, so there is no mean"
    ):
        make(table(heat=heat, number=list(range(N))), missing="mean")


# ---- what used to be a traceback -----------------------------------------------------------------


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    twice = "the table has 2 columns 'heat'; every column needs a name of its own"
    (tmp_path / "t.csv").write_text("site,heat,heat,label\na,1,2,x\nb,3,4,y\n")
    with pytest.raises(InvalidInput, match=twice):
        make(tmp_path / "t.csv")
    frame = pandas.DataFrame([["a", 1, 2, "x"]], columns=["site", "heat", "heat", "label"])
    with pytest.raises(InvalidInput, match=twice):
        make(frame)
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients" / "a.csv").write_text("heat,heat,label\n1,2,x\n3,4,y\n")
    with pytest.raises(InvalidInput, match=twice):
        from_folder(tmp_path / "clients", target="label")


def test_a_truncated_parquet_is_one_sentence(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(table(), tmp_path / "t.parquet")
    whole = (tmp_path / "t.parquet").read_bytes()
    for end in (0, 4, len(whole) // 2, len(whole) - 1):
        (tmp_path / "t.parquet").write_bytes(whole[:end])
        with pytest.raises(InvalidInput, match=r"t\.parquet' cannot be read: .+\.$") as caught:
            make(tmp_path / "t.parquet")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (columns(heat=[[1.0], [1.0, 2.0]] * 30), {}, "'heat' .* cannot be made an array"),
        (columns(heat=[1j] * N), {}, "column 'heat' .* is of type complex128"),
        ({"site": 1, "label": 2}, {}, "'site' of the dictionary is a single value"),
        ({}, {}, "the dictionary is empty"),
        (columns(site=[[1.0]] * N), {"client": "site"}, "column 'site' is not in the table"),
        (table(site=pa.array([["a"]] * N)), {}, "the client column 'site' is of type list"),
        (table(site=pa.array([b"\xff"] * N)), {}, "the client column 'site' is of type binary"),
        (table(site=[float("nan"), *[1.0, 2.0] * 29, 1.0]), {}, "'site' has 1 missing value"),
        (columns(), {"client": None}, "client is None, but must be the name of a column"),
        (columns(), {"target": ["label"]}, r"target is \['label'\], but must be the name of a"),
        (columns(), {"drop": "heat"}, "drop is 'heat', but must be a list of names of columns"),
        (columns(), {"features": [1]}, r"features is \[1\], but must be a list of names"),
        (None, {}, "the table is of type NoneType, but must be a path"),
        (np.zeros((3, 3)), {}, "the table is of type ndarray, but must be a path"),
    ],
)
def test_refused_in_one_sentence(data: Any, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        make(data, **options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_csv_in_another_encoding_is_read_and_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("site,heat,label\nKöln,1,x\nUlm,2,y\n".encode("latin-1"))
    with pytest.warns(Notice, match=r"'t\.csv' looks like Latin-1 \(cp1252\) and is read so"):
        assert make(tmp_path / "t.csv").facts["clients"] == ["Köln", "Ulm"]


def test_codes_of_sites_keep_their_leading_zeros(tmp_path: Path) -> None:
    rows = [f"{('01', '1', '10')[i % 3]},{i}.5,{'xy'[i % 2]}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["site,heat,label", *rows]))
    assert make(tmp_path / "t.csv").facts["clients"] == ["01", "1", "10"]
    rows = [f"{(2, 1, 10)[i % 3]},{i}.5,{'xy'[i % 2]}" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["site,heat,label", *rows]))
    assert make(tmp_path / "t.csv").facts["clients"] == ["1", "2", "10"]


def test_sites_that_differ_in_case_or_spaces_only_are_said() -> None:
    sites = [("Ulm", "ulm ", "Bonn")[i % 3] for i in range(N)]
    with pytest.warns(Notice, match="the clients 'Ulm' and 'ulm ' differ in case or spaces only"):
        assert make(table(site=sites)).clients == 3
