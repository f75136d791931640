"""CSV files as people have them: any separator and encoding, decimal commas, thousands, and what
Excel leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from coterie.core.errors import listed, notice
from coterie.data.sniffing import Format, Sniffed, not_in, sniff

CODE = r"^\s*[+-]?0[0-9]"
"""A whole number that is none: it would lose its leading zero."""
GROUPS = {
    ".": r"[+-]?(?:\d{1,3}(?:[,'\x{2019} \x{a0}\x{202f}]\d{3})+|\d+)(?:\.\d+)?",
    ",": r"[+-]?(?:\d{1,3}(?:[.'\x{2019} \x{a0}\x{202f}]\d{3})+|\d+)(?:,\d+)?",
}
"""Numbers with something between their thousands, by their decimal sign."""


def read_csv(
    path: Path,
    as_it_stands: Sequence[str],
    codes: Sequence[str],
    given: Format,
    texts: Sequence[str] = (),
) -> pa.Table:
    """A CSV file as an Arrow table; see `read_table`."""
    found = sniff(path, given, [*as_it_stands, *codes])
    forced = [name for name in dict.fromkeys([*as_it_stands, *codes]) if name in found.header]
    texts = [name for name in texts if name in found.header and name not in forced]
    table, encoding = _decoded(path, found, given, [*forced, *texts])
    also = ["like Latin-1 (cp1252)"] if found.encoding == "utf-8" != encoding else []
    for name in forced:
        if name in table.column_names:
            place = table.column_names.index(name)
            column = _inferred(table.column(place), found.decimal, code=name in codes)
            table = table.set_column(place, name, column)
    found.say(path, also)
    nulls = pa.array(null_words())
    for name in texts:
        place = table.column_names.index(name)
        table = table.set_column(place, name, _without(table.column(place), nulls))
    return tidy(_with_numbers(table, found.decimal, [*codes, *texts]), path.name)


def _decoded(
    path: Path, found: Sniffed, given: Format, forced: Sequence[str]
) -> tuple[pa.Table, str]:
    """The file, and its encoding: what looks like UTF-8 in the beginning may prove to be none."""
    order = ["utf-8", "cp1252", "latin-1"]
    named = given.encoding is not None or found.encoding not in order
    for encoding in [found.encoding] if named else order[order.index(found.encoding) :]:
        try:
            table = _read(path, found, encoding, forced)
        except (UnicodeError, pa.ArrowInvalid) as error:
            if isinstance(error, pa.ArrowInvalid) and "UTF8" not in str(error):
                raise
            continue
        if named or not _binary(table):
            return table, encoding
    raise not_in(path, found.encoding)


def _binary(table: pa.Table) -> bool:
    return any(pa.types.is_binary(kind) for kind in table.schema.types) or any(
        "\ufffd" in name for name in table.column_names
    )


def _read(path: Path, found: Sniffed, encoding: str, forced: Sequence[str]) -> pa.Table:
    """The file by Arrow. Text stands as it is written, in all columns."""
    from pyarrow import csv

    def once(newlines: bool) -> pa.Table:
        stream = pa.input_stream(str(path), compression="gzip" if found.packed else None)
        with stream:
            return csv.read_csv(
                stream,
                read_options=csv.ReadOptions(encoding=encoding, skip_rows=found.skip),
                parse_options=csv.ParseOptions(
                    delimiter=found.separator, newlines_in_values=newlines
                ),
                convert_options=csv.ConvertOptions(
                    decimal_point=found.decimal,
                    column_types=dict.fromkeys(forced, pa.string()),
                ),
            )

    try:
        table = once(found.newlines)
    except pa.ArrowInvalid as error:
        if found.newlines or "columns" not in str(error):
            raise
        table = once(True)
    nulls = pa.array(null_words())
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) and field.name not in forced:
            table = table.set_column(place, field.name, _without(table.column(place), nulls))
    return table


def null_words() -> list[str]:
    """What Arrow takes for a missing value in a CSV file."""
    from pyarrow import csv

    return list(csv.ConvertOptions().null_values)


def _without(column: pa.ChunkedArray, words: pa.Array) -> pa.ChunkedArray:
    from pyarrow import compute

    there = compute.is_in(column, value_set=words)
    if not compute.any(there).as_py():
        return column
    return compute.if_else(there, pa.scalar(None, column.type), column)


def _inferred(column: pa.ChunkedArray, decimal: str, *, code: bool) -> pa.ChunkedArray:
    """A column that was read as text, of the type that its values have; text stands as it is, and
    only an empty cell is missing. Whole numbers with leading zeros stay text if it holds codes.
    """
    from pyarrow import compute, csv

    if not pa.types.is_string(column.type):
        return column
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.table({"v": column}), sink)
    made = csv.read_csv(
        pa.BufferReader(sink.getvalue()),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(decimal_point=decimal),
    ).column(0)
    texts = _without(column, pa.array([""]))
    if len(made) != len(column) or pa.types.is_string(made.type) or pa.types.is_null(made.type):
        return texts
    if code and pa.types.is_integer(made.type):
        found = compute.match_substring_regex(texts, CODE)
        return texts if compute.any(found).as_py() else made
    return made


def _with_numbers(table: pa.Table, decimal: str, codes: Sequence[str]) -> pa.Table:
    """Text columns that hold numbers only, with thousands or the other decimal sign, as numbers."""
    grouped: list[str] = []
    other: list[str] = []
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if not pa.types.is_string(field.type) or field.name in codes:
            continue
        for sign in (decimal, "," if decimal == "." else "."):
            made = _numbers(column, sign)
            if made is not None:
                table = table.set_column(place, field.name, made)
                (grouped if sign == decimal else other).append(field.name)
                break
    for names, what in ((grouped, "separators of thousands"), (other, "another decimal sign")):
        if names:
            many = "s" if len(names) > 1 else ""
            notice(
                f"the column{many} {listed(names)} of the table hold{'' if many else 's'} numbers"
                f" with {what} and {'are' if many else 'is'} read so."
            )
    return table


def _numbers(column: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    from pyarrow import compute

    pattern = rf"^\s*{GROUPS[decimal]}\s*$"
    some = column.slice(0, 100).drop_null()
    for part in (some, column):
        matched = compute.match_substring_regex(part, pattern)
        if not len(part.drop_null()) or not compute.all(matched).as_py():
            return None
    if not compute.any(compute.match_substring_regex(column, r"\d[^0-9]\d")).as_py():
        return None
    digits = compute.replace_substring_regex(column, r"[^0-9+\-.,]", "")
    digits = compute.replace_substring(digits, "," if decimal == "." else ".", "")
    digits = compute.replace_substring(digits, ",", ".")
    return digits.cast(pa.float64())


def tidy(table: pa.Table, name: str) -> pa.Table:
    """Without the empty columns that have no name and the empty rows that spreadsheets leave
    behind; rows are said.
    """
    from pyarrow import compute

    void = [
        i
        for i, title in enumerate(table.column_names)
        if not title.strip() and table.column(i).null_count == table.num_rows
    ]
    if void and len(void) < table.num_columns:
        kept = [i for i in range(table.num_columns) if i not in void]
        table = table.select(kept)
    gone: Any = None
    for column in sorted(table.columns, key=lambda c: c.null_count):
        if not column.null_count:
            return table
        gone = column.is_null() if gone is None else compute.and_(gone, column.is_null())
        if not compute.any(gone).as_py():
            return table
    if gone is None or not table.num_rows:
        return table
    count = compute.sum(gone).as_py()
    rows = f"{count} empty rows" if count != 1 else "1 empty row"
    notice(f"{rows} of the table {name!r} {'are' if count != 1 else 'is'} left out.")
    return table.filter(compute.invert(gone))
