"""Your own data: a table with a column that says which client a row belongs to, or a folder with
one table per client.

What a column means is read off its type: numbers are used as they are, true/false become 1/0, text
and categories become one column per value; anything else, and anything missing, is refused by name,
so that nothing is guessed silently.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, nearest
from coterie.core.options import option
from coterie.data.base import Source, source
from coterie.data.federation import Federation, Split, Task, cut, without_test
from coterie.data.partition import downsample, natural
from coterie.data.scaling import Scaling, fit

KINDS = (".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".npz")
MISSING = ("refuse", "mean")
MOST_CATEGORIES = 50
MOST_CLASSES = 20
"""A whole-number target with more different values than this is taken for a quantity, not for
classes.
"""
OWNER = "__client__"


# ---- reading -------------------------------------------------------------------------------------


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


# ---- columns -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Features:
    """The inputs as one table of numbers; NaN where a number is missing."""

    x: NDArray[np.float32]
    names: list[str]
    quantity: NDArray[np.bool_]
    """Which columns are measured (and so are standardised), rather than 0/1."""


def _column(table: pa.Table, role: str, name: str) -> pa.ChunkedArray:
    if name in table.column_names:
        return table.column(name)
    shown = ", ".join(table.column_names[:8]) + (
        f" and {table.num_columns - 8} more" if table.num_columns > 8 else ""
    )
    hint = nearest(name, table.column_names).rstrip("?")
    raise InvalidInput(
        f"the {role} column {name!r} is not in the table{hint}; its columns are {shown}."
    )


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Numbers or true/false as floating point, NaN where there is none."""
    values = (
        column.cast(pa.float64())
        if not pa.types.is_boolean(column.type)
        else column.cast(pa.int8()).cast(pa.float64())
    )
    return np.asarray(values.to_numpy(), np.float64)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without dictionary encoding (pandas categories)."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _missing(role: str, name: str, count: int, rows: int, hint: str) -> InvalidInput:
    return InvalidInput(
        f"the {role} column {name!r} has {count} missing value{'s' if count != 1 else ''} in {rows}"
        f" rows{hint}."
    )


def _expanded(column: pa.ChunkedArray, name: str) -> NDArray[np.float64] | None:
    """A column of vectors, all of one length, as a table of numbers; None if it is not one."""
    kind = column.type
    if not (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) or not _is_number(kind.value_type):
        return None
    lengths = set(pa.compute.list_value_length(column).to_pylist())
    if len(lengths) != 1 or None in lengths:
        raise InvalidInput(
            f"the feature column {name!r} holds lists of different lengths; all must have as many"
            " numbers."
        )
    return _numbers(pa.chunked_array([column.combine_chunks().flatten()])).reshape(len(column), -1)


def read_features(
    table: pa.Table,
    names: Sequence[str],
    *,
    missing: str = "refuse",
    most_categories: int = MOST_CATEGORIES,
) -> Features:
    """The named columns as numbers, each by its type, or one sentence that names the column."""
    import pyarrow.compute  # noqa: F401 - makes pa.compute available

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
        column = _plain(table.column(name))
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
        elif _is_number(kind) or pa.types.is_boolean(kind):
            block, labels, measured = (
                _numbers(column)[:, None],
                [name],
                not pa.types.is_boolean(kind),
            )
        elif _is_text(kind):
            block, labels = _one_hot(column, name, missing, most_categories)
            measured = False
        else:
            raise InvalidInput(
                f"the feature column {name!r} is of type {kind}, which is neither numbers nor text"
                " nor true/false; leave it out with drop."
            )
        gaps = int(np.isnan(block).any(1).sum())
        if gaps and missing == "refuse":
            raise _missing(
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
        raise _missing(
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
    column = _plain(column)
    kind = column.type
    if column.null_count:
        raise _missing("target", name, column.null_count, len(column), "; leave those rows out")
    if _is_text(kind) or pa.types.is_boolean(kind):
        if task == "regression":
            raise InvalidInput(
                f"the target column {name!r} is of type {kind}, but regression needs numbers."
            )
        values = np.asarray(column.to_pylist())
        return _classes(values, name)
    if not _is_number(kind):
        raise InvalidInput(
            f"the target column {name!r} is of type {kind}, but must hold numbers, text or"
            " true/false."
        )
    numbers = _numbers(column)
    if not np.isfinite(numbers).all():
        raise _missing(
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


# ---- federations ---------------------------------------------------------------------------------


def from_table(
    data: Any,
    *,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    task: Task | None = None,
    missing: str = "refuse",
    standardise: bool = True,
    standardise_target: bool = False,
    most_categories: int = MOST_CATEGORIES,
    most_classes: int = MOST_CLASSES,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """A Federation from a table: `client` names the column that says whose row it is, `target` the
    one to predict.

    All other columns (or those in `features`, without those in `drop`) are inputs. Text, true/false
    and whole-number targets with few values make a classification, other numbers a regression;
    `task` overrides. Missing numbers are refused, or with missing = "mean" replaced by the column's
    mean over training rows. Numeric inputs are standardised by training rows. `facts` holds the
    names of clients, labels and features.

    >>> sites, labels = ["a"] * 8 + ["b"] * 8, ["no", "yes"] * 8
    >>> columns = {"site": sites, "heat": np.arange(16.0), "label": labels}
    >>> fed = from_table(columns, client="site", target="label")
    >>> fed.clients, fed.input_shape, fed.facts["labels"], fed.facts["clients"]
    (2, (1,), ['no', 'yes'], ['a', 'b'])
    """
    table = as_table(data)
    owners, wanted = _column(table, "client", client), _column(table, "target", target)
    if client == target:
        raise InvalidInput(
            f"{client!r} is named both as the client and as the target column; they must be two."
        )
    if not table.num_rows:
        raise InvalidInput("the table has no rows.")
    if owners.null_count:
        raise _missing(
            "client", client, owners.null_count, len(owners), "; every row needs an owner"
        )
    for column in (*(features or ()), *drop):
        _column(table, "feature", column)
    used = [c for c in features or table.column_names if c not in {client, target, *drop}]
    inputs = read_features(table, used, missing=missing, most_categories=most_categories)
    y, task, labels = read_target(wanted, target, task, most_classes)
    owner, people = natural(_plain(owners).to_pylist())
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    facts: dict[str, Any] = {"clients": people, "features": inputs.names, "target": target}
    if task == "classification":
        facts["labels"] = labels
    train_rows = pieces[0][0]
    middle = _middle(inputs, train_rows)
    x = _filled(inputs, middle)
    scaling = fit(x[train_rows]) if standardise else None
    if scaling is not None:
        x = np.where(inputs.quantity, scaling(x), x)
        facts["scaling"] = "per numeric feature, fitted on training data"
    if standardise_target and task == "regression":
        facts["target_mean"], facts["target_scale"] = (
            float(y[train_rows].mean()),
            float(y[train_rows].std() or 1.0),
        )
        y = ((y - facts["target_mean"]) / facts["target_scale"]).astype(np.float32)
    facts["prepared"] = Prepared(tuple(used), inputs.quantity, middle, scaling)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    title = name or (Path(data).stem if isinstance(data, (str, Path)) else "table")
    made = Federation(title, train, held_out, tested, task, len(labels), facts)
    facts["no_test"] = without_test(made)
    return made


def _middle(inputs: Features, train_rows: NDArray[Any]) -> NDArray[np.float32]:
    """The mean of what is present in training rows, per column (0 if there is nothing)."""
    train = inputs.x[train_rows]
    absent = np.isnan(train)
    mean = np.where(absent, 0, train).sum(0, dtype=np.float64) / np.maximum((~absent).sum(0), 1)
    return mean.astype(np.float32)


def _filled(inputs: Features, middle: NDArray[np.float32]) -> NDArray[np.float32]:
    """Missing numbers replaced by the training mean."""
    gaps = np.isnan(inputs.x)
    return np.where(gaps, middle, inputs.x) if gaps.any() else inputs.x


@dataclasses.dataclass(frozen=True)
class Prepared:
    """How a table's columns became inputs, so that a newcomer's table can be read in the same
    way.
    """

    columns: tuple[str, ...]
    quantity: NDArray[np.bool_]
    middle: NDArray[np.float32]
    scaling: Scaling | None


class Described(Protocol):
    """What must be known of a federation to read one more client's table as its tables were
    read.
    """

    @property
    def name(self) -> str: ...
    @property
    def task(self) -> Task: ...
    @property
    def classes(self) -> int: ...
    @property
    def facts(self) -> dict[str, Any]: ...


def newcomers_from_table(
    data: Any,
    like: Described,
    *,
    client: str | None = None,
    target: str | None = None,
    missing: str = "refuse",
    validation: float = 0.0,
    test: float = 0.25,
    seed: int = 0,
) -> Federation:
    """Newcomers' rows, read as the table of a federation was: the same columns, categories, labels
    and scaling. Without `client` all rows are one's.

    >>> rows = {"site": ["a"] * 8 + ["b"] * 8, "heat": np.arange(16.0), "label": ["no", "yes"] * 8}
    >>> fed = from_table(rows, client="site", target="label")
    >>> new = newcomers_from_table({"heat": [3.0, 4.0, 5.0, 6.0], "label": ["yes"] * 4}, fed)
    >>> new.clients, new.classes, sorted(set(new.train.y.tolist()))
    (1, 2, [1])
    """
    prepared = like.facts.get("prepared")
    if not isinstance(prepared, Prepared):
        raise InvalidInput(
            f"{like.name!r} was not read from a table, so a table of newcomers cannot be read in"
            " the same way; give an .npz with x and y."
        )
    table, wanted_name = as_table(data), target or like.facts["target"]
    if not table.num_rows:
        raise InvalidInput("the newcomers' table has no rows.")
    wanted = _column(table, "target", wanted_name)
    for column in prepared.columns:
        _column(table, "feature", column)
    inputs = read_features(table, prepared.columns, missing=missing)
    names: list[str] = like.facts["features"]
    for found in inputs.names:
        if found not in names:
            raise InvalidInput(
                f"the newcomers have the input {found!r}, which the run does not know; known:"
                f" {', '.join(names[:8])} …"
            )
    x = np.zeros((table.num_rows, len(names)), np.float32)
    x[:, [names.index(n) for n in inputs.names]] = inputs.x
    x = np.where(np.isnan(x), prepared.middle, x)
    if prepared.scaling is not None:
        x = np.where(prepared.quantity, prepared.scaling(x), x)
    if wanted.null_count:
        raise _missing(
            "target", wanted_name, wanted.null_count, len(wanted), "; every row needs one"
        )
    if like.task == "classification":
        labels = [str(v) for v in like.facts["labels"]]
        texts = [str(v) for v in _plain(wanted).to_pylist()]
        for text in texts:
            if text not in labels:
                raise InvalidInput(
                    f"the newcomers have the label {text!r}, which the run does not know; known:"
                    f" {', '.join(labels)}."
                )
        y: NDArray[Any] = np.array([labels.index(text) for text in texts], np.int32)
    else:
        y = read_target(wanted, wanted_name, "regression")[0]
        y = ((y - like.facts.get("target_mean", 0.0)) / like.facts.get("target_scale", 1.0)).astype(
            np.float32
        )
    owner, people = (
        (np.zeros(table.num_rows, np.int64), ["newcomer"])
        if client is None
        else natural(_plain(_column(table, "client", client)).to_pylist())
    )
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    return Federation(
        "newcomers", train, held_out, tested, like.task, like.classes, {"clients": people}
    )


def from_folder(path: str | Path, *, target: str, **options: Any) -> Federation:
    """A Federation from a folder: every sub-folder (all its tables together), or every table file,
    is one client, named like it.

    All must have the same columns. The options are those of `from_table`.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise InvalidInput(f"the folder {str(folder)!r} does not exist.")
    inside = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    groups = {p.name: _tables(p) for p in inside if p.is_dir()}
    loose = _tables(folder)
    if groups and loose:
        raise InvalidInput(
            f"the folder {str(folder)!r} holds both tables ({loose[0].name}) and folders"
            f" ({next(iter(groups))}); clients must be one or the other."
        )
    groups = groups or {p.name.split(".")[0]: [p] for p in loose}
    if not groups:
        raise InvalidInput(
            f"the folder {str(folder)!r} holds neither folders nor tables ({', '.join(KINDS)})."
        )
    parts: list[pa.Table] = []
    first: tuple[Path, set[str]] | None = None
    for client, files in groups.items():
        if not files:
            raise InvalidInput(
                f"the folder of client {client!r} holds no table ({', '.join(KINDS)})."
            )
        for file in files:
            table = read_table(file)
            names = set(table.column_names)
            first = first or (file, names)
            if names != first[1]:
                odd = sorted(names ^ first[1])[0]
                lacks, has = (file, first[0]) if odd in first[1] else (first[0], file)
                raise InvalidInput(
                    f"{str(lacks)!r} lacks the column {odd!r} that {str(has)!r} has; all clients"
                    " must have the same columns."
                )
            parts.append(table.append_column(OWNER, pa.array([client] * table.num_rows)))
    try:
        whole = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput(
            f"the tables in {str(folder)!r} have columns of different types:"
            f" {str(error).splitlines()[0].rstrip('.')}."
        ) from None
    return from_table(whole, client=OWNER, target=target, **{"name": folder.name, **options})


def _tables(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name.lower().endswith(KINDS))


def _names(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Source):
    """What tables and folders have in common, as options of a config or the command line."""

    path: str = option(help="where the data lies")
    target: str = option(help="the column to predict")
    drop: str | None = option(None, "columns to leave out, separated by commas")
    task: str | None = option(
        None, "override what the target's type says", choices=("classification", "regression")
    )
    missing: str = option(
        "refuse", "missing numbers: refuse them, or put the training mean there", choices=MISSING
    )
    standardise: bool = option(
        True, "zero mean and unit variance of numeric inputs, fitted on training data"
    )
    standardise_target: bool = option(False, "regression: the same for the target")
    most_categories: int = option(
        MOST_CATEGORIES, "the most different values of a text column that become categories", low=1
    )
    validation: float = option(
        0.1, "share of each client's rows for validation", low=0, high=0.9, static=True
    )
    test: float = option(
        0.25, "share of each client's rows for testing", low=0, high=0.9, static=True
    )
    downsample: float = option(
        1.0,
        "share of its training rows that a down-sampled client keeps (1: no down-sampling)",
        above=0,
        high=1,
        static=True,
    )
    downsample_clients: float = option(
        0.5, "share of the clients that are down-sampled", low=0, high=1, static=True
    )

    def _arguments(self, seed: int) -> dict[str, Any]:
        kept = (
            "target",
            "task",
            "missing",
            "standardise",
            "standardise_target",
            "most_categories",
            "validation",
            "test",
        )
        return {key: getattr(self, key) for key in kept} | {"drop": _names(self.drop), "seed": seed}

    def _finish(self, made: Federation, seed: int) -> Federation:
        return (
            downsample(made, self.downsample, self.downsample_clients, seed)
            if self.downsample < 1
            else made
        )


@source("table")
class Table(Own):
    """Your own table (Parquet, CSV, npz) with a column that names the client of each row."""

    client: str = option(help="the column that says whose row it is")

    def load(self, seed: int) -> Federation:
        return self._finish(
            from_table(self.path, client=self.client, **self._arguments(seed)), seed
        )


@source("folder")
class Folder(Own):
    """Your own folder with one sub-folder, or one table file, per client."""

    def load(self, seed: int) -> Federation:
        return self._finish(from_folder(self.path, **self._arguments(seed)), seed)
