"""How a table's columns became inputs and a target: all that is needed to read another table in the
same way, as plain values that JSON can hold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, notice, shown, unknown
from coterie.data.columns import check_missing, column_of, gaps_in, refuse_gaps
from coterie.data.dates import ORDERS, PARTS
from coterie.data.kinds import KINDS, Column, numbers_in
from coterie.data.reading import as_table
from coterie.data.scaling import fit
from coterie.data.shape import Task
from coterie.data.targets import known_labels, read_target

VERSION = 1


@dataclasses.dataclass(frozen=True)
class Prepared:
    """How a table's columns became inputs and a target.

    `inputs_of` needs nothing else to make a model's inputs of other rows. `to_config` gives plain
    values that JSON can hold, and `from_config` the same Prepared again, to the last bit.
    """

    columns: tuple[Column, ...]
    features: tuple[str, ...] = ()
    """The names of the inputs, in their order; by default those of the columns, one after the
    other.
    """
    task: Task = "classification"
    target: str = ""
    client: str = ""
    """The column that said whose row it was; not needed to make inputs."""
    labels: tuple[str, ...] = ()
    """The names of the classes, in the order of a model's outputs."""
    label_case: str | None = None
    target_mean: float = 0.0
    target_scale: float = 1.0
    """Regression: a model predicts (target − mean) / scale."""
    missing: str = "refuse"
    """What happens to missing values: see `from_table`."""

    def __post_init__(self) -> None:
        titles = [title for column in self.columns for title in column.titles]
        if not self.features:
            object.__setattr__(self, "features", tuple(titles))
        if sorted(self.features) != sorted(titles):
            odd = sorted(set(titles) ^ set(self.features)) or sorted(titles)
            raise InvalidInput(
                f"the inputs and the columns of the preparation differ in {odd[0]!r}; every input"
                " must come from one column."
            )

    @property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """For every column, which inputs it becomes."""
        where = {title: i for i, title in enumerate(self.features)}
        return tuple(tuple(where[title] for title in column.titles) for column in self.columns)

    @property
    def texts(self) -> list[str]:
        """The columns that held text: a few rows of them may look like numbers or true/false."""
        return [c.name for c in self.columns if c.kind == "category" or c.order]

    def to_config(self) -> dict[str, Any]:
        """Plain values (text, numbers, lists, dictionaries) for JSON.

        A scale of null is that of a number that never varied in training: it becomes 0.
        """
        config = {"version": VERSION, **_plain(self)}
        config["columns"] = [_plain(column) for column in self.columns]
        return config

    @classmethod
    def from_config(cls, given: Any) -> Prepared:
        if not isinstance(given, Mapping):
            raise InvalidInput(f"the preparation is {shown(given)}, but must be a table.")
        values = dict(given)
        version = values.pop("version", None)
        if version != VERSION:
            raise InvalidInput(
                f"the preparation has version {shown(version)}, but this coterie reads version"
                f" {VERSION}."
            )
        columns = values.pop("columns", None)
        if not isinstance(columns, list):
            raise InvalidInput(
                f"columns of the preparation is {shown(columns)}, but must be a list."
            )
        made = _checked(cls, values, "the preparation")
        if made.get("task") not in (None, *get_args(Task)):
            raise InvalidInput(
                f"task of the preparation is {made['task']!r}, but must be one of"
                f" {', '.join(map(repr, get_args(Task)))}."
            )
        check_missing(made.get("missing", "refuse"))
        return cls(tuple(_column(c, i) for i, c in enumerate(columns)), **made)

    def refitted(self, numbers: Sequence[NDArray[np.float64]]) -> Prepared:
        """The same columns with the means and scales of other rows, given as each column's
        numbers.
        """
        x = np.concatenate(list(numbers), 1)
        present = ~np.isnan(x)
        middle = np.where(present, x, 0).sum(0) / np.maximum(present.sum(0), 1)
        scaling = fit(np.where(present, x, middle))
        columns, begin = [], 0
        for column in self.columns:
            end = begin + column.width
            columns.append(
                column.fitted(middle[begin:end], scaling.mean[begin:end], scaling.scale[begin:end])
            )
            begin = end
        return dataclasses.replace(self, columns=tuple(columns))

    def in_units(self, predicted: NDArray[Any]) -> NDArray[np.float64]:
        """Regression: what a model predicts, in the target's own units."""
        return np.asarray(predicted, np.float64) * self.target_scale + self.target_mean


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as plain values, without what has its default."""
    made: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if given == field.default:
            continue
        if isinstance(given, tuple):
            given = [None if isinstance(v, float) and math.isinf(v) else v for v in given]
        made[field.name] = given
    return made


def _column(given: Any, place: int) -> Column:
    where = f"column {place} of the preparation"
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} is {shown(given)}, but must be a table.")
    made = _checked(Column, given, where)
    for key in ("name", "kind"):
        if key not in made:
            raise InvalidInput(f"{where} lacks {key!r}.")
    for key, known in (("kind", KINDS), ("order", ("", *ORDERS))):
        if made.get(key, known[0]) not in known:
            raise InvalidInput(
                f"{key} of {where} is {made[key]!r}, but must be one of"
                f" {', '.join(map(repr, known))}."
            )
    if not set(made.get("parts", ())) <= set(PARTS):
        raise InvalidInput(
            f"parts of {where} is {list(made['parts'])!r}, but may hold only"
            f" {', '.join(map(repr, PARTS))}."
        )
    column = Column(**made)
    for key in ("fill", "mean", "scale"):
        if getattr(column, key) and len(getattr(column, key)) != column.width:
            raise InvalidInput(
                f"{key} of {where} has {len(getattr(column, key))} numbers, but must have"
                f" {column.width}."
            )
    if any(not 0 <= i < column.width for i in column.flagged):
        raise InvalidInput(
            f"flagged of {where} is {list(column.flagged)!r}, but must hold whole numbers from 0 to"
            f" {column.width - 1}."
        )
    return column


_KINDS = {
    "str": str,
    "str | None": (str, type(None)),
    "int": int,
    "float": (int, float),
    "Task": str,
    "tuple[str, ...]": str,
    "tuple[float, ...]": (int, float, type(None)),
    "tuple[int, ...]": int,
}


def _checked(cls: type, given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What JSON gave for a dataclass, every value of the declared kind."""
    fields = {f.name: str(f.type) for f in dataclasses.fields(cls) if str(f.type) in _KINDS}
    made: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            raise unknown(f"the key of {where},", key, fields)
        many = fields[key].startswith("tuple")
        kinds: Any = _KINDS[fields[key]]
        members = value if many and isinstance(value, list) else [value]
        if (many and not isinstance(value, list)) or not all(
            isinstance(v, kinds) and not isinstance(v, bool) for v in members
        ):
            what = fields[key].replace("tuple[", "a list of ").replace(", ...]", "")
            raise InvalidInput(f"{key} of {where} is {shown(value)}, but must be {what}.")
        if "float" in fields[key]:
            members = [math.inf if v is None else float(v) for v in members]
        made[key] = tuple(members) if many else members[0]
    return made


def numbers_of_rows(
    prepared: Prepared, table: pa.Table, missing: str | None = None
) -> list[NDArray[np.float64]]:
    """Each column's numbers, in their own units; NaN where one is missing."""
    missing = prepared.missing if missing is None else missing
    check_missing(missing)
    return [_numbers(column, table, missing) for column in prepared.columns]


def _numbers(how: Column, table: pa.Table, missing: str) -> NDArray[np.float64]:
    column = column_of(table, "feature", how.name)
    values = numbers_in(column, how)
    gaps = np.isnan(values)
    if missing == "refuse":
        refuse_gaps(how.name, int(gaps.any(1).sum()) or column.null_count, len(column))
    elif missing == "fill" and (new := set(np.flatnonzero(gaps.any(0))) - set(how.flagged)):
        count = int(gaps[:, sorted(new)].any(1).sum())
        notice(
            f"the column {how.name!r} has {count} missing value{'s' if count != 1 else ''}, but had"
            " none in training; they become the training mean."
        )
    return values


def inputs_of(prepared: Prepared, data: Any, *, missing: str | None = None) -> NDArray[np.float32]:
    """A model's inputs of raw rows: any table that `from_table` takes, with or without a target.

    The columns may stand in any order, and others may stand beside them. A column that is not
    there, or is of another kind than in training, is refused by name. Missing values become what
    they became in training, unless `missing` gives another answer. A category that was not there in
    training is none of the known ones, which is said.

    >>> from coterie.data import from_table
    >>> rows = {"site": ["a"] * 8 + ["b"] * 8, "heat": np.arange(16.0), "label": ["no", "yes"] * 8}
    >>> fed = from_table(rows, client="site", target="label", standardise=False)
    >>> inputs_of(fed.facts["prepared"], {"heat": [3.0, 4.5]}).tolist()
    [[3.0], [4.5]]
    """
    missing = prepared.missing if missing is None else missing
    check_missing(missing)
    table = as_table(data, texts=prepared.texts)
    x = np.empty((table.num_rows, len(prepared.features)), np.float32)
    for how, places in zip(prepared.columns, prepared.places, strict=True):
        x[:, places] = how.inputs(_numbers(how, table, missing))
    return x


def targets_of(prepared: Prepared, data: Any, *, target: str | None = None) -> NDArray[Any]:
    """The targets of rows: class numbers, or single-precision numbers scaled as in training."""
    name = target or prepared.target
    table = as_table(data, [name])
    wanted = column_of(table, "target", name)
    if wanted.null_count:
        raise gaps_in("target", name, wanted.null_count, len(wanted), "; every row needs one")
    if prepared.task == "classification":
        return known_labels(wanted, list(prepared.labels), prepared.label_case)
    y = read_target(wanted, name, "regression").y
    return np.asarray((y - prepared.target_mean) / prepared.target_scale, np.float32)
