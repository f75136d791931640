"""Your own data: what is understood, and what is refused in one sentence that names the column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from coterie.core.errors import InvalidInput
from coterie.data import from_table
from tests.support.tables import N, columns, table


def make(**changes: Any) -> Any:
    return from_table(table(**changes), client="site", target="label")


def test_types_become_numbers() -> None:
    fed = from_table(table(), client="site", target="label", standardise=False)
    assert fed.clients == 3
    assert fed.task == "classification"
    assert fed.facts["labels"] == ["no", "yes"]
    assert fed.facts["clients"] == ["site 0", "site 1", "site 2"]
    assert fed.facts["features"] == [
        "heat",
        "count",
        "on",
        "colour=blue",
        "colour=green",
        "colour=red",
    ]
    x = np.concatenate([s.x for s in fed.splits])
    assert sum(s.sizes for s in fed.splits).tolist() == [20, 20, 20]
    np.testing.assert_array_equal(x[:, 3:].sum(1), 1)
    assert set(x[:, 2]) == {0, 1}
    # A row keeps its own values: colour follows from the client, "on" from the label in this table.
    for k, colour in enumerate(("red", "blue", "green")):
        rows, y = fed.train.client(k)
        assert np.all(rows[:, 3 + ("blue", "green", "red").index(colour)] == 1)
        np.testing.assert_array_equal(rows[:, 2], 1 - y)


def test_every_container_gives_the_same_federation(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    arrow = table()
    pyarrow.parquet.write_table(arrow, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(arrow, tmp_path / "t.csv")
    frame = pandas.DataFrame(columns())
    frame["colour"] = frame["colour"].astype("category")
    np.savez(tmp_path / "t.npz", **{k: np.array(v) for k, v in columns().items()})
    (tmp_path / "t.tsv").write_text((tmp_path / "t.csv").read_text().replace(",", "\t"))
    given = [
        tmp_path / "t.parquet",
        str(tmp_path / "t.csv"),
        tmp_path / "t.npz",
        tmp_path / "t.tsv",
        frame,
        columns(),
        Looks(),
        LikesArrow(),
        Bare(),
    ]
    want = make()
    for data in given:
        fed = from_table(data, client="site", target="label")
        assert fed.facts["features"] == want.facts["features"]
        assert fed.facts["labels"] == want.facts["labels"]
        for mine, theirs in zip(fed.splits, want.splits, strict=True):
            np.testing.assert_allclose(mine.x, theirs.x, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(mine.y, theirs.y)


class Looks:
    """Behaves like a Hugging Face Dataset that only gives dictionaries."""

    column_names = tuple(columns())

    def to_dict(self) -> dict[str, Any]:
        return columns()


class LikesArrow:
    """Behaves like a Hugging Face Dataset: with_format("arrow")[:] is a table."""

    column_names = tuple(columns())

    def with_format(self, kind: str) -> LikesArrow:
        assert kind == "arrow"
        return self

    def __getitem__(self, key: slice) -> pa.Table:
        return table()


class Bare:
    """Gives columns by name and nothing else."""

    column_names = tuple(columns())

    def __getitem__(self, key: str) -> Any:
        return columns()[key]


def test_a_real_hugging_face_dataset() -> None:
    datasets = pytest.importorskip("datasets")
    fed = from_table(datasets.Dataset.from_dict(columns()), client="site", target="label")
    np.testing.assert_array_equal(fed.train.x, make().train.x)


@pytest.mark.parametrize(
    ("target", "options", "task", "classes"),
    [
        (list(np.arange(N) % 4), {}, "classification", 4),
        (list(np.arange(N)), {}, "regression", 0),
        (list(np.arange(N) / 3.0), {}, "regression", 0),
        ([i % 2 == 0 for i in range(N)], {}, "classification", 2),
        (list(np.arange(N)), {"task": "classification"}, "classification", N),
        (list(np.arange(N) % 3 * 1.0), {"task": "classification"}, "classification", 3),
        (list(np.arange(N) % 4), {"task": "regression"}, "regression", 0),
        (list(np.arange(N) % 30), {"most_classes": 30}, "classification", 30),
    ],
)
def test_what_the_target_means(
    target: list[Any], options: dict[str, Any], task: str, classes: int
) -> None:
    fed = from_table(table(label=target), client="site", target="label", **options)
    assert (fed.task, fed.classes) == (task, classes)
    if task == "regression":
        assert sorted(np.concatenate([s.y for s in fed.splits])) == pytest.approx(
            sorted(np.asarray(target, float))
        )


def test_labels_keep_their_order_as_numbers() -> None:
    fed = from_table(
        table(label=[(10, 9, 2)[i % 3] for i in range(N)]), client="site", target="label"
    )
    assert fed.facts["labels"] == ["2", "9", "10"]


def test_numeric_inputs_are_standardised_by_training_rows() -> None:
    fed = make()
    np.testing.assert_allclose(fed.train.x[:, :2].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(fed.train.x[:, :2].std(0), 1, atol=1e-5)
    assert set(np.unique(fed.train.x[:, 2:])) == {0, 1}
    assert np.abs(fed.test.x[:, :2].mean(0)).max() > 0.01


def test_standardised_regression_target() -> None:
    target = np.arange(N) * 1000.0
    fed = from_table(
        table(label=target.tolist()), client="site", target="label", standardise_target=True
    )
    assert abs(float(fed.train.y.mean())) < 1e-5
    back = fed.train.y * fed.facts["target_scale"] + fed.facts["target_mean"]
    assert set(np.round(back)) <= set(target)


def test_missing_numbers_become_the_training_mean() -> None:
    heat: list[float | None] = columns()["heat"]
    gaps = range(0, N, 7)
    holed = [None if i in gaps else v for i, v in enumerate(heat)]
    fed = from_table(
        table(heat=holed, number=list(range(N))),
        client="site",
        target="label",
        missing="mean",
        standardise=False,
    )
    number = fed.facts["features"].index("number")
    mean = np.mean([heat[int(i)] for i in fed.train.x[:, number] if int(i) not in gaps])
    for split in fed.splits:
        for row in split.x:
            i = int(row[number])
            assert row[0] == pytest.approx(mean if i in gaps else heat[i], rel=1e-5)


def test_missing_categories_become_zeros() -> None:
    colour: list[str | None] = columns()["colour"]
    colour[0] = None
    fed = from_table(
        table(colour=colour), client="site", target="label", missing="mean", standardise=False
    )
    x = np.concatenate([s.x for s in fed.splits])
    assert sorted(x[:, 3:].sum(1))[:2] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "options", "sentence"),
    [
        (
            {},
            {"client": "sit"},
            (
                "the client column 'sit' is not in the table; did you mean 'site'; its columns are"
                " site, heat"
            ),
        ),
        (
            {},
            {"target": "lable"},
            "the target column 'lable' is not in the table; did you mean 'label'",
        ),
        (
            {},
            {"drop": ["haet"]},
            "the feature column 'haet' is not in the table; did you mean 'heat'",
        ),
        ({}, {"target": "site"}, "'site' is named both as the client and as the target column"),
        (
            {"heat": [None, float("nan"), *range(N - 2)]},
            {"missing": "refuse"},
            "the feature column 'heat' has 2 missing values in 60 rows; fill them",
        ),
        ({"heat": [float("inf"), *range(N - 1)]}, {}, "the feature column 'heat' holds infinity"),
        ({"heat": [None] * N}, {"missing": "refuse"}, "the feature column 'heat' is empty"),
        (
            {"colour": [None, *["red"] * (N - 1)]},
            {"missing": "refuse"},
            "the feature column 'colour' has 1 missing value in 60 rows",
        ),
        (
            {"colour": [f"note {i}" for i in range(N)]},
            {"keep": ["colour"]},
            (
                "the feature column 'colour' is not numeric and has 60 different values, more than"
                " the 50"
            ),
        ),
        (
            {"heat": pa.array([b"0"] * N, pa.binary())},
            {},
            "the feature column 'heat' is of type binary, which is neither numbers",
        ),
        (
            {"heat": [[1.0]] * (N - 1) + [[1.0, 2.0]]},
            {},
            "the feature column 'heat' holds lists of different lengths",
        ),
        (
            {"site": [None, *["a"] * (N - 1)]},
            {},
            "the client column 'site' has 1 missing value in 60 rows; every row needs an owner",
        ),
        (
            {"label": [None, *["a", "b"] * 29, "a"]},
            {},
            "the target column 'label' has 1 missing value in 60 rows; leave those rows out",
        ),
        (
            {"label": [float("nan"), *range(N - 1)]},
            {},
            "the target column 'label' has 1 missing value in 60 rows or infinite",
        ),
        ({"label": ["a"] * N}, {}, "the target column 'label' has the same value in every row"),
        (
            {},
            {"task": "regression"},
            "the target column 'label' is of type string, but regression needs numbers",
        ),
        ({}, {"task": "ranking"}, "task is 'ranking', but must be"),
        ({}, {"missing": "zero"}, "missing is 'zero', but must be one of 'fill', 'mean', 'refuse'"),
        (
            {"label": pa.array([0] * N, pa.date32())},
            {},
            "the target column 'label' is of type date32.* but must hold numbers",
        ),
        (
            {"heat": None, "count": None, "on": None, "colour": None},
            {},
            "the table has no feature columns",
        ),
    ],
)
def test_refused_by_name(changes: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence) as caught:
        from_table(table(**changes), **{"client": "site", "target": "label", **options})
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_vectors_in_a_column() -> None:
    fed = from_table(
        table(heat=[[float(i), 2.0, 3.0] for i in range(N)]),
        client="site",
        target="label",
        features=["heat"],
    )
    assert fed.facts["features"] == ["heat[0]", "heat[1]", "heat[2]"]
    assert fed.input_shape == (3,)


def test_a_client_with_one_row_is_reported() -> None:
    fed = make(site=["lonely"] + ["a"] * 30 + ["b"] * 29)
    assert fed.facts["no_test"] == [fed.facts["clients"].index("lonely")]
    assert fed.train.sizes[fed.facts["no_test"][0]] == 1
