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

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import (
    MISSING,
    MOST_CATEGORIES,
    Features,
    client_names,
    column_of,
    read_features,
    say_null_words,
)
from coterie.data.federation import Federation, Split, Task, cut, without_test
from coterie.data.newcomers import Prepared, newcomers_from_table
from coterie.data.partition import natural
from coterie.data.reading import KINDS, as_table, read_table, without_index
from coterie.data.scaling import Scaling, fit
from coterie.data.targets import MOST_CLASSES, read_target

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
    label_case: str | None = None,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """A Federation from a table: `client` names the column that says whose row it is, `target` the
    one to predict.

    All other columns (or those in `features`, without those in `drop`) are inputs, except a row
    index that pandas wrote. Text, true/false and whole-number targets with few values make a
    classification, other numbers a regression; `task` overrides. Labels that differ in case only
    are refused, or with label_case = "merge" taken for one and with "keep" for several. Missing
    numbers are refused, or with missing = "mean" replaced by the column's mean over training rows.
    Numeric inputs are standardised by training rows. `facts` holds the names of clients, labels and
    features. What is decided for you is said as a `Notice`.

    >>> sites, labels = ["a"] * 8 + ["b"] * 8, ["no", "yes"] * 8
    >>> columns = {"site": sites, "heat": np.arange(16.0), "label": labels}
    >>> fed = from_table(columns, client="site", target="label")
    >>> fed.clients, fed.input_shape, fed.facts["labels"], fed.facts["clients"]
    (2, (1,), ['no', 'yes'], ['a', 'b'])
    """
    names = [name for name in (client, target) if isinstance(name, str)]
    table = as_table(data, names, codes=names[:1])
    owners, wanted = column_of(table, "client", client), column_of(table, "target", target)
    if client == target:
        raise InvalidInput(
            f"{client!r} is named both as the client and as the target column; they must be two."
        )
    if not table.num_rows:
        raise InvalidInput("the table has no rows.")
    owner, people = natural(client_names(owners, client))
    say_null_words(owners, "client", client)
    _say_alike(people)
    used = _chosen(table, features, drop, {client, target})
    inputs = read_features(table, used, missing=missing, most_categories=most_categories)
    y, task, labels = read_target(wanted, target, task, most_classes, label_case)
    say_null_words(wanted, "target", target)
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
        facts["scaling"] = "per numeric feature, fitted on training data; 0 where that never varies"
        _say_constant(inputs, scaling)
    if standardise_target and task == "regression":
        facts["target_mean"], facts["target_scale"] = (
            float(y[train_rows].mean()),
            float(y[train_rows].std() or 1.0),
        )
        y = (y - facts["target_mean"]) / facts["target_scale"]
    x = x.astype(np.float32)
    y = y.astype(np.float32) if task == "regression" else y
    facts["prepared"] = Prepared(tuple(used), inputs.quantity, middle, scaling, missing, label_case)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    title = name or (Path(data).stem if isinstance(data, (str, Path)) else "table")
    made = Federation(title, train, held_out, tested, task, len(labels), facts)
    facts["no_test"] = without_test(made)
    return made


def _chosen(
    table: pa.Table, features: Sequence[str] | None, drop: Sequence[str], taken: set[str]
) -> list[str]:
    """The columns that become inputs."""
    for role, names in (("features", features or ()), ("drop", drop)):
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise InvalidInput(f"{role} is {names!r}, but must be a list of names of columns.")
        for name in names:
            column_of(table, "feature", name)
    known = list(features) if features else without_index(table, [*taken, *drop])
    return [name for name in known if name not in {*taken, *drop}]


def _say_alike(people: list[str]) -> None:
    """Clients are taken as they stand; say which of them may be one."""
    spellings: dict[str, list[str]] = {}
    for name in people:
        spellings.setdefault(" ".join(name.casefold().split()), []).append(name)
    for same in spellings.values():
        if len(same) > 1:
            notice(
                f"the clients {listed(same)} differ in case or spaces only; they are taken for"
                f" {len(same)} clients."
            )


def _say_constant(inputs: Features, scaling: Scaling) -> None:
    constant = np.flatnonzero(inputs.quantity & np.isinf(scaling.scale))
    if len(constant):
        names = [inputs.names[i] for i in constant]
        have, they = ("s", "they are") if len(names) > 1 else ("", "it is")
        notice(
            f"the input{have} {listed(names)} {'have' if have else 'has'} the same value in every"
            f" training row; {they} set to 0 everywhere."
        )


def _middle(inputs: Features, train_rows: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of what is present in training rows, per column."""
    train = inputs.x[train_rows]
    absent = np.isnan(train)
    if not absent.any():
        return np.asarray(train.mean(0))
    for i in np.flatnonzero(absent.all(0)):
        raise InvalidInput(
            f"the feature column {inputs.names[i]!r} has no value in any training row, so there is"
            " no mean to put where it is missing; leave it out with drop."
        )
    return np.asarray(np.where(absent, 0, train).sum(0) / (~absent).sum(0))


def _filled(inputs: Features, middle: NDArray[np.float64]) -> NDArray[np.float64]:
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
            table = read_table(file, [target])
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
