"""What reports say of the round that counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import InvalidInput, Local
from coterie.report.counted import convergence
from coterie.report.outcome import Outcome
from coterie.report.page import page
from coterie.report.tables import markdown


@pytest.fixture(scope="module")
def comparison() -> Any:
    fed = coterie.load("digits", clients=4, validation=0.3)
    options: dict[str, Any] = {"rounds": 6, "eval_every": 2, "batch_size": 2, "keep": "best"}
    return coterie.compare(
        [Local(local_steps=2, lr=2.0), Local(local_steps=2, lr=0.01)],
        fed,
        protocol="paper",
        **options,
    )


def test_scores_are_those_of_the_best_validation_round(comparison: Any) -> None:
    for entry, row in comparison.judged():
        (outcome,) = entry.outcomes
        place = list(outcome.rounds).index(outcome.kept)
        assert row.mean.mean == np.nanmean(outcome.scores["personal"][place])
        assert row.best_test.mean == np.nanmean(outcome.scores["personal"], axis=1).max()
        assert row.best_test.mean >= row.mean.mean


def test_reports_say_which_round_it_was(comparison: Any) -> None:
    noisy, slow = (entry.outcomes[0] for entry in comparison.entries)
    assert slow.kept == 6  # tiny steps: the last round is the best
    said = " ".join(comparison.verdict())
    assert f"was best on validation data at round {noisy.kept} of 6." in said
    assert "It was still improving at the last round: it has not converged." in said
    for text in (markdown(comparison), page(comparison)):
        assert "best test round" in text
        assert "too good by that choice" in text
    assert "round of the best validation score" in page(comparison)


def test_only_the_papers_protocol_shows_the_best_test_round(comparison: Any) -> None:
    import dataclasses

    plain = dataclasses.replace(comparison, protocol="standard")
    assert "best test round" not in markdown(plain)
    assert all(row.best_test is None for row in plain.rows())
    with pytest.raises(InvalidInput, match="the protocol 'papers' is unknown; did you mean"):
        coterie.compare(["fedu"], comparison.federation, protocol="papers")


def outcome(kept: int, ended: int, seed: int = 0) -> Outcome:
    none = np.zeros(0)
    rounds = np.arange(0, ended + 1, 10)
    return Outcome(
        Local(), seed, rounds, none, none, none, {}, {}, none, 0.0, 0.0, planned=60, kept=kept
    )


def test_early_stops_and_seeds_are_told_apart() -> None:
    assert convergence("A", [outcome(40, 50)]) == (
        "A was best on validation data at round 40 of 60. Training stopped early, after round 50."
    )
    assert convergence("A", [outcome(40, 60, 0), outcome(60, 60, 3)]) == (
        "A was best on validation data at rounds 40 of 60, 60 of 60 (seeds 0, 3). It was still"
        " improving at the last round (seeds 3): it has not converged."
    )
