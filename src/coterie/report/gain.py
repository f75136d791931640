"""A method's gain over Local and what may be said about it.

Verdicts are corrected for the number of methods (Holm), the clients' for the number of clients
(Benjamini–Hochberg); the tests themselves are in `significance`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core.metric_effects import RowEffects, by_trying
from coterie.core.metric_values import Groups
from coterie.core.metrics import Metric
from coterie.report.outcome import Outcome
from coterie.report.significance import (
    LEVEL,
    Rows,
    Tested,
    benjamini_hochberg,
    fewest_clients,
    holm,
    of_each_client,
    of_other_sites,
    of_these_sites,
)

Array = NDArray[Any]
Word = Literal["helps", "hurts", "no clear difference", "cannot be answered"]

NO_ROWS = "the runs were saved without the scores of single test rows"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The answer to one question about one method; `p` is corrected for the number of methods."""

    word: Word
    p: float | None = None
    why: str = ""

    @classmethod
    def of(cls, mean: float, p: float) -> Verdict:
        if p > LEVEL:
            return cls("no clear difference", p)
        return cls("helps" if mean > 0 else "hurts", p)

    @classmethod
    def none(cls, why: str) -> Verdict:
        return cls("cannot be answered", None, why)


@dataclasses.dataclass(frozen=True)
class Clients:
    """Who is clearly helped or hurt, strongest first, and of whom one cannot tell."""

    helped: tuple[int, ...]
    hurt: tuple[int, ...]
    unclear: tuple[int, ...]

    @classmethod
    def of(cls, ids: Array, means: Array, p: Array) -> Clients:
        sure = benjamini_hochberg(p) <= LEVEL
        order = np.argsort(means, kind="stable")
        pick = lambda those: tuple(int(ids[i]) for i in those)
        return cls(
            pick(i for i in order[::-1] if sure[i] and means[i] > 0),
            pick(i for i in order if sure[i] and means[i] < 0),
            pick(i for i in range(len(ids)) if not sure[i] or means[i] == 0),
        )


@dataclasses.dataclass(frozen=True)
class Gain:
    """Score minus that of Local at equal gradient steps, client by client and seed by seed:
    positive where the metric got better.

    The interval holds the mean gains of these very clients that the test of the first question does
    not reject at 5%; it is of this method alone. `these`, `others` and `clients` are None for views
    that a method is not judged by.
    """

    mean: float
    low: float | None
    high: float | None
    largest_loss: float
    worst_client: int
    per_client: tuple[float, ...]
    seeds: int
    these: Verdict | None = None
    others: Verdict | None = None
    clients: Clients | None = None
    clear_in_these_runs: bool = False
    """Not clear over training runs, but clear for the mean of those that were made."""

    @property
    def count(self) -> int:
        """The clients that it is a mean over."""
        return int(np.sum(~np.isnan(self.per_client)))


@dataclasses.dataclass(frozen=True)
class Measured:
    """A gain and its tests before they are corrected for the number of methods."""

    gain: Gain
    others: Tested
    these: Tested | None = None


def _effects(mine: Outcome, alone: Outcome, kept: Array, metric: Metric) -> Rows | None:
    """Of a metric that is not a mean over rows: what the exchange of each row changes."""
    a, b = mine.rows, alone.rows
    assert a is not None
    assert b is not None
    if a.outputs is None or b.outputs is None or a.y is None:
        return None
    client, y = a.client[kept], a.y[kept]
    outputs = a.outputs[mine.view][kept], b.outputs[alone.view][kept]
    groups = Groups(np.append(np.unique(client, return_index=True)[1], len(client)))
    found: RowEffects = (
        by_trying(metric.function, *outputs, y, groups)
        if metric.row_effects is None
        else metric.row_effects(*outputs, y, groups)
    )
    return Rows(client, metric.sign * found.difference, found.share)


def _rows(
    outcomes: Sequence[Outcome], local: Sequence[Outcome], members: Array, metric: Metric
) -> list[Rows] | None:
    """Paired differences of the rows of some clients, per seed; None if a run has none."""
    found = []
    for o, lo in zip(outcomes, local, strict=True):
        if o.rows is None or lo.rows is None or len(o.rows.client) != len(lo.rows.client):
            return None
        kept = members[o.rows.client]
        if not metric.rowwise:
            effects = _effects(o, lo, kept, metric)
            if effects is None:
                return None
            found.append(effects)
            continue
        if not o.rows.scores or not lo.rows.scores:
            return None
        mine, alone = o.rows.scores[o.view], lo.rows.scores[lo.view]
        found.append(Rows(o.rows.client[kept], (mine.astype(float) - alone.astype(float))[kept]))
    return found


def _in_units_of(tested: Tested, gain: float) -> Tested:
    """The test of a statistic that is the gain but for a factor near 1 (`core.metric_effects`): its
    interval in units of the gain. Whether it holds 0 does not change.
    """
    if tested.low is None or tested.high is None or tested.mean * gain <= 0:
        return tested
    factor = min(2.0, max(0.5, gain / tested.mean))
    return dataclasses.replace(
        tested, mean=gain, low=factor * tested.low, high=factor * tested.high
    )


def measure(
    outcomes: Sequence[Outcome],
    local: Sequence[Outcome],
    view: str,
    members: Array,
    metric: Metric,
) -> Measured:
    """The gain of a view over the same clients at every seed, and its tests."""
    differences = np.stack(
        [(o.last(view) - lo.last())[members] for o, lo in zip(outcomes, local, strict=True)]
    )
    each = np.full(len(members), np.nan)
    each[members] = differences.mean(0)
    worst = int(np.nanargmin(each))
    gain = Gain(
        float(differences.mean()),
        None,
        None,
        float(each[worst]),
        worst,
        tuple(each.tolist()),
        len(differences),
    )
    others = of_other_sites(differences)
    rows = _rows(outcomes, local, members, metric) if view == outcomes[0].view else None
    if rows is None:
        return Measured(gain, others)
    shared = len({o.test_rows for o in outcomes}) == 1 and all(
        np.array_equal(r.client, rows[0].client) for r in rows
    )
    these = of_these_sites(rows, shared=shared)
    if not metric.rowwise:
        these = _in_units_of(these, gain.mean)
    ids = np.flatnonzero(members)
    clients = Clients.of(ids, *of_each_client(rows, ids.tolist(), shared=shared))
    gain = dataclasses.replace(gain, low=these.low, high=these.high, clients=clients)
    return Measured(gain, others, these)


def judge(measured: Sequence[Measured]) -> list[Gain]:
    """Verdicts on several methods: Holm over them, for each question."""
    needed = fewest_clients(len(measured))
    far = holm([m.others.p for m in measured])
    near = iter(holm([m.these.p for m in measured if m.these is not None]))
    here = iter(holm([m.these.p_here for m in measured if m.these is not None]))
    out = []
    for m, p in zip(measured, far, strict=True):
        others = (
            Verdict.of(m.others.mean, float(p))
            if m.gain.count >= needed
            else Verdict.none(_too_few(m.gain.count, len(measured), needed))
        )
        these, clear = Verdict.none(NO_ROWS), False
        if m.these is not None:
            these = Verdict.of(m.gain.mean, float(next(near)))
            clear = bool(next(here) <= LEVEL) and these.word == "no clear difference"
        out.append(
            dataclasses.replace(m.gain, these=these, others=others, clear_in_these_runs=clear)
        )
    return out


def _too_few(clients: int, methods: int, needed: int) -> str:
    p = min(1.0, methods * 2.0 / 2**clients)
    several = f" after correction for {methods} methods" if methods > 1 else ""
    return (
        f"{clients} clients are too few (if all gained, the p-value would be {p:.2g}{several});"
        f" it takes at least {needed}"
    )
