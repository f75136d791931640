"""What the answer says when something is missing or went wrong, on hand-made outcomes and on real
folders.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.metrics import ACCURACY, MSE
from coterie.report.budget import to_target
from coterie.report.comparison import Comparison, Entry
from coterie.report.measures import bytes_sheet, default_targets, sheets
from coterie.report.outcome import Outcome
from coterie.report.page import page
from coterie.report.tables import cells, markdown
from coterie.report.units import score_number
from coterie.runs.compare import assemble, compare_into
from coterie.runs.experiment import Contender, Experiment

NAN = float("nan")


def outcome(
    method: coterie.Method, scores: list[float], seed: int = 0, validation: float | None = 0.5
) -> Outcome:
    views: dict[str, Any] = {v: np.array([scores, scores]) for v in method.model_views}
    return Outcome(
        method,
        seed,
        *(np.array([0, 1]) for _ in range(4)),
        views,
        {v: -s for v, s in views.items()},
        np.ones(len(scores)),
        1.0,
        1.0,
        validation=validation,
    )


def two(ragged: Federation, local: list[Outcome], method: list[Outcome]) -> Comparison:
    return Comparison(
        "hand-made", ragged, [Entry("Local", local, local), Entry("FedU", method, local)]
    )


def test_means_and_gain_are_over_the_same_clients(ragged: Federation) -> None:
    """At the second seed client 1 has no test rows: nothing may be a mean over it."""
    local = [
        outcome(coterie.Local(), [0.5, 0.9, 0.5, 0.5, 0.5], 0),
        outcome(coterie.Local(), [0.5, NAN, 0.5, 0.5, 0.5], 1),
    ]
    method = [
        outcome(coterie.FedU(), [0.5, 0.1, 0.5, 0.5, 0.5], 0),
        outcome(coterie.FedU(), [0.5, NAN, 0.5, 0.5, 0.5], 1),
    ]
    comparison = two(ragged, local, method)
    alone, fedu = comparison.rows()
    assert fedu.gain is not None
    assert fedu.mean.mean - alone.mean.mean == pytest.approx(fedu.gain.mean) == 0
    assert "scores 50.00 on test data, training alone 50.00" in str(comparison.answer())
    assert "client 1" in markdown(comparison).split("without test rows at some seed: ")[1]


def test_no_client_with_rows_at_every_seed_is_said(ragged: Federation) -> None:
    pairs = [
        [outcome(m, [0.5, NAN, NAN, NAN, NAN], 0), outcome(m, [NAN, 0.5, NAN, NAN, NAN], 1)]
        for m in (coterie.Local(), coterie.FedU())
    ]
    comparison = two(ragged, *pairs)
    assert "No client has test rows at every seed" in str(comparison.answer())
    assert "<table>" in page(comparison, "", sheets(comparison))


@pytest.mark.parametrize("seed", range(20))
def test_default_targets_are_reached_by_those_that_set_them(ragged: Federation, seed: int) -> None:
    """12. Rounded up, the target of the best would be met by nobody."""
    rng = np.random.default_rng(seed)
    for metric, sign in ((ACCURACY, 1.0), (MSE, -1e-3)):
        local = [outcome(coterie.Local(), (sign * rng.random(5)).tolist())]
        method = [outcome(coterie.FedU(), (sign * rng.random(5)).tolist())]
        comparison = dataclasses.replace(two(ragged, local, method), metric=metric)
        unit = metric.unit
        targets = default_targets(comparison)
        assert to_target(local[0], min(targets)).rounds is not None
        for target in targets:
            assert any(to_target(o, target).rounds is not None for o in (local[0], method[0]))
            assert float(score_number(target, unit)) / unit == pytest.approx(target, rel=1e-12)


def test_no_number_is_minus_zero(ragged: Federation) -> None:
    """34. What rounds to 0 has no sign but the plus of a gain."""
    for unit in (1.0, 100.0):
        for value in (-0.0, -1e-9 if unit == 100 else -0.0):
            assert not score_number(value, unit).startswith("-")
            assert score_number(value, unit, signed=True).startswith("+")
    local = [outcome(coterie.Local(), [0.5] * 5)]
    method = [outcome(coterie.FedU(), [0.5 - 1e-9, 0.5, 0.5, 0.5, 0.5 - 2e-9])]
    comparison = two(ragged, local, method)
    text = str(comparison.answer()) + str(cells(comparison.rows()[1], ACCURACY))
    text += markdown(comparison)
    assert "-0.00" not in text
    assert "-0.00" not in page(comparison, "", sheets(comparison)).split("<script")[0]


def test_a_winner_chosen_on_test_data_gets_no_verdict(ragged: Federation) -> None:
    local = [outcome(coterie.Local(), [0.1] * 5, validation=None)]
    entries = [Entry("Local", local, local)] + [
        Entry(label, [outcome(coterie.FedU(), [score] * 5, validation=None)], local)
        for label, score in (("this", 0.8), ("that", 0.9))
    ]
    answer = str(Comparison("hand-made", ragged, entries).answer())
    assert answer.startswith("No verdict. that scores 90.00 on test data, training alone 10.00")
    assert "There is no validation data" in answer


def test_a_single_method_needs_no_validation_data_to_be_chosen(ragged: Federation) -> None:
    local = [outcome(coterie.Local(), [0.1] * 5, validation=None)]
    method = [outcome(coterie.FedU(), [0.2] * 5, validation=None)]
    answer = str(two(ragged, local, method).answer())
    assert "FedU scores 20.00 on test data" in answer
    assert "There is no validation data" not in answer


CONFIG = {
    "data": {"name": "digits", "clients": 3},
    "training": {"rounds": 1, "batch_size": 8},
    "methods": [{"name": "fedu", "local_steps": 2}],
    "seeds": [0],
}


def quiet(sentence: str) -> None:
    pass


def test_a_local_that_diverges_is_said_to_have_diverged(ragged: Federation) -> None:
    """11. There is nothing to compare with; it is not that no federated method finished."""
    why = "Local diverged in round 3: NaN or infinity from client 0."
    local = dataclasses.replace(outcome(coterie.Local(), [0.1] * 5), collapsed=why, collapsed_at=3)
    fedu = outcome(coterie.FedU(), [0.5] * 5)
    labelled = [("Local", Contender(local.method)), ("FedU", Contender(fedu.method))]
    comparison = assemble(
        "hand-made",
        ragged,
        labelled,
        [0, 0],
        [[local], [fedu]],
        metric=ACCURACY,
        graph_of=lambda c: "complete",
    )
    answer = str(comparison.answer())
    assert "No federated method" not in answer
    assert "Training alone with equal gradient steps diverged" in answer
    assert "Local diverged in round 3" in answer
    assert any(s.startswith("FedU: its gain is not known") for s in comparison.verdict())
    page(comparison, "", sheets(comparison))


def test_a_folder_without_scores_per_row_is_still_reported_on(tmp_path: Path) -> None:
    experiment, folder = Experiment.from_config(CONFIG), tmp_path / "here"
    first = compare_into(experiment, folder, say=quiet, keep_models=False)
    files = sorted(folder.glob("runs/*/rows.parquet"))
    assert len(files) == 2, "the scores of rows stay when the models are dropped"
    assert not list(folder.glob("runs/*/checkpoints"))
    assert "one training run (seed 0)" in str(first.answer())
    assert "cannot tell: " in str(first.answer())
    again = compare_into(experiment, folder, say=quiet)
    assert str(again.answer()) == str(first.answer())
    for path in files:
        path.unlink()
    old = compare_into(experiment, folder, say=quiet)
    assert "saved without the scores of single test rows" in str(old.answer())
    assert old.rows()[1].gain is not None
    assert "cannot tell" not in str(old.answer())


def test_default_targets_are_met_at_every_seed(ragged: Federation) -> None:
    local = [outcome(coterie.Local(), [s] * 5, i) for i, s in enumerate((0.61234, 0.65))]
    method = [outcome(coterie.FedU(), [s] * 5, i) for i, s in enumerate((0.30, 0.35))]
    comparison = two(ragged, local, method)
    assert default_targets(comparison) == [0.6073, 0.6123]
    (line, _) = bytes_sheet(comparison, default_targets(comparison), []).lines
    assert not any("seeds" in cell for cell in line)


def test_what_a_score_costs_is_over_the_same_clients_too(ragged: Federation) -> None:
    local = [outcome(coterie.Local(), [0.5, s, 0.5, 0.5, 0.5], i) for i, s in enumerate((1, NAN))]
    method = [outcome(coterie.FedU(), [0.4, s, 0.4, 0.4, 0.4], i) for i, s in enumerate((1, NAN))]
    comparison = two(ragged, local, method)
    fair, bill = sheets(comparison, [0.45])
    assert [line[1] for line in fair.lines] == ["50.00", "40.00"]
    assert bill.lines[1][1] == "never"
