"""Tables of all kinds as Arrow tables: files, DataFrames, data sets, dictionaries of arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, notice
from coterie.data.csvfiles import read_csv
from coterie.data.sniffing import Format

KINDS = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".npz", ".xlsx")
ALSO = (".txt", ".txt.gz")
"""Read when they are named, but not looked for in folders: Excel's "Unicode text" is one."""
INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""What pandas calls a row index that has no name: in CSV files, in those that it read again, and in
Parquet files.
"""


def read_table(
    path: str | Path,
    as_it_stands: Sequence[str] = (),
    codes: Sequence[str] = (),
    written: Format | None = None,
    texts: Sequence[str] = (),
) -> pa.Table:
    """A Parquet, CSV, TSV, npz or Excel file as an Arrow table.

    Separator, decimal sign and encoding of a CSV file are found out and, where they are not the
    usual ones, said; `written` says them. In a text column of a CSV file "NA" and the like are
    missing values, except in the columns `as_it_stands`, where a site or a class may well have that
    name: there only empty cells are. Whole numbers in the columns `codes` stay text if any has a
    leading zero. Columns in `texts` are text whatever they look like.
    """
    written = written or Format()
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidInput(f"the table {str(path)!r} does not exist.")
    kind = next(
        (
            k
            for k in sorted((*KINDS, *ALSO), key=len, reverse=True)
            if path.name.lower().endswith(k)
        ),
        None,
    )
    if kind is None:
        raise InvalidInput(
            f"the table {str(path)!r} is of an unknown kind; known: {', '.join((*KINDS, *ALSO))}."
        )
    try:
        if kind == ".parquet":
            import pyarrow.parquet

            return _distinct(pyarrow.parquet.read_table(path))
        if kind == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                return _from_arrays({key: stored[key] for key in stored.files}, str(path))
        if kind == ".xlsx":
            from coterie.data.excel import read_excel

            return _distinct(read_excel(path, written.sheet, as_it_stands))
        return _distinct(read_csv(path, as_it_stands, codes, written, texts))
    except InvalidInput:
        raise
    except Exception as error:  # Arrow, zip and zlib each have their own
        raise InvalidInput(
            f"the table {str(path)!r} cannot be read: {_first_line(error)}."
        ) from None


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def as_table(
    data: Any,
    as_it_stands: Sequence[str] = (),
    codes: Sequence[str] = (),
    written: Format | None = None,
    texts: Sequence[str] = (),
) -> pa.Table:
    """An Arrow table from a path, an Arrow table, a pandas or polars DataFrame (or whatever else
    gives an Arrow stream), a Hugging Face Dataset (or what behaves like one) or a dict of arrays.
    """
    if isinstance(data, (str, Path)):
        return read_table(data, as_it_stands, codes, written, texts)
    if isinstance(data, pa.Table):
        return _distinct(data)
    if isinstance(data, Mapping):
        return _from_arrays({str(k): _array(str(k), v) for k, v in data.items()}, "the dictionary")
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):  # polars and others
        return _distinct(_plain_text(pa.table(data)))
    if hasattr(data, "dtypes") and hasattr(data, "columns"):
        _refuse_twins([str(name) for name in data.columns])
        try:
            return pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInput(
                f"the DataFrame has a column of mixed types: {'; '.join(map(str, error.args))}."
            ) from None
    if hasattr(data, "column_names"):
        return _distinct(_from_dataset(data))
    kinds = (
        "a path, a pyarrow Table, a pandas or polars DataFrame, a Hugging Face Dataset or a dict of"
        " arrays"
    )
    raise InvalidInput(f"the table is of type {type(data).__name__}, but must be {kinds}.")


def _plain_text(table: pa.Table) -> pa.Table:
    """Text and categories as most of Arrow's functions know them, without views."""
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string_view(kind):
            text = table.column(place).cast(pa.string())
            table = table.set_column(place, field.name, text)
    return table


def _distinct(table: pa.Table) -> pa.Table:
    _refuse_twins(table.column_names)
    return table


def _refuse_twins(names: Sequence[str]) -> None:
    """Columns without a name may be several: none of them is used."""
    for name in names:
        if name and names.count(name) > 1:
            raise InvalidInput(
                f"the table has {names.count(name)} columns {name!r}; every column needs a name of"
                " its own."
            )


def _from_dataset(data: Any) -> pa.Table:
    """Hugging Face datasets give Arrow when asked for it; others that look alike give a dict, or
    columns by name.
    """
    if hasattr(data, "with_format"):
        table = data.with_format("arrow")[:]
        if isinstance(table, pa.Table):
            return table
    columns = (
        data.to_dict()
        if hasattr(data, "to_dict")
        else {name: data[name] for name in data.column_names}
    )
    if not isinstance(columns, Mapping) or not set(data.column_names) <= set(columns):
        raise InvalidInput(
            f"the data set of type {type(data).__name__} does not give its columns by name."
        )
    return pa.table({name: columns[name] for name in data.column_names})


def _array(key: str, values: Any) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except Exception as error:
        raise InvalidInput(
            f"the values {key!r} of the dictionary cannot be made an array: {_first_line(error)}."
        ) from None


def _from_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> pa.Table:
    """One column per one-dimensional array; one with more axes becomes a column per number:
    name[0], name[1], …
    """
    if not arrays:
        raise InvalidInput(f"{where} is empty; it must hold an array per column.")
    for key, a in arrays.items():
        if not a.ndim:
            raise InvalidInput(
                f"the array {key!r} of {where} is a single value; each row is a sample."
            )
    lengths = {key: len(a) for key, a in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise InvalidInput(
            f"the arrays of {where} have different lengths"
            f" ({', '.join(f'{k}: {n}' for k, n in lengths.items())}); each row is a sample."
        )
    columns: dict[str, Any] = {}
    for key, a in arrays.items():
        if a.dtype == object:
            if a.ndim == 1 and (made := _dated(a)) is not None:
                columns[key] = made
                continue
            raise InvalidInput(
                f"the array {key!r} of {where} holds Python objects; numbers, text or true/false"
                " are expected."
            )
        flat = {key: a}
        if a.ndim > 1:
            rows = a.reshape(len(a), -1)
            flat = {f"{key}[{i}]": rows[:, i] for i in range(rows.shape[1])}
        for name, values in flat.items():
            try:
                columns[name] = pa.array(values)
            except (pa.ArrowException, TypeError):
                raise InvalidInput(
                    f"the column {name!r} of {where} is of type {a.dtype}; numbers, text or"
                    " true/false are expected."
                ) from None
    return pa.table(columns)


def _dated(values: NDArray[Any]) -> pa.Array | None:
    """Python's dates, times and None, among numbers or text, as Arrow reads them."""
    try:
        made = pa.array(values.tolist())
    except (pa.ArrowException, TypeError):
        return None
    return None if pa.types.is_nested(made.type) else made


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def without_index(table: pa.Table, kept: Sequence[str]) -> list[str]:
    """The table's columns without the row index that pandas wrote, which is said; `kept` are the
    columns that have been spoken of.
    """
    stored = table.schema.pandas_metadata or {}
    indices = {name for name in stored.get("index_columns", []) if isinstance(name, str)}
    used = []
    for name in table.column_names:
        if name in kept or not (INDEX.fullmatch(name) or name in indices):
            used.append(name)
        elif INDEX.fullmatch(name):
            which = f"column {name!r}" if name else "nameless column"
            notice(
                f"the {which} of the table is left out: it looks like a row index that pandas"
                " wrote; give it another name to use it."
            )
        else:
            notice(
                f"the column {name!r} of the table is left out: it was the row index of a pandas"
                " DataFrame; reset_index() makes it a column."
            )
    return used
