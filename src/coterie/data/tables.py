"""Your own data: a table with a column that says which client a row belongs to, or a folder with
one table per client.

What a column means is read off its type: numbers are used as they are, true/false become 1/0, text
and categories become one column per value; anything else, and anything missing, is refused by name,
so that nothing is guessed silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.columns import (
    MISSING,
    MOST_CATEGORIES,
    MOST_CLASSES,
    Features,
    column_of,
    gaps_in,
    plain,
    read_features,
    read_target,
)
from coterie.data.federation import Federation, Split, Task, cut, without_test
from coterie.data.newcomers import Prepared, newcomers_from_table
from coterie.data.partition import natural
from coterie.data.reading import KINDS, as_table, read_table
from coterie.data.scaling import fit

OWNER = "__client__"

__all__ = [
    "KINDS",
    "MISSING",
    "Prepared",
    "from_folder",
    "from_table",
    "newcomers_from_table",
    "read_table",
]


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
    owners, wanted = column_of(table, "client", client), column_of(table, "target", target)
    if client == target:
        raise InvalidInput(
            f"{client!r} is named both as the client and as the target column; they must be two."
        )
    if not table.num_rows:
        raise InvalidInput("the table has no rows.")
    if owners.null_count:
        raise gaps_in(
            "client", client, owners.null_count, len(owners), "; every row needs an owner"
        )
    for column in (*(features or ()), *drop):
        column_of(table, "feature", column)
    used = [c for c in features or table.column_names if c not in {client, target, *drop}]
    inputs = read_features(table, used, missing=missing, most_categories=most_categories)
    y, task, labels = read_target(wanted, target, task, most_classes)
    owner, people = natural(plain(owners).to_pylist())
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
