"""What kind of thing a column holds, and its values as numbers.

The same function reads a column in training and afterwards.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import coded, is_number, numbers_of, plain
from coterie.data.dates import (
    is_moment,
    numbers_of_moments,
    order_of,
    parts_of,
    seconds_in_text,
    seconds_of,
)
from coterie.data.reading import is_text

KINDS = ("number", "boolean", "category", "date", "list")
MOST_CATEGORIES = 50
WORDS = (("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"), ("off", "on"), ("0", "1"))
"""Text that means false and true; case does not count."""
GAP = "is missing"


@dataclasses.dataclass(frozen=True)
class Column:
    """What one column of a table is, and how its values become inputs.

    A column has `width` numbers. Each becomes one input, (number − mean) / scale; behind them
    stand 0/1 inputs that say which of the `flagged` numbers were missing.
    """

    name: str
    kind: str
    """"number"; "boolean" (0 or 1); "category" (one 0/1 number per value); "date" (see `parts`);
    "list" (as many numbers in every row).
    """
    values: tuple[str, ...] = ()
    """Of a category, in the order of its numbers."""
    length: int = 1
    """Of a list."""
    parts: tuple[str, ...] = ()
    """Of a date: which numbers it becomes (`coterie.data.dates.PARTS`)."""
    order: str = ""
    """Of dates written as text: in which order day, month and year stand ("ymd", "dmy", "mdy", or
    "time" for times of day).
    """
    fill: tuple[float, ...] = ()
    """What missing numbers become, before scaling; nothing: 0. A missing category is none of the
    values.
    """
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """Nothing: numbers are used as they are. Infinity: the number never varied in training and
    becomes 0.
    """
    flagged: tuple[int, ...] = ()
    """Which of the numbers have an input that says whether they were missing."""

    @property
    def width(self) -> int:
        """How many numbers a value is."""
        many = {"category": len(self.values), "date": len(self.parts), "list": self.length}
        return many.get(self.kind, 1)

    @property
    def titles(self) -> list[str]:
        """The names of the inputs."""
        made = {
            "category": [f"{self.name}={value}" for value in self.values],
            "date": [f"{self.name} ({part})" for part in self.parts],
            "list": [f"{self.name}[{i}]" for i in range(self.length)],
        }.get(self.kind, [self.name])
        return made + [f"{made[i]} {GAP}" for i in self.flagged]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which numbers are quantities (and are standardised), rather than 0/1 or on a circle."""
        if self.kind == "date":
            return np.array([part == "days" for part in self.parts])
        return np.full(self.width, self.kind in ("number", "list"))

    def fitted(self, fill: Any, mean: Any = None, scale: Any = None) -> Column:
        """With what missing numbers become and, for measured ones, mean and scale.

        Without a scale, dates are still centred: single precision cannot hold days since 1970.
        """
        if self.kind == "category":
            return self
        if scale is None:
            mean, scale = (fill, np.ones(self.width)) if self.kind == "date" else (None, None)
        made = dataclasses.replace(self, fill=_floats(fill), mean=(), scale=())
        if scale is None or not self.measured.any():
            return made
        return dataclasses.replace(
            made,
            mean=_floats(np.where(self.measured, mean, 0.0)),
            scale=_floats(np.where(self.measured, scale, 1.0)),
        )

    def inputs(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers with gaps (NaN) as inputs, in double precision."""
        gaps = np.isnan(numbers)
        x = np.where(gaps, self.fill or 0.0, numbers) if gaps.any() else numbers
        if self.scale:
            x = (x - np.array(self.mean)) / np.array(self.scale)
        if self.flagged:
            x = np.concatenate([x, gaps[:, self.flagged]], 1)
        return x


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def kind_of(
    column: pa.ChunkedArray,
    name: str,
    most_categories: int = MOST_CATEGORIES,
    day_first: bool | None = None,
) -> Column:
    """What a column is, by its type and, for text, by its values; or one sentence that names it."""
    column = plain(column)
    kind = column.type
    if is_list(kind):
        return Column(name, "list", length=_length(column, name))
    if pa.types.is_boolean(kind):
        return Column(name, "boolean")
    if is_number(kind) or pa.types.is_null(kind) or pa.types.is_duration(kind):
        return Column(name, "number")
    if is_moment(kind):
        return Column(
            name,
            "date",
            parts=parts_of(seconds_of(column), clock_only=pa.types.is_time(kind)),
        )
    if is_text(kind):
        return _text(column, name, most_categories, day_first)
    raise InvalidInput(
        f"the feature column {name!r} is of type {kind}, which is neither numbers nor text nor"
        " dates nor true/false; leave it out with drop."
    )


def different(column: pa.ChunkedArray) -> list[str]:
    """A text column's different values, sorted."""
    return sorted(v for v in column.unique().to_pylist() if v is not None)


def _text(
    column: pa.ChunkedArray, name: str, most_categories: int, day_first: bool | None
) -> Column:
    counted = column.drop_null().value_counts()
    texts, rows = counted.field("values"), np.asarray(counted.field("counts"))
    values = sorted(texts.to_pylist())
    if values and any({v.strip().lower() for v in values} <= set(pair) for pair in WORDS):
        return Column(name, "boolean")
    texts = texts.cast(pa.string())
    order = order_of(texts, name, day_first, rows)
    if order:
        seconds = seconds_in_text(texts, order)
        return Column(
            name, "date", parts=parts_of(seconds, clock_only=order == "time"), order=order
        )
    if len(values) > most_categories:
        raise InvalidInput(
            f"the feature column {name!r} is not numeric and has {len(values)} different values,"
            f" more than the {most_categories} that may become categories; leave it out with drop"
            " or raise most_categories."
        )
    return Column(name, "category", values=tuple(values))


def is_list(kind: pa.DataType) -> bool:
    """A vector of numbers in every row."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) and is_number(kind.value_type)


def _length(column: pa.ChunkedArray, name: str) -> int:
    from pyarrow import compute

    lengths = compute.list_value_length(column).unique().to_pylist()
    if len(lengths) != 1 or None in lengths:
        raise InvalidInput(
            f"the feature column {name!r} holds lists of different lengths; all must have as many"
            " numbers."
        )
    return int(lengths[0])


def numbers_in(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    """A column's values as `how.width` numbers each, NaN where one is missing; one sentence if the
    column is of another kind, or holds infinity.
    """
    column = plain(column)
    read = {
        "number": _read_number,
        "boolean": _read_boolean,
        "category": _read_category,
        "date": _read_date,
        "list": _read_list,
    }[how.kind]
    values = read(column, how)
    if np.isinf(values).any():
        raise InvalidInput(
            f"the feature column {how.name!r} holds infinity; inputs must be finite numbers."
        )
    return values


def _other_kind(column: pa.ChunkedArray, how: Column, wanted: str) -> InvalidInput:
    kind = f"is of type {column.type}"
    if is_text(column.type):
        example = next((v for v in column.unique().to_pylist() if v is not None), "")
        kind = f"holds text such as {example!r}"
    return InvalidInput(
        f"the column {how.name!r} {kind}, but held {wanted} when the model was trained; they must"
        " be of one kind."
    )


def _read_number(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    kind = column.type
    if pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
        return numbers_of(column)[:, None] / 1e6
    if is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return numbers_of(column)[:, None]
    raise _other_kind(column, how, "numbers")


def _read_boolean(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    kind = column.type
    if is_text(kind):
        values, codes = coded(column)
        meaning = {word: value for pair in WORDS for value, word in enumerate(pair)}
        words = [v.strip().lower() for v in values]
        odd = next((w for w in words if w not in meaning), None)
        if odd is not None:
            raise InvalidInput(
                f"the column {how.name!r} holds {odd!r}, but held true/false (or yes/no, 1/0) when"
                " the model was trained."
            )
        table = np.array([*(float(meaning[w]) for w in words), np.nan])
        return table[codes][:, None]
    if is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        numbers = numbers_of(column)[:, None]
        odd_one = numbers[~np.isnan(numbers) & (numbers != 0) & (numbers != 1)]
        if len(odd_one):
            raise InvalidInput(
                f"the column {how.name!r} holds {odd_one[0]:g}, but held true/false (1/0) when the"
                " model was trained."
            )
        return numbers
    raise _other_kind(column, how, "true/false")


def _read_category(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    try:
        values, codes = coded(column.cast(pa.string()))
    except pa.ArrowException:
        raise _other_kind(column, how, "text") from None
    places = {value: place for place, value in enumerate(how.values)}
    table = np.array([*(places.get(v, -1) for v in values), -1])
    found = table[codes]
    made = np.zeros((len(found), how.width))
    rows = np.flatnonzero(found >= 0)
    made[rows, found[rows]] = 1
    unknown = sorted(v for v in values if v not in places)
    if unknown:
        count = int(np.sum((found < 0) & (codes >= 0)))
        notice(
            f"the column {how.name!r} has {count} row{'s' if count != 1 else ''} of"
            f" {listed(unknown)}, which training did not know: there they are none of its"
            " categories."
        )
    return made


def _read_date(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    kind = column.type
    clock = "days" not in how.parts
    if pa.types.is_null(kind):
        return np.full((len(column), how.width), np.nan)
    if is_moment(kind) and pa.types.is_time(kind) == clock:
        return numbers_of_moments(seconds_of(column), how.parts)
    if not is_text(kind):
        raise _other_kind(column, how, "times of day" if clock else "dates")
    values, codes = coded(column)
    order = how.order or ("time" if clock else "ymd")
    seconds = seconds_in_text(pa.array(values, pa.string()), order)
    wrong = np.flatnonzero(np.isnan(seconds))
    if len(wrong):
        texts = [values[int(i)] for i in wrong]
        if len(wrong) == len(seconds):
            raise _other_kind(column, how, "times of day" if clock else f"dates ({order})")
        notice(
            f"the column {how.name!r} has {listed(texts)}, which"
            f" {'are no dates' if len(texts) > 1 else 'is no date'}; they are taken for missing."
        )
    return numbers_of_moments(np.append(seconds, np.nan)[codes], how.parts)


def _read_list(column: pa.ChunkedArray, how: Column) -> NDArray[np.float64]:
    if not is_list(column.type):
        raise _other_kind(column, how, f"lists of {how.length} numbers")
    length = _length(column, how.name) if len(column) else how.length
    if length != how.length:
        raise InvalidInput(
            f"the column {how.name!r} holds lists of {length} numbers, but held {how.length} when"
            " the model was trained."
        )
    flat = pa.chunked_array([column.combine_chunks().flatten()])
    return numbers_of(flat).reshape(len(column), how.length)
