"""Columns of a table as the inputs of a federation: kinds, gaps, means and scales.

Columns are worked on in groups, in double precision; only their single-precision inputs are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput, listed, notice
from coterie.data.columns import refuse_gaps
from coterie.data.kinds import Column, numbers_in
from coterie.data.scaling import fit

AT_ONCE = 16
"""Numbers per row that are worked on at once."""


class Fitted(NamedTuple):
    """The columns with their means and scales, and the inputs of each part."""

    columns: tuple[Column, ...]
    inputs: list[NDArray[np.float32]]
    gaps: dict[str, int]
    """Rows without a value, of columns that have such."""


def fit_columns(
    given: dict[str, pa.ChunkedArray],
    kinds: Sequence[Column],
    parts: Sequence[NDArray[np.int64]],
    *,
    missing: str,
    standardise: bool,
) -> Fitted:
    """Columns fitted on the rows of the first part, and the inputs of the rows of every part.

    The columns are taken out of `given` one after the other, so that their memory can be used
    again.
    """
    columns: list[Column] = []
    pieces: list[list[NDArray[np.float32]]] = [[] for _ in parts]
    gaps: dict[str, int] = {}
    for group in _groups(kinds):
        blocks = [_numbers(given.pop(how.name), how, missing, gaps) for how in group]
        block = np.concatenate(blocks, 1)
        del blocks
        fitted: list[Column] = []
        for piece, rows in zip(pieces, parts, strict=True):
            numbers = block[rows]
            fitted = fitted or _fit(numbers, group, missing=missing, standardise=standardise)
            piece.append(_inputs(fitted, numbers))
        columns += fitted
    _say_constant(columns)
    if missing == "fill" and gaps:
        _say_gaps(gaps)
    pa.default_memory_pool().release_unused()
    made = []
    while pieces:
        made.append(np.concatenate(pieces.pop(0), 1))
    return Fitted(tuple(columns), made, gaps)


def _inputs(columns: Sequence[Column], numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """What `Column.inputs` gives, of columns side by side; the numbers are overwritten."""
    gaps = np.isnan(numbers)
    if gaps.any():
        fill = [v for how in columns for v in how.fill or (0.0,) * how.width]
        np.copyto(numbers, np.array(fill), where=gaps)
    numbers -= np.array([v for how in columns for v in how.mean or (0.0,) * how.width])
    numbers /= np.array([v for how in columns for v in how.scale or (1.0,) * how.width])
    if not any(how.flagged for how in columns):
        return numbers.astype(np.float32)
    made, begin = [], 0
    for how in columns:
        made.append(numbers[:, begin : begin + how.width])
        made.append(gaps[:, [begin + i for i in how.flagged]])
        begin += how.width
    return np.concatenate(made, 1, dtype=np.float32)


def _groups(kinds: Sequence[Column]) -> list[list[Column]]:
    """Columns of about AT_ONCE numbers together; a group of a single number only if there is no
    other (sums along a single column are rounded in another order).
    """
    groups: list[list[Column]] = [[]]
    for how in kinds:
        if sum(h.width for h in groups[-1]) >= AT_ONCE:
            groups.append([])
        groups[-1].append(how)
    if len(groups) > 1 and sum(h.width for h in groups[-1]) < 2:
        single = groups.pop()
        groups[-1] += single
    return groups


def _numbers(
    column: pa.ChunkedArray, how: Column, missing: str, gaps: dict[str, int]
) -> NDArray[np.float64]:
    values = numbers_in(column, how)
    absent = int(np.isnan(values).any(1).sum()) or column.null_count
    if missing == "refuse":
        refuse_gaps(how.name, absent, len(column))
    if absent:
        gaps[how.name] = absent
    return values


def _fit(
    train: NDArray[np.float64], group: Sequence[Column], *, missing: str, standardise: bool
) -> list[Column]:
    absent = np.isnan(train)
    if absent.any():
        titles = [title for how in group for title in how.titles]
        for i in np.flatnonzero(absent.all(0)):
            raise InvalidInput(
                f"the feature column {titles[i]!r} has no value in any training row, so there is no"
                " mean to put where it is missing; leave it out with drop."
            )
        middle = np.asarray(np.where(absent, 0, train).sum(0) / (~absent).sum(0))
        train = np.where(absent, middle, train)
    else:
        middle = np.asarray(train.mean(0))
    scaling = fit(train) if standardise else None
    made, begin = [], 0
    for how in group:
        own = slice(begin, begin + how.width)
        scale: Any = (scaling.mean[own], scaling.scale[own]) if scaling is not None else ()
        fitted = how.fitted(middle[own], *scale)
        if missing == "fill" and how.kind != "category":
            flagged = np.flatnonzero(absent[:, own].any(0))
            fitted = dataclasses.replace(fitted, flagged=tuple(int(i) for i in flagged))
        made.append(fitted)
        begin += how.width
    return made


def _say_constant(columns: Sequence[Column]) -> None:
    names = [
        title
        for how in columns
        if how.scale
        for title, scale in zip(how.titles, how.scale, strict=False)
        if np.isinf(scale)
    ]
    if names:
        have, they = ("s", "they are") if len(names) > 1 else ("", "it is")
        notice(
            f"the input{have} {listed(names)} {'have' if have else 'has'} the same value in every"
            f" training row; {they} set to 0 everywhere."
        )


def _say_gaps(gaps: dict[str, int]) -> None:
    many = len(gaps) > 1
    which = f"column{'s' if many else ''} {listed(gaps)} {'have' if many else 'has'}"
    total = sum(gaps.values())
    values = f"{total} missing value{'s' if total != 1 else ''}"
    notice(
        f"the {which} {values}: a missing number becomes the training mean, with an input that"
        " says that it was missing, and a missing category none of the known ones; missing ="
        " 'refuse' refuses them."
    )
