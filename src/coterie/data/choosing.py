"""Which columns of a table become inputs, and of which kind; which are left out, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import column_of, numbers_of, plain
from coterie.data.dates import order_of
from coterie.data.kinds import Column, different, kind_of
from coterie.data.reading import is_text, without_index

NEARLY_UNIQUE = 0.9
"""Text with more categories than allowed is taken for names of rows, or for remarks, if at least
this share of its values are different.
"""
COUNTER = 100
"""From so many rows on, a column that counts them is taken for row numbers."""
ID = re.compile(r"(?:.*[^a-z])?(?:id|uuid|guid|rowid|rownum|rownumber)", re.IGNORECASE)
CAMEL = re.compile(r".*[a-z](?:Id|ID|Uuid|UUID)")


class Chosen(NamedTuple):
    """The kinds of the columns that become inputs, and why others do not."""

    kinds: list[Column]
    left_out: dict[str, str]


def choose(
    table: pa.Table,
    taken: Sequence[str],
    *,
    features: Sequence[str] | None,
    drop: Sequence[str],
    keep: Sequence[str],
    missing: str,
    most_categories: int,
    day_first: bool | None,
    rows: NDArray[np.int64],
) -> Chosen:
    """Go through the columns; `taken` are client and target, `rows` those of the training part."""
    for role, names in (("features", features or ()), ("drop", drop), ("keep", keep)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InvalidInput(f"{role} is {names!r}, but must be a list of names of columns.")
        for name in names:
            column_of(table, "feature", name)
    left_out = dict.fromkeys((n for n in drop if n not in taken), "as told (drop)")
    spoken = [*taken, *drop, *keep]
    known = list(features) if features else without_index(table, spoken)
    for name in () if features else table.column_names:
        if name not in known and name not in left_out:
            left_out[name] = "row index of pandas"
    sure = {*keep, *(features or ())}
    kinds: list[Column] = []
    unlike: list[str] = []
    for name in known:
        if name in taken or name in drop:
            continue
        column = table.column(name)
        why = _without_value(column, name, missing, rows)
        if not why and name not in sure and (why := _row_names(column, name, most_categories)):
            unlike.append(name)
        if why:
            left_out[name] = why
        else:
            kinds.append(kind_of(column, name, most_categories, day_first))
    _say(unlike, [n for n, why in left_out.items() if why.startswith("no value")])
    if not kinds:
        raise InvalidInput(
            "the table has no feature columns: nothing is left after the client and target columns"
            + (f" and without {listed(left_out)}." if left_out else ".")
        )
    return Chosen(kinds, left_out)


def _say(unlike: Sequence[str], void: Sequence[str]) -> None:
    for names, why in (
        (
            unlike,
            "{} a value of its own in nearly every row, like names or numbers of rows; keep uses",
        ),
        (void, "{} no value in any training row; drop names"),
    ):
        if names:
            many = len(names) > 1
            notice(
                f"the column{'s' if many else ''} {listed(names)} {'are' if many else 'is'} left"
                f" out: {why.format('they have' if many else 'it has')}"
                f" {'them' if many else 'it'}."
            )


def _without_value(
    column: pa.ChunkedArray, name: str, missing: str, rows: NDArray[np.int64]
) -> str:
    """Why a column without values is left out, or an empty string; refused unless gaps are
    filled.
    """
    gaps = _gaps(column)
    if gaps is None or not gaps[rows].all():
        return ""
    if missing == "fill":
        return "no value in any training row"
    if gaps.all():
        raise InvalidInput(f"the feature column {name!r} is empty; leave it out with drop.")
    return ""  # said with the name of the number, where means are formed


def _gaps(column: pa.ChunkedArray) -> NDArray[np.bool_] | None:
    """Where a column has no value; None if it has one in the first row that it has any."""
    floating = pa.types.is_floating(column.type)
    if not column.null_count and not floating:
        return None
    if floating and len(column) and column[0].is_valid and not np.isnan(column[0].as_py()):
        return None
    return np.asarray(column.is_null(nan_is_null=True))


def _row_names(column: pa.ChunkedArray, name: str, most_categories: int) -> str:
    """Why a column looks like names or numbers of rows rather than a measurement, or nothing."""
    column = plain(column)
    if is_text(column.type):
        there = len(column) - column.null_count
        if len(column.slice(0, 1000).drop_null().unique()) < min(there, 1000) / 2:
            return ""
        values = different(column)
        if len(values) <= most_categories or len(values) < NEARLY_UNIQUE * there:
            return ""
        texts = pa.array(values, pa.string())
        if order_of(texts, name, True):
            return ""
        return f"{len(values):,} different texts in {there:,} rows"
    if not pa.types.is_integer(column.type) or column.null_count or len(column) < 2:
        return ""
    begin = column[0].as_py()
    if len(column) >= COUNTER and begin in (0, 1):
        numbers = numbers_of(column)
        if np.array_equal(numbers, np.arange(begin, begin + len(numbers))):
            return "counts the rows"
    if (ID.fullmatch(name) or CAMEL.fullmatch(name)) and len(column) == len(column.unique()):
        return "a different whole number in every row, and called an id"
    return ""
