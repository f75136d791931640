"""What a column is taken for, what is left out, and how that is said."""

from __future__ import annotations

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from coterie.cli.main import app
from coterie.core.errors import InvalidInput, Notice
from coterie.data import Federation, from_table
from coterie.data.dates import order_of, seconds_in_text
from coterie.data.explain import explain
from coterie.data.prepared import inputs_of
from tests.support.tables import N, table


def make(data: Any = None, **options: Any) -> Federation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        given = table() if data is None else data
        return from_table(given, **{"client": "site", "target": "label", **options})


def utc(*when: int) -> float:
    return datetime.datetime(*when, tzinfo=datetime.UTC).timestamp()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "order", "seconds"),
    [
        ("2024-02-29", "ymd", utc(2024, 2, 29)),
        ("2024/2/9 7:05", "ymd", utc(2024, 2, 9, 7, 5)),
        ("2024-02-29T23:59:58.5Z", "ymd", utc(2024, 2, 29, 23, 59, 58) + 0.5),
        ("2024-02-29 12:00:00+02:00", "ymd", utc(2024, 2, 29, 10)),
        ("2024-02-29 12:00-0530", "ymd", utc(2024, 2, 29, 17, 30)),
        ("29.02.2024", "dmy", utc(2024, 2, 29)),
        ("29.2.2024 18:30", "dmy", utc(2024, 2, 29, 18, 30)),
        ("29/02/24", "dmy", utc(2024, 2, 29)),
        ("31/12/99", "dmy", utc(1999, 12, 31)),
        ("29 Feb 2024", "dmy", utc(2024, 2, 29)),
        ("29-February-2024", "dmy", utc(2024, 2, 29)),
        ("02/29/2024 12:15 AM", "mdy", utc(2024, 2, 29, 0, 15)),
        ("Feb 29, 2024 12:15 pm", "mdy", utc(2024, 2, 29, 12, 15)),
        ("7:30", "time", 7.5 * 3600),
        ("07:30:15 PM", "time", 19.5 * 3600 + 15),
        ("2023-02-29", "ymd", None),
        ("31.04.2024", "dmy", None),
        ("2024-13-01", "ymd", None),
        ("2024-01-01 24:00", "ymd", None),
        ("2024-01-01 07:60", "ymd", None),
        ("2024-01-01 13:00 PM", "ymd", None),
        ("1.2.24", "dmy", None),
        ("12 Foo 2024", "dmy", None),
        ("20240229", "ymd", None),
    ],
)
def test_texts_that_are_dates(text: str, order: str, seconds: float | None) -> None:
    found = seconds_in_text(pa.array([text]), order)[0]
    assert np.isnan(found) if seconds is None else found == seconds


def test_the_order_of_day_and_month_is_found_or_asked_for() -> None:
    order = lambda texts, first=None: order_of(pa.array(texts), "when", first)
    assert order(["03/04/2024", "13/04/2024"]) == "dmy"
    assert order(["03/04/2024", "04/13/2024"]) == "mdy"
    assert order(["03.04.2024"]) == "dmy", "points are never month first"
    with pytest.raises(InvalidInput, match=r"'when' holds dates such as '03/04/2024', whose first"):
        order(["03/04/2024", "05/06/2024"])
    assert order(["03/04/2024"], True) == "dmy"
    assert order(["03/04/2024"], False) == "mdy"
    assert order(["red", "blue"]) == ""
    assert order([f"{d}.03.2024" for d in range(1, 31)] + ["unknown"]) == "dmy"
    assert order([f"{d}.03.2024" for d in range(1, 11)] + ["unknown"]) == "", "not nearly all"


WHEN = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=7 * i) for i in range(N)]


@pytest.mark.parametrize("standardise", [True, False])
def test_a_date_is_days_and_its_place_in_day_and_week(standardise: bool) -> None:
    fed = make(table(when=WHEN), features=["when"], standardise=standardise)
    x = inputs_of(fed.facts["prepared"], {"when": WHEN})
    days = np.array([(w - WHEN[0]).total_seconds() / 86_400 for w in WHEN])
    slope = np.polyfit(days, x[:, 0], 1)
    np.testing.assert_allclose(np.polyval(slope, days), x[:, 0], atol=1e-4)
    if not standardise:
        assert slope[0] == pytest.approx(1, abs=1e-5), "days"
    assert abs(np.concatenate([s.x for s in fed.splits])[:, 0].mean()) < 5, "centred"
    angle = np.arctan2(x[:, 1], x[:, 2]) / (2 * np.pi) * 24 % 24
    np.testing.assert_allclose(angle, [w.hour % 24 for w in WHEN], atol=1e-4)
    week = np.round(np.arctan2(x[:, 3], x[:, 4]) / (2 * np.pi) * 7 % 7).astype(int) % 7
    assert week.tolist() == [w.weekday() for w in WHEN]


def test_only_what_varies_of_a_date() -> None:
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=7 * i) for i in range(N)]
    clock = [datetime.time(i % 24) for i in range(N)]
    fed = make(table(day=days, clock=clock), features=["day", "clock"])
    assert fed.facts["features"] == ["day (days)", "clock (hour sin)", "clock (hour cos)"]


def test_text_arrow_and_zones_say_the_same() -> None:
    texts = [w.strftime("%d.%m.%Y %H:%M") for w in WHEN]
    zoned = pa.array(WHEN, pa.timestamp("ns", "UTC"))
    want = make(table(when=WHEN), features=["when"]).train.x
    for other in (texts, zoned, [w.isoformat() for w in WHEN]):
        np.testing.assert_array_equal(make(table(when=other), features=["when"]).train.x, want)


def test_a_few_texts_that_are_no_dates_are_missing() -> None:
    texts = ["soon", *(w.strftime("%d.%m.%Y") for w in WHEN[1:])]
    with pytest.warns(Notice, match="the column 'when' has 'soon', which is no date"):
        fed = from_table(table(when=texts), client="site", target="label")
    assert fed.facts["gaps"] == {"when": 1}


@pytest.mark.parametrize(
    "words", [("yes", "no"), ("Y", "N"), ("TRUE", "false"), ("1", "0"), ("on", "off"), ("T", "F")]
)
def test_words_for_true_and_false(words: tuple[str, str]) -> None:
    fed = make(table(on=[words[i % 2] for i in range(N)]), features=["on"])
    x = inputs_of(fed.facts["prepared"], {"on": [words[0], words[1], None]}, missing="mean")
    assert x[:2, 0].tolist() == [1, 0]
    assert fed.facts["features"] == ["on"]


IDS = {
    "text": [f"case {i:03d}" for i in range(N)],
    "case_id": [1000 + 7 * i for i in range(N)],
    "caseID": [1000 + 7 * i for i in range(N)],
}


@pytest.mark.parametrize("name", IDS)
def test_names_of_rows_are_left_out_and_named(name: str) -> None:
    with pytest.warns(Notice, match=f"the column '{name}' is left out: it has a value of its own"):
        fed = from_table(table(**{name: IDS[name]}), client="site", target="label")
    assert not any(feature.startswith(name) for feature in fed.facts["features"])
    assert name in fed.facts["left_out"]


def test_row_numbers_are_left_out_unless_they_are_kept() -> None:
    rows = {"site": ["a", "b"] * 60, "n": range(120), "x": np.arange(120.0), "label": [0, 1] * 60}
    with pytest.warns(Notice, match="the column 'n' is left out"):
        assert from_table(rows, client="site", target="label").facts["features"] == ["x"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        for options in ({"keep": ["n"]}, {"features": ["n", "x"]}):
            fed = from_table(rows, client="site", target="label", **options)
            assert fed.facts["features"] == ["n", "x"]


def test_what_is_no_name_of_a_row_stays() -> None:
    """Measurements may all differ, and an id may repeat."""
    fed = make(table(when=[10**18 + 17 * i for i in range(N)], plan_id=[i // 2 for i in range(N)]))
    assert {"when", "plan_id"} <= set(fed.facts["features"])


def test_a_column_without_values_is_left_out_and_named() -> None:
    with pytest.warns(Notice, match="the column 'heat' is left out: it has no value in any train"):
        fed = from_table(table(heat=[None] * N), client="site", target="label")
    assert fed.facts["left_out"]["heat"] == "no value in any training row"


def test_every_column_has_its_line() -> None:
    data = table(
        heat=[None if i % 7 == 0 else float(i) for i in range(N)],
        when=[w.strftime("%d.%m.%Y %H:%M") for w in WHEN],
        colour=[None, *["red", "blue"] * 29, "red"],
        case_id=IDS["case_id"],
        pair=[[1.0, float(i)] for i in range(N)],
        unit=[3] * N,
    )
    lines = {line.column: line for line in explain(make(data, drop=["count"]))}
    assert set(lines) == {*data.column_names}
    assert lines["site"][1:] == ("client", "3 clients")
    assert lines["label"][1:] == ("target", "2 classes: no, yes")
    assert lines["heat"].what.endswith("; 9 missing: the training mean, and an input that says so")
    assert lines["colour"].what == "2 inputs of 0 or 1: blue, red; 1 missing: none of them"
    assert lines["when"].taken_for == "date (day, month, year)"
    assert "days since 2024-01-" in lines["when"].what
    assert lines["unit"].what == "never varies in training: 0 everywhere"
    assert "1 of which never vary" in lines["pair"].what
    assert lines["case_id"].taken_for == lines["count"].taken_for == "left out"
    assert lines["count"].what == "as told (drop)"
    real = lines["heat"].what
    assert "minus" in real
    assert make().facts["prepared"].columns[0].mean[0] == pytest.approx(20, abs=3)


def test_the_command_line_explains(tmp_path: Path) -> None:
    rows = table(case_id=IDS["case_id"])
    pyarrow.csv.write_csv(rows, tmp_path / "t.csv")
    names = ["--client", "site", "--target", "label"]
    made = CliRunner().invoke(
        app, ["data", "explain", str(tmp_path / "t.csv"), *names, "-s", "data.drop=count"]
    )
    assert made.exit_code == 0, made.output
    for word in ("case_id", "left out", "as told (drop)", "2 classes: no, yes", "3 inputs of 0"):
        assert word in made.output
    made = CliRunner().invoke(app, ["data", "explain", str(tmp_path / "no.csv"), *names])
    assert made.exit_code != 0
    shown = CliRunner().invoke(
        app,
        [
            *("data", "show", str(tmp_path / "t.csv"), "client=site", "target=label", "--explain"),
            *("--out", str(tmp_path)),
        ],
    )
    assert "what is done" in shown.output
