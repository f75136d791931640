"""A newcomer's table, read as the table of a federation was."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from coterie.core.errors import InvalidInput
from coterie.data.columns import column_of, owners_of
from coterie.data.federation import Federation, Split, Task, cut
from coterie.data.prepared import Prepared, inputs_of, numbers_of_rows, targets_of
from coterie.data.reading import as_table


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
    missing: str | None = None,
    own_scaling: bool = False,
    validation: float = 0.0,
    test: float = 0.25,
    seed: int = 0,
) -> Federation:
    """Newcomers' rows, read as the table of a federation was: the same columns, categories, labels
    and scaling, and the same answer to missing values unless `missing` gives another. Without
    `client` all rows are one's.

    A category that the federation does not know is none of the known ones (0 in all their columns),
    which is said. With `own_scaling` measured inputs are standardised by the newcomers' own
    training rows.

    >>> from coterie.data import from_table
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
    wanted_name = target or prepared.target
    names = [name for name in (client, wanted_name) if isinstance(name, str)]
    codes = names[:1] if client is not None else ()
    table = as_table(data, names, codes, texts=prepared.texts)
    if not table.num_rows:
        raise InvalidInput("the newcomers' table has no rows.")
    column_of(table, "target", wanted_name)
    owner, people = (
        (np.zeros(table.num_rows, np.int64), ["newcomer"])
        if client is None
        else owners_of(column_of(table, "client", client), client)
    )
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    if own_scaling:
        rows = pieces[0][0]
        numbers = numbers_of_rows(prepared, table, missing)
        prepared = prepared.refitted([values[rows] for values in numbers])
    x = inputs_of(prepared, table, missing=missing)
    y = targets_of(prepared, table, target=wanted_name)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    return Federation(
        "newcomers", train, held_out, tested, like.task, like.classes, {"clients": people}
    )
