"""Files as people have them are read, and what was found out is said."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie.core.errors import InvalidInput, Notice
from coterie.data import from_folder, from_table, get_source
from coterie.data.reading import read_table
from coterie.data.sniffing import Format

HEADER = ["site", "heat", "label"]
ROWS = [[("Köln", "Ulm")[i % 2], i + 0.25, ("high; low", "other")[i // 2 % 2]] for i in range(24)]


def written(separator: str = ",", decimal: str = ".", **options: Any) -> str:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, **options)
    writer.writerow(HEADER)
    writer.writerows([[a, str(b).replace(".", decimal), c] for a, b, c in ROWS])
    return out.getvalue()


def read(path: Path, **options: Any) -> dict[str, list[Any]]:
    made = read_table(path, ["site", "label"], ["site"], Format(**options)).to_pydict()
    assert list(made) == HEADER
    return made


def check(made: dict[str, list[Any]]) -> None:
    assert [list(row) for row in zip(*made.values(), strict=True)] == ROWS


@pytest.mark.parametrize(
    ("name", "separator", "decimal", "encoding", "said"),
    [
        ("t.csv", ",", ".", "utf-8", None),
        ("t.csv", ",", ".", "utf-8-sig", None),
        ("t.tsv", "\t", ".", "utf-8", None),
        ("t.csv", ";", ".", "utf-8", "looks ;-separated and is read so"),
        ("t.csv", ";", ",", "utf-8", "looks ;-separated, with decimal commas and is read so"),
        ("t.csv", "|", ".", "utf-8", r"looks \|-separated and is read so"),
        ("t.csv", "\t", ",", "utf-8", "looks tab-separated, with decimal commas"),
        ("t.tsv", ",", ".", "utf-8", "looks comma-separated"),
        ("t.txt", "\t", ",", "utf-16", "looks like UTF-16, tab-separated, with decimal commas"),
        ("t.csv", ",", ".", "utf-16-le", "looks like UTF-16-LE"),
        ("t.csv", ",", ".", "utf-16-be", "looks like UTF-16-BE"),
        ("t.csv", ",", ".", "utf-32", "looks like UTF-32"),
        ("t.csv", ";", ",", "latin-1", r"looks like Latin-1 \(cp1252\), ;-separated, with"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_unusual_is_said(
    tmp_path: Path,
    name: str,
    separator: str,
    decimal: str,
    encoding: str,
    said: str | None,
    packed: bool,
) -> None:
    path = tmp_path / (f"{name}.gz" if packed else name)
    content = written(separator, decimal).encode(encoding)
    path.write_bytes(gzip.compress(content) if packed else content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(read(path))
    sentences = [str(w.message) for w in caught if issubclass(w.category, Notice)]
    assert len(sentences) == (said is not None)
    if said is not None:
        assert re.search(said, sentences[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        check(read(path, separator=separator, decimal=decimal, encoding=encoding))


def test_a_packed_file_under_another_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(gzip.compress(written().encode()))
    with pytest.warns(Notice, match="looks gzip-compressed"):
        check(read(tmp_path / "t.csv"))


def test_a_file_that_is_utf_8_only_in_its_beginning(tmp_path: Path) -> None:
    """The end of a large file is not looked at beforehand."""
    lines = ["site,heat,label", *(f"Ulm,{i}.5,x" for i in range(30_000)), "Köln,1.5,y"]
    (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.warns(Notice, match="looks like Latin-1"):
        assert read(tmp_path / "t.csv")["site"][-1] == "Köln"


def test_what_excel_writes(tmp_path: Path) -> None:
    """The line that names the separator, empty columns and rows at the end, thousands."""
    lines = ["sep=;", "site;heat;label;;", "A;1.234,5;x;;", "B;12,25;y;;", "A;-1.000.000;x;;"]
    (tmp_path / "t.csv").write_text("\r\n".join([*lines, ";;;;", ";;;;", ""]), encoding="utf-8-sig")
    with pytest.warns(Notice) as said:
        made = read(tmp_path / "t.csv")
    assert made["heat"] == [1234.5, 12.25, -1_000_000.0]
    assert made["site"] == ["A", "B", "A"]
    sentences = " ".join(str(w.message) for w in said)
    assert "2 empty rows of the table 't.csv' are left out" in sentences
    assert "the column 'heat' of the table holds numbers with separators of thousands" in sentences


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1,234", "12", "1,234,567.5"], [1234.0, 12.0, 1234567.5]),
        (["1,5", "12", "-0,25"], [1.5, 12.0, -0.25]),
        (["1 234,5", "12,0", "7"], [1234.5, 12.0, 7.0]),
        (["1'234.5", "12", "7"], [1234.5, 12.0, 7.0]),
        (["1,234", "1,2", "1"], [1.234, 1.2, 1.0]),
        (["1,234", "x", "1"], None),
        (["1.2.3", "1.2.4", "1.2.5"], None),
    ],
)
def test_numbers_in_quotes(tmp_path: Path, cells: list[str], numbers: list[float] | None) -> None:
    lines = [f'A,"{cell}",x' for cell in cells]
    (tmp_path / "t.csv").write_text("\n".join(["site,heat,label", *lines]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert read(tmp_path / "t.csv")["heat"] == (cells if numbers is None else numbers)
    assert len(said) == (numbers is not None)


def test_an_excel_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "readings"
    sheet.append([*HEADER, "when", "on", "mixed", None])
    for i, row in enumerate(ROWS):
        when = datetime.datetime(2024, 1, 1 + i, 12 * (i % 2))
        sheet.append([*row, when, bool(i % 3), "NA" if i == 3 else i])
    sheet.append([None] * 7)
    book.save(tmp_path / "t.xlsx")
    table = read_table(tmp_path / "t.xlsx", ["site", "label"])
    assert table.column_names == [*HEADER, "when", "on", "mixed"]
    check(table.select(HEADER).to_pydict())
    assert table.column("mixed").to_pylist()[2:5] == [2, None, 4]
    with pytest.warns(Notice, match="the column 'mixed' has 1 missing value"):
        fed = from_table(tmp_path / "t.xlsx", client="site", target="label")
    kinds = {column.name: column.kind for column in fed.facts["prepared"].columns}
    assert kinds == {"heat": "number", "when": "date", "on": "boolean", "mixed": "number"}
    book.create_sheet("notes").append(["nothing"])
    book.save(tmp_path / "t.xlsx")
    with pytest.warns(Notice, match="has the sheets 'readings' and 'notes'; 'readings' is read"):
        read_table(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx", written=Format(sheet="notes")).num_columns == 1
    with pytest.raises(InvalidInput, match=r"the sheet of 't\.xlsx', 'reading' is unknown"):
        read_table(tmp_path / "t.xlsx", written=Format(sheet="reading"))


def test_excel_without_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[excel\]', or save it as CSV"):
        read_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"separator": ";;"}, "separator is ';;', but must be one character"),
        ({"decimal": "'"}, "decimal is \"'\", but must be '.' or ','"),
        ({"encoding": "utf-7000"}, "encoding is 'utf-7000', but must be one that Python knows"),
        ({"separator": ",", "decimal": ","}, "decimal and separator are both ',' for 't.csv'"),
        ({"encoding": "utf-16"}, "is not written in utf-16; the option encoding says"),
    ],
)
def test_what_is_said_wrongly(tmp_path: Path, options: dict[str, str], sentence: str) -> None:
    (tmp_path / "t.csv").write_text("site,heat,label\nA,1,x\n")
    with pytest.raises(InvalidInput, match=sentence) as caught:
        from_table(tmp_path / "t.csv", client="site", target="label", **options)
    assert "\n" not in str(caught.value)


def test_as_options_of_a_source_and_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(written(";", ","), encoding="utf-16")
    options = {"separator": ";", "decimal": ",", "encoding": "utf-16"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        made = get_source(
            "table",
            {"path": str(tmp_path / "t.csv"), "client": "site", "target": "label"} | options,
        ).load(0)
        assert made.facts["clients"] == ["Köln", "Ulm"]
        (tmp_path / "clients").mkdir()
        for name in ("a", "b"):
            content = (tmp_path / "t.csv").read_bytes()
            (tmp_path / "clients" / f"{name}.csv").write_bytes(content)
        fed = from_folder(tmp_path / "clients", target="label", drop=["site"], **options)
    assert fed.clients == 2


LETTERS = st.text(st.sampled_from("ab äöüß,;|\t\"'.0n\n=é"), max_size=6)
NUMBERS = st.floats(-1e6, 1e6).map(lambda v: round(v, 3) + 0.0625)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(LETTERS, NUMBERS, LETTERS), min_size=2, max_size=8),
    separator=st.sampled_from(",;|\t"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "latin-1", "cp1252"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    end=st.sampled_from(["\n", "\r\n"]),
    comma=st.booleans(),
    packed=st.booleans(),
)
@example([("a,b;c", 0.0625, ""), ("", 0.0625, "1")], ";", "utf-16", csv.QUOTE_ALL, "\n", True, True)
def test_any_way_of_writing_a_table_reads_back_the_same(
    rows: list[tuple[str, float, str]],
    separator: str,
    encoding: str,
    quoting: Any,
    end: str,
    comma: bool,
    packed: bool,
) -> None:
    decimal = "," if comma and separator != "," else "."
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=end)
    writer.writerow(HEADER)
    for site, heat, label in rows:
        writer.writerow(["s" + site, repr(heat).replace(".", decimal), "l" + label])
    content = out.getvalue().encode(encoding)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", Notice)
        path = Path(folder, "t.csv")
        path.write_bytes(gzip.compress(content) if packed else content)
        made = read(path)
    assert made["site"] == ["s" + site for site, _, _ in rows]
    assert made["label"] == ["l" + label for _, _, label in rows]
    np.testing.assert_array_equal(made["heat"], [heat for _, heat, _ in rows])
