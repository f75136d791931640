"""What the exchange of single rows between two models changes in a metric: the differences that
paired tests are made from.

Two models a and b predict the same rows. If they are equally good, nobody could tell which
prediction of a row is whose: exchanging the two in any set of rows gives an outcome that was as
likely as the one seen. That is a randomisation test: the observed difference of the metric is one
of many, one for each set of rows that are exchanged. It is exact when the two predictions of a row
may change places.

With signs s_i = −1 for rows that are exchanged and 1 for the others, the difference of a client
with n rows after the exchange is

    Δ(s) = (1/n) Σ_i s_i d_i,

for these d_i, which are computed here:

    d_i = (n/2) [θ(a) − θ(a with row i of b) + θ(b with row i of a) − θ(b)].

For means over rows that is the difference of the two rows. It is exact, too, for what is linear in
the rows once y is known (balanced accuracy, R²), and for the AUC, a mean over pairs of rows: let
ψ(x, z) say whether x is above z. The pair (i, j) contributes ψ(a_i, a_j) − ψ(b_i, b_j) where
neither or both rows are exchanged (then negated), and ψ(a_i, b_j) − ψ(b_i, a_j) where only j is:
in all one term with s_i and one with s_j. So tests by sign-flips of d (`report.significance`) are
this test.

The differences of F1 and RMSE are linear in s but for a denominator. There the test takes one that
no exchange changes, the same up to second order: the test stays exact, and the mean of d is a
little nearer to 0 than the difference itself. Of the AUC only the order of rows counts, so models
are compared by their ranks; that, and the calibration error, is exact up to second order only
(`tests/report/test_metric_level.py` looks at the level).

Values are compared as they are, a's minus b's, whichever is better. `share` says which part of a
common gain a row has: 1 on average over a client's rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core import metric_values as values
from coterie.core.metric_values import BINS, Groups, ratio

Array = NDArray[Any]

BLOCKS = 200
"""Of a metric of one's own: so many parts of a client's rows are exchanged at most, since the
metric is computed anew twice for each.
"""
CALLS = 40_000


class RowEffects(NamedTuple):
    """Per row: its part of the difference of the two values (the mean over a client's rows is the
    client's difference, or nearly), and its part of a common gain.
    """

    difference: Array
    share: Array


Effects = Callable[[Array, Array, Array, Groups], RowEffects]
"""(outputs of a, outputs of b, y, groups) → effects."""


def _plain(difference: Array) -> RowEffects:
    return RowEffects(difference, np.ones(len(difference)))


def accuracy(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    return _plain(values.right(a, y) - values.right(b, y))


def log_loss(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    return _plain(values.log_losses(a, y) - values.log_losses(b, y))


def mse(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    return _plain(values.squared_errors(a, y) - values.squared_errors(b, y))


def mae(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    return _plain(values.absolute_errors(a, y) - values.absolute_errors(b, y))


def balanced_accuracy(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    """A row counts by how rare its class is at its client; y alone decides that."""
    counts = groups.counts(y, a.shape[1])
    present = (counts > 0).sum(1)
    weight = (groups.sizes / np.maximum(present, 1))[groups.owner] / counts[groups.owner, y]
    return RowEffects(weight * (values.right(a, y) - values.right(b, y)), weight)


def _below(scores: Array, groups: Groups, marked: Array) -> Array:
    """Of each entry the marked ones of the same client that are smaller; those alike count half.

    `scores` has two columns, both of the same rows.
    """
    owner = np.repeat(groups.owner, 2)
    flat, counted = scores.reshape(-1), np.repeat(marked, 2).astype(np.float64)
    order = np.lexsort((flat, owner))
    sorted_, whose, counted = flat[order], owner[order], counted[order]
    new = np.append(True, (sorted_[1:] != sorted_[:-1]) | (whose[1:] != whose[:-1]))
    first = np.flatnonzero(new)
    inside = np.add.reduceat(counted, first)
    before = np.cumsum(inside) - inside
    length = np.diff(np.append(first, len(flat)))
    out = np.empty(len(flat))
    out[order] = np.repeat(before + inside / 2, length)
    total = groups.sums(marked) * 2
    start = np.cumsum(total) - total
    return (out - start[owner]).reshape(scores.shape)


def auc(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    """How much further up a row of the class is with a than with b among the others of both, and
    how much further down the others.

    Only the order matters to the AUC, so both are compared by their ranks at the client: models
    that differ in scale alone do not differ.
    """
    owner, sizes = groups.owner, groups.sizes.astype(np.float64)
    counts = groups.counts(y, a.shape[1])
    judged = values.judged_classes(a.shape[1])
    present = np.maximum((counts[:, judged] > 0).sum(1), 1)
    difference, share = np.zeros(len(y)), np.zeros(len(y))
    for k in judged if len(y) else ():
        mine = y == k
        ranks = [values.midranks(values.log_odds(side, k), groups) for side in (a, b)]
        scores = np.stack(ranks, 1)
        ones = counts[:, k].astype(np.float64)
        rest = sizes - ones
        over, under = _below(scores, groups, ~mine), _below(scores, groups, mine)
        gained = np.where(mine, over[:, 0] - over[:, 1], under[:, 1] - under[:, 0])
        # Placements are among two values of each of the others, in pairs of ones × rest.
        scale = ratio(sizes, 2 * ones * rest * present)[owner]
        part = ratio(sizes, 2 * present)[owner] / np.where(mine, ones[owner], rest[owner])
        used = (counts[:, k] > 0)[owner]
        difference += np.where(used, scale * gained, 0.0)
        share += np.where(used, part, 0.0)
    return RowEffects(difference, share)


def f1(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    """F1 is 2 tp/D, D = true + guessed. With t̄ and D̄ the means of both models' tp and D, the
    difference is 2 (D̄ Δtp − t̄ ΔD)/(D_a D_b), where D_a D_b = D̄² − (ΔD)²/4 becomes D̄². Each row has
    its own part of Δtp and ΔD, and no exchange changes t̄ and D̄.
    """
    classes = a.shape[1]
    counts, judged = groups.counts(y, classes), values.judged_classes(classes)
    present = np.maximum((counts[:, judged] > 0).sum(1), 1)
    guesses = [np.argmax(side, -1) for side in (a, b)]
    difference = np.zeros(len(y))
    for k in judged:
        hit, named = ([(g == k) & w for g in guesses] for w in (y == k, np.ones(len(y), bool)))
        tp = [groups.sums(h) for h in hit]
        whole = [counts[:, k] + groups.sums(n) for n in named]
        scale = ratio(2 * groups.sizes, np.square(sum(whole) / 2) * present)
        scale = np.where(counts[:, k] > 0, scale, 0.0)
        for sums, row in ((sum(whole) / 2, hit), (-sum(tp) / 2, named)):
            difference += (scale * sums)[groups.owner] * (row[0].astype(float) - row[1])
    return _plain(difference)


def rmse(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    """√A − √B = (A − B)/(√A + √B), where √A + √B becomes 2 √((A + B)/2): no exchange changes it."""
    both = np.sqrt(2 * (values.mse(a, y, groups) + values.mse(b, y, groups)))
    scale = np.where(both > 0, ratio(np.ones(groups.count), both), 0.0)
    return _plain(scale[groups.owner] * mse(a, b, y, groups).difference)


def r2(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    spread = ratio(groups.sizes.astype(float)[:, None], values.spread(y, groups))[groups.owner]
    targets = values.columns(y)
    errors = np.square(b - targets) - np.square(a - targets)
    return _plain(np.asarray((spread * errors).mean(1)))


def calibration_error(a: Array, b: Array, y: Array, groups: Groups) -> RowEffects:
    """|A| − |B| = (A − B) (A + B)/(|A| + |B|) in every bin."""
    found = [values.binned(side, y) for side in (a, b)]
    places = [groups.owner * BINS + place for place, _ in found]
    sums = [
        np.bincount(place, excess, groups.count * BINS)
        for place, (_, excess) in zip(places, found, strict=True)
    ]
    size = np.abs(sums[0]) + np.abs(sums[1])
    side = np.where(size > 0, ratio(sums[0] + sums[1], size), 0.0)
    return _plain(side[places[0]] * found[0][1] - side[places[1]] * found[1][1])


def by_trying(
    function: Callable[[Array, Array, Groups], Array], a: Array, b: Array, y: Array, groups: Groups
) -> RowEffects:
    """Of any metric: rows are exchanged and the metric is computed anew.

    A client's rows are cut into at most 200 parts (fewer with many clients), which are exchanged as
    a whole; a part's effect stands in its first row. Part j of all clients is done at once.
    """
    most = max(20, min(BLOCKS, CALLS // max(1, groups.count)))
    parts = np.minimum(groups.sizes, most)
    place = np.arange(len(y)) - np.asarray(groups.offsets)[:-1][groups.owner]
    part = (place * parts[groups.owner]) // np.maximum(groups.sizes, 1)[groups.owner]
    whole_a, whole_b = function(a, y, groups), function(b, y, groups)
    differs = (a != b).any(1)
    difference = np.zeros(len(y))
    for j in range(int(parts.max(initial=0))):
        taken = part == j
        here = np.zeros(groups.count, bool)
        here[groups.owner[taken & differs]] = True
        if not here.any():
            continue
        rows = here[groups.owner]
        some = Groups(np.concatenate([[0], np.cumsum(groups.sizes[here])]))
        change = taken[rows][:, None]
        mixed = [np.where(change, other[rows], own[rows]) for own, other in ((a, b), (b, a))]
        with_b, with_a = (function(side, y[rows], some) for side in mixed)
        effect = (whole_a[here] - with_b + with_a - whole_b[here]) / 2
        first = np.flatnonzero(taken & (np.append(True, part[1:] != part[:-1]) | (place == 0)))
        first = first[here[groups.owner[first]]]
        difference[first] = effect * groups.sizes[here]
    left = groups.sizes * (whole_a - whole_b) - groups.sums(difference)
    touched = np.bincount(groups.owner, difference != 0, groups.count)
    spare = np.where(touched > 0, left / np.maximum(touched, 1), 0.0)[groups.owner]
    return _plain(difference + np.where(difference != 0, spare, 0.0))
