"""Tables of all kinds as Arrow tables: files, DataFrames, data sets, dictionaries of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput

KINDS = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".npz")


def read_table(path: str | Path) -> pa.Table:
    """A Parquet, CSV, TSV or npz file as an Arrow table."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise InvalidInput(f"the table {str(path)!r} does not exist.")
    kind = next(
        (k for k in sorted(KINDS, key=len, reverse=True) if path.name.lower().endswith(k)), None
    )
    if kind is None:
        raise InvalidInput(
            f"the table {str(path)!r} is of an unknown kind; known: {', '.join(KINDS)}."
        )
    try:
        if kind == ".parquet":
            import pyarrow.parquet

            return pyarrow.parquet.read_table(path)
        if kind == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                return _from_arrays({key: stored[key] for key in stored.files}, str(path))
        from pyarrow import csv

        return csv.read_csv(
            path,
            parse_options=csv.ParseOptions(delimiter="\t" if "tsv" in kind else ","),
            convert_options=csv.ConvertOptions(
                strings_can_be_null=True, quoted_strings_can_be_null=True
            ),
        )
    except InvalidInput:
        raise
    except Exception as error:  # Arrow, zip and zlib each have their own
        raise InvalidInput(
            f"the table {str(path)!r} cannot be read: {str(error).splitlines()[0].rstrip('.')}."
        ) from None


def as_table(data: Any) -> pa.Table:
    """An Arrow table from a path, an Arrow table, a pandas DataFrame, a Hugging Face Dataset (or
    what behaves like one) or a dict of arrays.
    """
    if isinstance(data, (str, Path)):
        return read_table(data)
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, Mapping):
        return _from_arrays({str(k): np.asarray(v) for k, v in data.items()}, "the dictionary")
    if hasattr(data, "dtypes") and hasattr(data, "columns"):
        try:
            return pa.Table.from_pandas(data, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidInput(
                f"the DataFrame has a column of mixed types: {'; '.join(map(str, error.args))}."
            ) from None
    if hasattr(data, "column_names"):
        return _from_dataset(data)
    kinds = (
        "a path, a pyarrow Table, a pandas DataFrame, a Hugging Face Dataset or a dict of arrays"
    )
    raise InvalidInput(f"the table is of type {type(data).__name__}, but must be {kinds}.")


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


def _from_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> pa.Table:
    """One column per one-dimensional array; one with more axes becomes a column per number:
    name[0], name[1], …
    """
    lengths = {key: len(a) if a.ndim else 0 for key, a in arrays.items()}
    if not lengths or len(set(lengths.values())) != 1:
        raise InvalidInput(
            f"the arrays of {where} have different lengths"
            f" ({', '.join(f'{k}: {n}' for k, n in lengths.items())}); each row is a sample."
        )
    columns: dict[str, Any] = {}
    for key, a in arrays.items():
        if a.dtype == object:
            raise InvalidInput(
                f"the array {key!r} of {where} holds Python objects; numbers, text or true/false"
                " are expected."
            )
        if a.ndim == 1:
            columns[key] = a
        else:
            flat = a.reshape(len(a), -1)
            columns.update({f"{key}[{i}]": flat[:, i] for i in range(flat.shape[1])})
    return pa.table(columns)
