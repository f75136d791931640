"""The numbers of a run that papers print: accuracy and how it varies between clients, losses, what
a budget buys and a target costs, all as the paper of the table measures them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.report.budget import spent
from coterie.report.fairness import correlation
from coterie.report.outcome import Outcome
from coterie.runs.attack import who_lies
from coterie.runs.contender import Contender
from coterie.runs.reproduce.base import (
    ACCURACY,
    AT_BUDGET,
    BEHIND,
    COLLABORATION,
    LOSS,
    LOSS_VARIANCE,
    TO_TARGET,
    TRAIN_LOSS,
    VARIANCE,
    Block,
    Line,
    Measured,
)
from coterie.runs.reproduce.plan import BlockPlan

Array = NDArray[Any]
NUMBER = 4
"""Bytes of a number. What lp-proj's tables call bytes are numbers that were sent."""
WARM = 20
"""lp-proj looks for the best accuracy after so many rounds."""
LEFT = 0.4
"""Of the test samples of a down-sampled client, in FedU's published code (20% of those it trains
on).
"""
TOLD = {
    "by samples": "the last round, clients counted by their test samples, of which down-sampled"
    f" clients have {LEFT:.0%} in the published code",
    "best": "the best round on test data, clients counted by their test samples",
    "last": "the last round, mean over clients",
    "after 20": "the best round on test data after the 20th, mean over clients",
}
"""What is measured, in words."""


def mean_curve(outcome: Outcome, view: str, counts: Array, how: Measured = "last") -> Array:
    """The mean accuracy at every evaluation, in per cent, over the clients that count; by their
    test samples where the paper does so.
    """
    scores = outcome.scores[view][:, counts]
    there = ~np.isnan(scores).all(axis=0)
    weights = np.ones(int(there.sum()))
    if how in ("best", "by samples"):
        weights = outcome.samples[counts][there].astype(float)
    if how == "by samples":
        weights[np.isin(np.flatnonzero(counts)[there], outcome.poor)] *= LEFT
    return 100 * np.asarray(scores[:, there] @ weights / weights.sum())


def place(outcome: Outcome, view: str, counts: Array, how: Measured) -> int:
    """The evaluation that counts."""
    if how in ("last", "by samples"):
        return len(outcome.rounds) - 1
    curve = mean_curve(outcome, view, counts, how)
    late = outcome.rounds >= WARM if how == "after 20" else np.ones(len(curve), bool)
    if not late.any():
        late[-1] = True
    return int(np.flatnonzero(late)[np.argmax(curve[late])])


@dataclasses.dataclass(frozen=True)
class Ran:
    """A line's runs, one for every seed, and Local's beside them."""

    line: Line
    contender: Contender
    outcomes: list[Outcome]
    local: list[Outcome]
    counts: list[Array]
    """The clients that count at every seed: with an attack, the honest ones."""
    block: Block

    @property
    def view(self) -> str:
        return self.line.view or self.outcomes[0].view

    @property
    def collapsed(self) -> str | None:
        """When runs collapsed, in words."""
        rounds = sorted({o.collapsed_at or 0 for o in self.outcomes if o.collapsed})
        if not rounds:
            return None
        many = sum(o.collapsed is not None for o in self.outcomes)
        some = "" if many == len(self.outcomes) else f"{many} of {len(self.outcomes)} seeds "
        when = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]}–{rounds[-1]}"
        return f"{some}collapsed at round {when}"

    def accuracies(self, how: Measured) -> list[float]:
        """One for every seed that did not collapse."""
        return [v for v in self.values(ACCURACY, how) if not np.isnan(v)]

    def alone(self) -> list[float]:
        """What Local has with the same gradients, on the same clients, in the last round."""
        pairs = zip(self.local, self.counts, strict=False)
        return [float(mean_curve(o, o.view, c)[-1]) for o, c in pairs if not o.collapsed]

    def values(self, measure: str, how: Measured) -> list[float]:
        """A measure at every seed; NaN where the run collapsed or the target was never met."""
        return [
            float("nan") if o.collapsed else self._value(i, measure, how)
            for i, o in enumerate(self.outcomes)
        ]

    def _value(self, seed: int, measure: str, how: Measured) -> float:
        o, counts, view = self.outcomes[seed], self.counts[seed], self.view
        if measure in (AT_BUDGET, TO_TARGET):
            return self._paid(o, measure)
        at = place(o, view, counts, how)
        score = o.scores[view][at, counts]
        if measure == ACCURACY:
            return float(mean_curve(o, view, counts, how)[at])
        if measure == VARIANCE:
            return float(np.nanvar(score))
        if measure == COLLABORATION:
            local = self.local[seed] if self.local else None
            alone = None if local is None or local.collapsed else local.last()[counts]
            return float("nan") if alone is None else correlation(score, alone)
        losses = o.losses if measure in (LOSS, LOSS_VARIANCE) else o.train_losses
        if view not in losses:
            return float("nan")
        loss = losses[view][at, counts]
        return float(np.nanmean(loss) if measure in (LOSS, TRAIN_LOSS) else np.nanvar(loss))

    def _paid(self, outcome: Outcome, measure: str) -> float:
        """The last accuracy that the budget pays for; or the numbers sent until the target is met
        at an evaluation. Nothing is bought by a budget that does not pay for the first round.
        """
        everybody = np.ones(len(outcome.samples), bool)
        curve, paid = mean_curve(outcome, self.view, everybody), spent(outcome) / NUMBER
        trained = outcome.rounds > 0
        if measure == AT_BUDGET:
            bought = np.flatnonzero(trained & (paid <= (self.block.budget or 0.0)))
            return float(curve[bought[-1]]) if len(bought) else float("nan")
        met = np.flatnonzero(trained & (curve >= 100 * (self.block.target or 0.0)))
        return float(paid[met[0]]) if len(met) else float("nan")


def ran(plan: BlockPlan, outcomes: Mapping[Path, Outcome]) -> list[Ran]:
    """What came of every line of a block."""
    found = []
    for line, cell in zip(plan.block.lines, plan.cells, strict=True):
        mine = [outcomes[p.folder] for p in cell.runs]
        fraction = 0.0 if line.attack is None else float(line.attack.get("fraction", 0.2))
        counts = [
            ~who_lies(p.single, o.seed, fraction) for p, o in zip(cell.runs, mine, strict=True)
        ]
        local = [outcomes[p.folder] for p in cell.local]
        found.append(Ran(line, cell.contender, mine, local, counts, plan.block))
    return found


def measured(lines: list[Ran], measure: str, how: Measured) -> list[list[float]]:
    """A measure of every line at every seed."""
    if measure != BEHIND:
        return [line.values(measure, how) for line in lines]
    scores = [np.array(line.values(ACCURACY, how)) for line in lines]
    return [(scores[0] - mine).tolist() if i else [] for i, mine in enumerate(scores)]
