"""What a table's columns mean: numbers are used as they are, true/false become 1/0, text and
categories become one column per value; anything else is refused by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, nearest
from coterie.data.federation import Task

MISSING = ("refuse", "mean")
MOST_CATEGORIES = 50
MOST_CLASSES = 20
"""A whole-number target with more different values than this is taken for a quantity, not for
classes.
"""


@dataclasses.dataclass(frozen=True)
class Features:
    """The inputs as one table of numbers; NaN where a number is missing."""

    x: NDArray[np.float32]
    names: list[str]
    quantity: NDArray[np.bool_]
    """Which columns are measured (and so are standardised), rather than 0/1."""


def column_of(table: pa.Table, role: str, name: str) -> pa.ChunkedArray:
    if name in table.column_names:
        return table.column(name)
    shown = ", ".join(table.column_names[:8]) + (
        f" and {table.num_columns - 8} more" if table.num_columns > 8 else ""
    )
    hint = nearest(name, table.column_names).rstrip("?")
    raise InvalidInput(
        f"the {role} column {name!r} is not in the table{hint}; its columns are {shown}."
    )


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def numbers_of(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers or true/false as floating point, NaN where there is none."""
    values = (
        column.cast(pa.float64())
        if not pa.types.is_boolean(column.type)
        else column.cast(pa.int8()).cast(pa.float64())
    )
    return np.asarray(values.to_numpy(), np.float64)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary encoding (pandas categories)."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def gaps_in(role: str, name: str, count: int, rows: int, hint: str) -> InvalidInput:
    return InvalidInput(
        f"the {role} column {name!r} has {count} missing value{'s' if count != 1 else ''} in {rows}"
        f" rows{hint}."
    )


def _expanded(column: pa.ChunkedArray, name: str) -> NDArray[np.float64] | None:
    """A column of vectors, all of one length, as a table of numbers; None if it is not one."""
    kind = column.type
    if not (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) or not is_number(kind.value_type):
        return None
    lengths = set(pa.compute.list_value_length(column).to_pylist())
    if len(lengths) != 1 or None in lengths:
        raise InvalidInput(
            f"the feature column {name!r} holds lists of different lengths; all must have as many"
            " numbers."
        )
    return numbers_of(pa.chunked_array([column.combine_chunks().flatten()])).reshape(
        len(column), -1
    )


def read_features(
    table: pa.Table,
    names: Sequence[str],
    *,
    missing: str = "refuse",
    most_categories: int = MOST_CATEGORIES,
) -> Features:
    """The named columns as numbers, each by its type, or one sentence that names the column."""
    if missing not in MISSING:
        raise InvalidInput(
            f"missing is {missing!r}, but must be one of {', '.join(map(repr, MISSING))}."
        )
    blocks: list[NDArray[Any]] = []
    block: NDArray[Any]
    titles: list[str] = []
    quantity: list[bool] = []
    rows = table.num_rows
    for name in names:
        column = plain(table.column(name))
        kind = column.type
        vectors = _expanded(column, name)
        if vectors is not None:
            block, labels, measured = (
                vectors,
                [f"{name}[{i}]" for i in range(vectors.shape[1])],
                True,
            )
        elif pa.types.is_null(kind):
            raise InvalidInput(f"the feature column {name!r} is empty; leave it out with drop.")
        elif is_number(kind) or pa.types.is_boolean(kind):
            block, labels, measured = (
                numbers_of(column)[:, None],
                [name],
                not pa.types.is_boolean(kind),
            )
        elif is_text(kind):
            block, labels = _one_hot(column, name, missing, most_categories)
            measured = False
        else:
            raise InvalidInput(
                f"the feature column {name!r} is of type {kind}, which is neither numbers nor text"
                " nor true/false; leave it out with drop."
            )
        gaps = int(np.isnan(block).any(1).sum())
        if gaps and missing == "refuse":
            raise gaps_in(
                "feature",
                name,
                gaps,
                rows,
                "; fill them, leave the column out with drop, or use missing = 'mean'",
            )
        if np.isinf(block).any():
            raise InvalidInput(
                f"the feature column {name!r} holds infinity; inputs must be finite numbers."
            )
        blocks.append(block.astype(np.float32))
        titles += labels
        quantity += [measured] * len(labels)
    if not blocks:
        raise InvalidInput(
            "the table has no feature columns: nothing is left after the client and target columns."
        )
    return Features(np.concatenate(blocks, 1), titles, np.asarray(quantity))


def _one_hot(
    column: pa.ChunkedArray, name: str, missing: str, most: int
) -> tuple[NDArray[np.float32], list[str]]:
    """One column of 0/1 per value; a missing value is a row of zeros, if those are allowed."""
    if column.null_count and missing == "refuse":
        raise gaps_in(
            "feature",
            name,
            column.null_count,
            len(column),
            "; fill them, leave the column out with drop, or use missing = 'mean'",
        )
    coded = column.combine_chunks().dictionary_encode()
    values = coded.dictionary.to_pylist()
    if len(values) > most:
        raise InvalidInput(
            f"the feature column {name!r} is not numeric and has {len(values)} different values,"
            f" more than the {most} that may become categories; leave it out with drop or raise"
            " most_categories."
        )
    codes = np.asarray(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False))
    order = np.argsort(values)
    block = (codes[:, None] == order[None, :]).astype(np.float32)
    return block, [f"{name}={values[i]}" for i in order]


def read_target(
    column: pa.ChunkedArray, name: str, task: Task | None, most_classes: int = MOST_CLASSES
) -> tuple[NDArray[Any], Task, list[str]]:
    """The target, what kind of task it makes, and the names of the classes (in their order)."""
    if task not in (None, "classification", "regression"):
        raise InvalidInput(
            f"task is {task!r}, but must be 'classification' or 'regression' or nothing."
        )
    column = plain(column)
    kind = column.type
    if column.null_count:
        raise gaps_in("target", name, column.null_count, len(column), "; leave those rows out")
    if is_text(kind) or pa.types.is_boolean(kind):
        if task == "regression":
            raise InvalidInput(
                f"the target column {name!r} is of type {kind}, but regression needs numbers."
            )
        values = np.asarray(column.to_pylist())
        return _classes(values, name)
    if not is_number(kind):
        raise InvalidInput(
            f"the target column {name!r} is of type {kind}, but must hold numbers, text or"
            " true/false."
        )
    numbers = numbers_of(column)
    if not np.isfinite(numbers).all():
        raise gaps_in(
            "target",
            name,
            int((~np.isfinite(numbers)).sum()),
            len(column),
            " or infinite ones; leave those rows out",
        )
    if task is None:
        task = (
            "classification"
            if pa.types.is_integer(kind) and len(np.unique(numbers)) <= most_classes
            else "regression"
        )
    if task == "regression":
        return numbers.astype(np.float32), "regression", []
    whole = bool(np.all(numbers == np.floor(numbers)))
    return _classes(numbers.astype(np.int64) if whole else numbers, name)


def _classes(values: NDArray[Any], name: str) -> tuple[NDArray[np.int32], Task, list[str]]:
    labels, codes = np.unique(values, return_inverse=True)
    if len(labels) < 2:
        raise InvalidInput(
            f"the target column {name!r} has the same value in every row; there is nothing to"
            " learn."
        )
    return codes.reshape(-1).astype(np.int32), "classification", [str(v) for v in labels]
