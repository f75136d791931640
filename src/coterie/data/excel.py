"""A sheet of an Excel workbook as an Arrow table."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from coterie.core.errors import InvalidInput, listed, notice, unknown
from coterie.data.columns import NULL_WORDS
from coterie.data.csvfiles import tidy

MOMENTS = (datetime.datetime, datetime.date)


def read_excel(path: Path, sheet: str | None, as_it_stands: Sequence[str]) -> pa.Table:
    """The first sheet, or the one that `sheet` names: a header, then a row per sample.

    Formulas count by the values that were saved with them.
    """
    try:
        import openpyxl
    except ImportError:
        raise InvalidInput(
            f"the table {str(path)!r} is an Excel workbook, and openpyxl, which reads them, is not"
            " installed: pip install 'coterie[excel]', or save it as CSV."
        ) from None
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    try:
        names = list(book.sheetnames)
        if sheet is not None and sheet not in names:
            raise unknown(f"the sheet of {path.name!r},", sheet, names)
        if sheet is None and len(names) > 1:
            notice(
                f"the workbook {path.name!r} has the sheets {listed(names)}; {names[0]!r} is read,"
                " and the option sheet names another."
            )
        rows = [list(row) for row in book[sheet or names[0]].iter_rows(values_only=True)]
    finally:
        book.close()
    while rows and all(cell is None for cell in rows[0]):
        rows.pop(0)
    if not rows:
        raise InvalidInput(f"the table {str(path)!r} is empty; its first row must name columns.")
    header = ["" if cell is None else str(cell).strip() for cell in rows[0]]
    width = max(len(row) for row in rows)
    header += [""] * (width - len(header))
    columns = [
        _column([row[i] if i < len(row) else None for row in rows[1:]], header[i] in as_it_stands)
        for i in range(width)
    ]
    return tidy(pa.Table.from_arrays(columns, names=header), path.name)


def _column(values: list[Any], stands: bool) -> pa.Array:
    """Cells of one type as that type, all others as text; "NA" and the like are missing, except
    where names stand.
    """
    cells = [
        None if v == "" or (isinstance(v, str) and v in NULL_WORDS and not stands) else v
        for v in values
    ]
    kinds = {type(v) for v in cells if v is not None}
    if not kinds or kinds <= {bool} or kinds <= {int} or kinds <= {datetime.time}:
        return pa.array(cells)
    if kinds <= {int, float}:
        return pa.array([None if v is None else float(v) for v in cells], pa.float64())
    if kinds <= set(MOMENTS):
        return pa.array(cells, pa.timestamp("us"))
    if kinds <= {datetime.timedelta}:
        return pa.array(cells, pa.duration("us"))
    return pa.array([None if v is None else _text(v) for v in cells], pa.string())


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
