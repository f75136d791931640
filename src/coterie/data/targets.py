"""What a table's target means: classes or a quantity, and what the classes are called."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import coded, gaps_in, is_number, numbers_of, plain
from coterie.data.federation import Task
from coterie.data.reading import is_text

MOST_CLASSES = 20
"""A whole-number target with more different values than this is taken for a quantity, not for
classes.
"""
CASES = ("merge", "keep")


class Target(NamedTuple):
    """The target in double precision or as class numbers, and the names of the classes."""

    y: NDArray[Any]
    task: Task
    labels: list[str]


def read_target(
    column: pa.ChunkedArray,
    name: str,
    task: Task | None,
    most_classes: int = MOST_CLASSES,
    label_case: str | None = None,
) -> Target:
    """The target, what kind of task it makes, and the names of the classes (in their order)."""
    if task not in (None, "classification", "regression"):
        raise InvalidInput(
            f"task is {task!r}, but must be 'classification' or 'regression' or nothing."
        )
    if label_case not in (None, *CASES):
        raise InvalidInput(
            f"label_case is {label_case!r}, but must be 'merge' or 'keep' or nothing."
        )
    column = plain(column)
    kind = column.type
    if column.null_count:
        raise gaps_in("target", name, column.null_count, len(column), "; leave those rows out")
    if is_text(kind) or pa.types.is_boolean(kind):
        if task == "regression":
            raise InvalidInput(
                f"the target column {name!r} is of type {kind}, but regression needs numbers."
            )
        values, codes = coded(column)
        if is_text(kind):
            values = _alike(values, np.bincount(codes, minlength=len(values)), name, label_case)
        found = _classes(np.asarray(values), name)
        return found._replace(y=found.y[codes])
    if not is_number(kind):
        raise InvalidInput(
            f"the target column {name!r} is of type {kind}, but must hold numbers, text or"
            " true/false."
        )
    numbers = numbers_of(column)
    if not np.isfinite(numbers).all():
        raise gaps_in(
            "target",
            name,
            int((~np.isfinite(numbers)).sum()),
            len(column),
            " or infinite ones; leave those rows out",
        )
    whole = bool(np.all(numbers == np.floor(numbers)))
    if task is None:
        different = len(np.unique(numbers))
        task = "classification" if whole and different <= most_classes else "regression"
        if task == "classification" and not pa.types.is_integer(kind):
            notice(
                f"the target column {name!r} holds {different} different whole numbers and is taken"
                " for classes; task = 'regression' takes it for a quantity."
            )
    if task == "regression":
        return Target(numbers, "regression", [])
    return _classes(numbers.astype(np.int64) if whole else numbers, name)


def _classes(values: NDArray[Any], name: str) -> Target:
    labels, codes = np.unique(values, return_inverse=True)
    if len(labels) < 2:
        raise InvalidInput(
            f"the target column {name!r} has the same value in every row; there is nothing to"
            " learn."
        )
    return Target(codes.reshape(-1).astype(np.int32), "classification", [str(v) for v in labels])


def _alike(
    values: list[str], rows: NDArray[np.int64], name: str, label_case: str | None
) -> list[str]:
    """The different labels (and how many rows have each) without spaces around them; those that
    differ in case only are refused, unless it is said whether they are one.
    """
    texts = [v.strip() for v in values]
    spaced = sorted({v for v, text in zip(values, texts, strict=True) if v != text})
    if spaced:
        notice(
            f"spaces around labels of the target column {name!r} are left out ({listed(spaced)})."
        )
    counts: Counter[str] = Counter()
    for text, count in zip(texts, rows.tolist(), strict=True):
        counts[text] += count
    spellings: dict[str, list[str]] = {}
    for text in sorted(counts):
        spellings.setdefault(text.casefold(), []).append(text)
    merged: dict[str, str] = {}
    for same in spellings.values():
        if len(same) == 1 or label_case == "keep":
            merged |= {text: text for text in same}
            continue
        if label_case is None:
            raise InvalidInput(
                f"the target column {name!r} has the labels {listed(same)}, which differ in case"
                " only; use label_case = 'merge' to take them for one, or 'keep' for several."
            )
        usual = max(same, key=lambda text: counts[text])
        notice(
            f"the labels {listed(same)} of the target column {name!r} are taken for one, {usual!r}."
        )
        merged |= dict.fromkeys(same, usual)
    return [merged[text] for text in texts]


def known_labels(
    column: pa.ChunkedArray, labels: list[str], label_case: str | None
) -> NDArray[np.int32]:
    """Newcomers' labels as the class numbers of a run, found as the run's own were."""
    fold = str.casefold if label_case == "merge" else str
    known = {fold(label.strip()): i for i, label in enumerate(labels)}
    column = plain(column)
    values, codes = coded(column)
    if is_number(column.type):
        numbers = numbers_of(pa.chunked_array([values], column.type)).tolist()
        values = [int(v) if v == np.floor(v) else v for v in numbers]
    texts = [str(v).strip() for v in values]
    for text in texts:
        if fold(text) not in known:
            raise InvalidInput(
                f"the newcomers have the label {text!r}, which the run does not know; known:"
                f" {', '.join(labels)}."
            )
    return np.array([known[fold(text)] for text in texts], np.int32)[codes]
