"""Columns of a table by their names: whose rows they are, numbers, and what is said of gaps.

Numbers stay in double precision here: they become single precision after they are centred.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, nearest, notice
from coterie.data.partition import natural
from coterie.data.reading import is_text

MISSING = ("fill", "mean", "refuse")
"""What happens to missing values: see `from_table`."""
NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "null", "NULL")
"""What is often written where a value is missing; a client or a class may still be called so."""


def column_of(table: pa.Table, role: str, name: str) -> pa.ChunkedArray:
    if not isinstance(name, str):
        raise InvalidInput(f"{role} is {name!r}, but must be the name of a column.")
    if table.column_names.count(name) > 1:
        raise InvalidInput(
            f"the table has {table.column_names.count(name)} columns {name!r}; every column needs a"
            " name of its own."
        )
    if name in table.column_names:
        return table.column(name)
    shown = ", ".join(table.column_names[:8]) + (
        f" and {table.num_columns - 8} more" if table.num_columns > 8 else ""
    )
    hint = nearest(name, table.column_names).rstrip("?")
    raise InvalidInput(
        f"the {role} column {name!r} is not in the table{hint}; its columns are {shown}."
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def numbers_of(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers or true/false in double precision, NaN where there is none."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    # Whole numbers above 2⁵³ (nanoseconds) are rounded, which Arrow would refuse.
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary encoding (pandas categories)."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def gaps_in(role: str, name: str, count: int, rows: int, hint: str) -> InvalidInput:
    return InvalidInput(
        f"the {role} column {name!r} has {count} missing value{'s' if count != 1 else ''} in {rows}"
        f" rows{hint}."
    )


def refuse_gaps(name: str, count: int, rows: int) -> None:
    if count:
        raise gaps_in(
            "feature",
            name,
            count,
            rows,
            "; fill them, leave the column out with drop, or use missing = 'fill'",
        )


def coded(column: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.int64]]:
    """A column's different values, and the place of every row's value among them (−1: missing)."""
    made = plain(column).combine_chunks().dictionary_encode()
    codes = made.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return made.dictionary.to_pylist(), np.asarray(codes, np.int64)


def owners_of(column: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """Whose row each is, by number, and the clients' names in sorted order; every row needs an
    owner.
    """
    column = plain(column)
    kind = column.type
    if not (
        is_text(kind)
        or is_number(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_null(kind)
    ):
        encoding = ", encoded as UTF-8" if pa.types.is_binary(kind) else ""
        raise InvalidInput(
            f"the client column {name!r} is of type {kind}, but must hold text{encoding}, or"
            " numbers, dates or true/false."
        )
    values, codes = coded(column)
    missing = int(np.sum(codes < 0)) + sum(
        int(np.sum(codes == i)) for i, v in enumerate(values) if v != v
    )
    if missing or not values:
        raise gaps_in("client", name, missing, len(codes), "; every row needs an owner")
    owner, people = natural(values)
    return owner[codes], people


def say_null_words(column: pa.ChunkedArray, role: str, name: str) -> None:
    """Names of clients and classes are taken as they stand; say so where that may be a surprise."""
    if not is_text(column.type):
        return
    values, codes = coded(column)
    words = [w for w in NULL_WORDS if w in values]
    if words:
        rows = int(np.isin(codes, [values.index(w) for w in words]).sum())
        notice(
            f"the {role} column {name!r} has {rows} row{'s' if rows != 1 else ''} of"
            f" {listed(words)}, which are taken as they stand and not as missing."
        )


def check_missing(missing: str) -> None:
    if missing not in MISSING:
        raise InvalidInput(
            f"missing is {missing!r}, but must be one of {', '.join(map(repr, MISSING))}."
        )
