"""A newcomer's table, read as the table of a federation was."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.columns import column_of, gaps_in, plain, read_features, read_target
from coterie.data.federation import Federation, Split, Task, cut
from coterie.data.partition import natural
from coterie.data.reading import as_table
from coterie.data.scaling import Scaling


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
    table, wanted_name = as_table(data), target or like.facts["target"]
    if not table.num_rows:
        raise InvalidInput("the newcomers' table has no rows.")
    wanted = column_of(table, "target", wanted_name)
    for column in prepared.columns:
        column_of(table, "feature", column)
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
        raise gaps_in(
            "target", wanted_name, wanted.null_count, len(wanted), "; every row needs one"
        )
    if like.task == "classification":
        labels = [str(v) for v in like.facts["labels"]]
        texts = [str(v) for v in plain(wanted).to_pylist()]
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
        else natural(plain(column_of(table, "client", client)).to_pylist())
    )
    pieces = cut(owner, validation=validation, test=test, seed=seed)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    return Federation(
        "newcomers", train, held_out, tested, like.task, like.classes, {"clients": people}
    )
