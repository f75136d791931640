"""Which round's scores a report shows, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from coterie.report.outcome import Outcome

if TYPE_CHECKING:
    from coterie.report.comparison import Comparison

PAPER = (
    "best test round: the mean of the round that is best on test data, chosen per run as the papers"
    ' do (protocol = "paper"); it is too good by that choice, and no verdict uses it'
)


def outcomes_of(comparison: Comparison) -> list[Outcome]:
    return [o for entry in comparison.entries for o in entry.outcomes]


def which_round(outcomes: Iterable[Outcome]) -> str:
    """`last round`, or that the best one on validation data counts."""
    best = any(o.kept is not None for o in outcomes)
    return "round of the best validation score" if best else "last round"


def _rounds(outcomes: Sequence[Outcome]) -> str:
    """`round 40 of 60`, or one for each seed."""
    each = [f"{o.kept} of {o.planned}" for o in outcomes]
    if len(set(each)) == 1:
        return f"round {each[0]}"
    seeds = ", ".join(str(o.seed) for o in outcomes)
    return f"rounds {', '.join(each)} (seeds {seeds})"


def convergence(label: str, outcomes: Sequence[Outcome]) -> str:
    """When a method was at its best on validation data; empty where the last round counts."""
    if any(o.kept is None for o in outcomes):
        return ""
    told = f"{label} was best on validation data at {_rounds(outcomes)}."
    late = [o for o in outcomes if o.still_improving and o.kept == o.planned]
    if late:
        seeds = f" (seeds {', '.join(str(o.seed) for o in late)})" if len(outcomes) > 1 else ""
        told += f" It was still improving at the last round{seeds}: it has not converged."
    stopped = [o for o in outcomes if int(o.rounds[-1]) < o.planned]
    if stopped:
        ends = ", ".join(str(int(o.rounds[-1])) for o in stopped)
        told += f" Training stopped early, after round {ends}."
    return told


def converged(comparison: Comparison) -> list[str]:
    """A sentence for each method of a comparison in which the best round counts."""
    told = [convergence(e.label, e.outcomes) for e in comparison.entries if not e.collapsed]
    return [sentence for sentence in told if sentence]


def best_on_test(outcome: Outcome, view: str, members: np.ndarray) -> float:
    """The highest mean score over clients of all evaluations, on test data."""
    return float(np.nanmean(outcome.scores[view][:, members], axis=1).max())
