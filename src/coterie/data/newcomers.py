"""A newcomer's table, read as the table of a federation was."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import (
    Block,
    check_feature,
    check_missing,
    client_names,
    column_of,
    gaps_in,
    joined,
    plain,
    read_feature,
)
from coterie.data.federation import Federation, Split, Task, cut
from coterie.data.partition import natural
from coterie.data.reading import as_table, is_text
from coterie.data.scaling import Scaling, fit
from coterie.data.targets import known_labels, read_target


@dataclasses.dataclass(frozen=True)
class Prepared:
    """How a table's columns became inputs, so that a newcomer's table can be read in the same
    way.
    """

    columns: tuple[str, ...]
    quantity: NDArray[np.bool_]
    middle: NDArray[np.floating[Any]]
    scaling: Scaling | None
    missing: str = "refuse"
    label_case: str | None = None


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
    missing = prepared.missing if missing is None else missing
    check_missing(missing)
    wanted_name = target or like.facts["target"]
    names = [name for name in (client, wanted_name) if isinstance(name, str)]
    table = as_table(data, names, codes=names[:1] if client is not None else ())
    if not table.num_rows:
        raise InvalidInput("the newcomers' table has no rows.")
    wanted = column_of(table, "target", wanted_name)
    x = _inputs(table, prepared, like.facts["features"], missing)
    if wanted.null_count:
        raise gaps_in(
            "target", wanted_name, wanted.null_count, len(wanted), "; every row needs one"
        )
    if like.task == "classification":
        labels = [str(v) for v in like.facts["labels"]]
        y: NDArray[Any] = known_labels(wanted, labels, prepared.label_case)
    else:
        y = read_target(wanted, wanted_name, "regression").y
        y = (y - like.facts.get("target_mean", 0.0)) / like.facts.get("target_scale", 1.0)
        y = y.astype(np.float32)
    owner, people = (
        (np.zeros(table.num_rows, np.int64), ["newcomer"])
        if client is None
        else natural(client_names(column_of(table, "client", client), client))
    )
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    x = _scaled(x, prepared, pieces[0][0] if own_scaling else None).astype(np.float32)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    return Federation(
        "newcomers", train, held_out, tested, like.task, like.classes, {"clients": people}
    )


def _inputs(
    table: pa.Table, prepared: Prepared, names: list[str], missing: str
) -> NDArray[np.float64]:
    """The run's inputs of the newcomers' rows, in the run's order; NaN where there is none."""
    blocks = [
        _feature(column_of(table, "feature", name), name, names, missing)
        for name in prepared.columns
    ]
    found = joined(blocks)
    for title in found.names:
        if title not in names:
            raise InvalidInput(
                f"the newcomers have the input {title!r}, which the run does not know; known:"
                f" {', '.join(names[:8])} …"
            )
    x = np.zeros((table.num_rows, len(names)))
    x[:, [names.index(title) for title in found.names]] = found.x
    return x


def _feature(column: pa.ChunkedArray, name: str, names: list[str], missing: str) -> Block:
    """A column as numbers, if the run has numbers there, else one column per category of the
    run's.
    """
    categories = [title for title in names if title.startswith(f"{name}=")]
    column = plain(column)
    if name in names or not categories:
        if is_text(column.type) and name in names:
            raise InvalidInput(
                f"the newcomers' column {name!r} holds text, but numbers in the run; they must be"
                " of one kind."
            )
        block = read_feature(column, name, most_categories=0)
        check_feature(block, column, name, missing)
        return block
    try:
        texts = column.cast(pa.string()).to_pylist()
    except pa.ArrowException:
        raise InvalidInput(
            f"the newcomers' column {name!r} is of type {column.type}, but text in the run; they"
            " must be of one kind."
        ) from None
    columns = {title.removeprefix(f"{name}="): i for i, title in enumerate(categories)}
    block = Block(np.zeros((len(texts), len(categories))), categories, False)
    check_feature(block, column, name, missing)
    unknown: Counter[str] = Counter()
    for row, text in enumerate(texts):
        if text in columns:
            block.values[row, columns[text]] = 1
        elif text is not None:
            unknown[text] += 1
    if unknown:
        rows = unknown.total()
        notice(
            f"the newcomers' column {name!r} has {rows} row{'s' if rows != 1 else ''} of"
            f" {listed(sorted(unknown))}, which the run does not know: there they are none of its"
            " categories."
        )
    return block


def _scaled(
    x: NDArray[np.float64], prepared: Prepared, own: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """Gaps filled and measured inputs standardised, by the run's numbers or by one's own rows."""
    middle, scaling, gaps = prepared.middle, prepared.scaling, np.isnan(x)
    if own is not None:
        present = ~gaps[own]
        middle = np.where(present, x[own], 0).sum(0) / np.maximum(present.sum(0), 1)
    x = np.where(gaps, middle, x)
    scaling = fit(x[own]) if own is not None else scaling
    return x if scaling is None else np.where(prepared.quantity, scaling(x), x)
