"""Federations for tuning: without test rows, or cut into folds for cross-validation."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation, Split
from coterie.data.scaling import fit


def _empty(like: Split) -> Split:
    return Split(like.x[:0], like.y[:0], np.zeros_like(like.offsets))


def blind(federation: Federation) -> Federation:
    """The same clients without their test rows: whoever has only this cannot look at them."""
    return dataclasses.replace(federation, test=_empty(federation.train))


def _taken(whole: Split, rows: NDArray[np.int64], owner: NDArray[np.int64]) -> Split:
    """Some rows, in their order; `owner` says whose each row of the whole is."""
    sizes = np.bincount(owner[rows], minlength=len(whole.offsets) - 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Split(whole.x[rows], whole.y[rows], offsets)


def _together(federation: Federation) -> tuple[Split, NDArray[np.int64]]:
    """Training and validation rows, client after client, and whose each row is."""
    parts = (federation.train, federation.validation)
    owner = np.concatenate([np.repeat(np.arange(federation.clients), p.sizes) for p in parts])
    order = np.argsort(owner, kind="stable")
    owner = owner[order]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=federation.clients))])
    x, y = (np.concatenate([getattr(p, a) for p in parts])[order] for a in ("x", "y"))
    return Split(x, y, offsets.astype(np.int64)), owner


def folds(federation: Federation, count: int, seed: int = 0) -> list[Federation]:
    """Cross-validation within every client: its training and validation rows are shuffled and cut
    into `count` folds, each of which is validated on once. There are no test rows.

    All folds hold the same number of rows in all, so that they share compiled programs. Rows that
    are left over, fewer than `count`, are always trained on, and so are those of a client with a
    single row. Where the inputs were standardised, that is fitted anew on each fold's training
    rows: two such maps in a row are one, and nothing is left of the first. (What stands for missing
    values in a table stays as it was.)
    """
    if count < 2:
        raise InvalidInput(f"folds is {count}, but must be a whole number ≥ 2.")
    whole, owner = _together(federation)
    sizes = whole.sizes
    rng = np.random.default_rng([seed, 0xF01D])
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    usable = order[(sizes > 1)[owner[order]]]
    usable = usable[: len(usable) // count * count]
    if not len(usable):
        raise InvalidInput(
            f"folds is {count}, but {federation.name!r} has too few training and validation rows"
            f" for that: a client needs at least 2, and all of them together {count}."
        )
    # Dealt out one by one across clients: a client's folds differ by one row at most.
    fold = np.full(len(owner), -1)
    fold[usable] = np.arange(len(usable)) % count
    out = []
    for i in range(count):
        train = fold != i
        made = dataclasses.replace(
            federation,
            train=_taken(whole, np.flatnonzero(train), owner),
            validation=_taken(whole, np.flatnonzero(~train), owner),
            test=_empty(federation.train),
        )
        out.append(_scaled_anew(made))
    return out


def _scaled_anew(federation: Federation) -> Federation:
    """Standardised by its training rows, where it was by others before: the same features."""
    if "fitted on training data" not in str(federation.facts.get("scaling", "")):
        return federation
    scaling, prepared = fit(federation.train.x), federation.facts.get("prepared")
    measured = np.ones(federation.input_shape, bool)
    if prepared is not None:  # a table: categories and flags stay 0 or 1
        measured[:] = False
        for column, places in zip(prepared.columns, prepared.places, strict=True):
            measured[list(places[: column.width])] = column.measured

    def apply(s: Split) -> Split:
        return Split(np.where(measured, scaling(s.x), s.x), s.y, s.offsets)

    train, validation, test = (apply(s) for s in federation.splits)
    return dataclasses.replace(federation, train=train, validation=validation, test=test)
