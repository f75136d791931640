"""Your own data: a table with a column that says which client a row belongs to, or a folder with
one table per client.

What a column means is read off its type and its values (`coterie.data.kinds`). What is decided for
the user is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.choosing import choose
from coterie.data.columns import MISSING, check_missing, column_of, owners_of, say_null_words
from coterie.data.federation import Federation, Split, Task, cut, without_test
from coterie.data.fitting import fit_columns
from coterie.data.kinds import MOST_CATEGORIES, Column
from coterie.data.newcomers import newcomers_from_table
from coterie.data.prepared import Prepared, inputs_of
from coterie.data.reading import KINDS, as_table, read_table
from coterie.data.sniffing import Format
from coterie.data.targets import MOST_CLASSES, read_target

OWNER = "__client__"
FORMAT = ("separator", "decimal", "encoding", "sheet")

__all__ = [
    "KINDS",
    "MISSING",
    "Column",
    "Prepared",
    "from_folder",
    "from_table",
    "inputs_of",
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
    missing: str = "fill",
    standardise: bool = True,
    standardise_target: bool = False,
    most_categories: int = MOST_CATEGORIES,
    most_classes: int = MOST_CLASSES,
    label_case: str | None = None,
    keep: Sequence[str] = (),
    day_first: bool | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    name: str | None = None,
) -> Federation:
    """A Federation from a table: `client` names the column that says whose row it is, `target` the
    one to predict.

    All other columns (or those in `features`, without those in `drop`) are inputs, except a row
    index that pandas wrote and columns that look like names or numbers of rows (`keep` names those
    to use). Numbers are standardised by training rows; true/false becomes 0/1, a category one 0/1
    input per value, a date days and its place in the day and the week (`day_first` says how
    03/04/2024 is meant).

    A missing number becomes the column's mean over training rows, with a 0/1 input beside it that
    says so (missing = "fill"), or without that input ("mean"), or is refused ("refuse"); a missing
    category is none of the known ones.

    Text, true/false and whole-number targets with few values make a classification, other numbers a
    regression; `task` overrides. Labels that differ in case only are refused, or with label_case =
    "merge" taken for one and with "keep" for several.

    Separator, decimal sign and encoding of a CSV file are found out unless `separator`, `decimal`
    and `encoding` say them; `sheet` names one of an Excel workbook. `facts` holds the names of
    clients, labels and features, and `facts["prepared"]` how columns became inputs. What is decided
    for you is said as a `Notice`.

    >>> sites, labels = ["a"] * 8 + ["b"] * 8, ["no", "yes"] * 8
    >>> columns = {"site": sites, "heat": np.arange(16.0), "label": labels}
    >>> fed = from_table(columns, client="site", target="label")
    >>> fed.clients, fed.input_shape, fed.facts["labels"], fed.facts["clients"]
    (2, (1,), ['no', 'yes'], ['a', 'b'])
    """
    names = [name for name in (client, target) if isinstance(name, str)]
    written = Format(separator, decimal, encoding, sheet)
    table = as_table(data, names, names[:1], written)
    owners, wanted = column_of(table, "client", client), column_of(table, "target", target)
    if client == target:
        raise InvalidInput(
            f"{client!r} is named both as the client and as the target column; they must be two."
        )
    if not table.num_rows:
        raise InvalidInput("the table has no rows.")
    owner, people = owners_of(owners, client)
    say_null_words(owners, "client", client)
    _say_alike(people)
    check_missing(missing)
    y, task, labels = read_target(wanted, target, task, most_classes, label_case)
    say_null_words(wanted, "target", target)
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    parts = [rows for rows, _ in pieces]
    kinds, left_out = choose(
        table,
        (client, target),
        features=features,
        drop=drop,
        keep=keep,
        missing=missing,
        most_categories=most_categories,
        day_first=day_first,
        rows=parts[0],
    )
    middle, spread = 0.0, 1.0
    if standardise_target and task == "regression":
        middle, spread = float(y[parts[0]].mean()), float(y[parts[0]].std() or 1.0)
        y = (y - middle) / spread
    y = y.astype(np.float32) if task == "regression" else y
    given = {how.name: table.column(how.name) for how in kinds}
    del table
    columns, inputs, gaps = fit_columns(
        given, kinds, parts, missing=missing, standardise=standardise
    )
    prepared = Prepared(
        columns,
        task=task,
        target=target,
        client=client,
        labels=tuple(labels),
        label_case=label_case,
        target_mean=middle,
        target_scale=spread,
        missing=missing,
    )
    facts: dict[str, Any] = {
        "clients": people,
        "features": list(prepared.features),
        "target": target,
        "prepared": prepared,
        "left_out": left_out,
        "gaps": gaps,
    }
    if task == "classification":
        facts["labels"] = labels
    if standardise:
        facts["scaling"] = "per numeric feature, fitted on training data; 0 where that never varies"
    if standardise_target and task == "regression":
        facts["target_mean"], facts["target_scale"] = middle, spread
    train, held_out, tested = (
        Split(x, y[rows], offsets) for x, (rows, offsets) in zip(inputs, pieces, strict=True)
    )
    title = name or (Path(data).stem if isinstance(data, (str, Path)) else "table")
    made = Federation(title, train, held_out, tested, task, len(labels), facts)
    facts["no_test"] = without_test(made)
    return made


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
    written = Format(*(options.pop(key, None) for key in FORMAT))
    parts: list[pa.Table] = []
    first: tuple[Path, set[str]] | None = None
    for client, files in groups.items():
        if not files:
            raise InvalidInput(
                f"the folder of client {client!r} holds no table ({', '.join(KINDS)})."
            )
        for file in files:
            table = read_table(file, [target], written=written)
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
