"""What a table's columns mean: numbers are used as they are, true/false become 1/0, text and
categories become one column per value; anything else is refused by name.

Numbers stay in double precision here: they become single precision after they are centred.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, nearest, notice
from coterie.data.reading import is_text

MISSING = ("refuse", "mean")
NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "null", "NULL")
"""What is often written where a value is missing; a client or a class may still be called so."""
MOST_CATEGORIES = 50


@dataclasses.dataclass(frozen=True)
class Features:
    """The inputs as one table of numbers; NaN where a number is missing."""

    x: NDArray[np.float64]
    names: list[str]
    quantity: NDArray[np.bool_]
    """Which columns are measured (and so are standardised), rather than 0/1."""


class Block(NamedTuple):
    """What one column of a table became."""

    values: NDArray[np.float64]
    titles: list[str]
    measured: bool


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
            "; fill them, leave the column out with drop, or use missing = 'mean'",
        )


def client_names(column: pa.ChunkedArray, name: str) -> list[Any]:
    """Whose row each is; every row needs an owner."""
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
    values = column.to_pylist()
    missing = sum(v is None or v != v for v in values)
    if missing:
        raise gaps_in("client", name, missing, len(values), "; every row needs an owner")
    return values


def say_null_words(column: pa.ChunkedArray, role: str, name: str) -> None:
    """Names of clients and classes are taken as they stand; say so where that may be a surprise."""
    if is_text(column.type):
        values = plain(column).to_pylist()
        words = [w for w in NULL_WORDS if w in set(values)]
        if words:
            rows = sum(v in words for v in values)
            notice(
                f"the {role} column {name!r} has {rows} row{'s' if rows != 1 else ''} of"
                f" {listed(words)}, which are taken as they stand and not as missing."
            )


def _expanded(column: pa.ChunkedArray, name: str) -> NDArray[np.float64] | None:
    """A column of vectors, all of one length, as a table of numbers; None if it is not one."""
    import pyarrow.compute  # noqa: F401 - makes pa.compute available

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
    flat = pa.chunked_array([column.combine_chunks().flatten()])
    return numbers_of(flat).reshape(len(column), -1)


def read_feature(column: pa.ChunkedArray, name: str, most_categories: int) -> Block:
    """A column as numbers, by its type, or one sentence that names the column."""
    column = plain(column)
    kind = column.type
    vectors = _expanded(column, name)
    if vectors is not None:
        return Block(vectors, [f"{name}[{i}]" for i in range(vectors.shape[1])], True)
    if pa.types.is_null(kind):
        return Block(np.full((len(column), 1), np.nan), [name], True)
    if is_number(kind) or pa.types.is_boolean(kind):
        return Block(numbers_of(column)[:, None], [name], not pa.types.is_boolean(kind))
    if is_text(kind):
        return _one_hot(column, name, most_categories)
    raise InvalidInput(
        f"the feature column {name!r} is of type {kind}, which is neither numbers nor text nor"
        " true/false; leave it out with drop."
    )


def check_missing(missing: str) -> None:
    if missing not in MISSING:
        raise InvalidInput(
            f"missing is {missing!r}, but must be one of {', '.join(map(repr, MISSING))}."
        )


def check_feature(block: Block, column: pa.ChunkedArray, name: str, missing: str) -> None:
    """Refuse gaps unless they are to be filled, and infinity always."""
    if missing == "refuse":
        gaps = int(np.isnan(block.values).any(1).sum())
        refuse_gaps(name, gaps or plain(column).null_count, len(column))
    if np.isinf(block.values).any():
        raise InvalidInput(
            f"the feature column {name!r} holds infinity; inputs must be finite numbers."
        )


def read_features(
    table: pa.Table,
    names: Sequence[str],
    *,
    missing: str = "refuse",
    most_categories: int = MOST_CATEGORIES,
) -> Features:
    """The named columns as numbers, each by its type, or one sentence that names the column."""
    check_missing(missing)
    blocks: list[Block] = []
    for name in names:
        column = table.column(name)
        block = read_feature(column, name, most_categories)
        if not block.titles or np.isnan(block.values).all():
            raise InvalidInput(f"the feature column {name!r} is empty; leave it out with drop.")
        check_feature(block, column, name, missing)
        blocks.append(block)
    return joined(blocks)


def joined(blocks: Sequence[Block]) -> Features:
    """Columns side by side."""
    if not blocks:
        raise InvalidInput(
            "the table has no feature columns: nothing is left after the client and target columns."
        )
    return Features(
        np.concatenate([b.values for b in blocks], 1),
        [title for b in blocks for title in b.titles],
        np.asarray([b.measured for b in blocks for _ in b.titles]),
    )


def _one_hot(column: pa.ChunkedArray, name: str, most: int) -> Block:
    """One column of 0/1 per value; a missing value is a row of zeros."""
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
    block = (codes[:, None] == order[None, :]).astype(np.float64)
    return Block(block, [f"{name}={values[i]}" for i in order], False)
