"""Reports by several metrics, on hand-made outcomes: direction, sign, who is left out and why."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.metrics import ACCURACY, METRICS, Metric, register_metric
from coterie.data.federation import Split
from coterie.report.attack_page import attack_page
from coterie.report.attacked import Cell, Grid, attack_markdown, cell_text
from coterie.report.comparison import Comparison, Entry
from coterie.report.imbalance import majority_scores
from coterie.report.measures import default_targets, sheets
from coterie.report.outcome import Outcome
from coterie.report.page import page
from coterie.report.plots import Wanted, plot, unit_and_label
from coterie.report.tables import filled, markdown
from coterie.runs.compare import compare

NAN = float("nan")


def outcome(method: coterie.Method, scores: list[float], validation: float | None = 0.5) -> Outcome:
    """Scores at the end; half as good at the beginning."""
    last = np.array(scores)
    both = np.stack([last - 0.5 * np.abs(last), last])
    views: dict[str, Any] = dict.fromkeys(method.model_views, both)
    losses = dict.fromkeys(method.model_views, np.ones((2, len(scores))))
    made = (np.array([0, 1]), np.array([0, 10]), np.array([0, 20]), np.array([0, 5]))
    sizes = np.full(len(scores), 10)
    return Outcome(method, 0, *made, views, losses, sizes, 1.0, 1.0, validation=validation)


def federation(labels: np.ndarray, clients: int = 3) -> Federation:
    """Every client has these labels in every split."""
    part = Split(
        np.zeros((clients * len(labels), 1)),
        np.tile(labels, clients),
        len(labels) * np.arange(clients + 1),
    )
    facts = {"clients": [f"site-{k}" for k in range(clients)], "labels": ["well", "ill"]}
    return Federation("made", part, part, part, classes=2, facts=facts)


def two(metric: Metric, alone: list[float], mine: list[float], fed: Federation) -> Comparison:
    local, method = [outcome(coterie.Local(), alone)], [outcome(coterie.FedU(), mine)]
    entries = [Entry("Local", local, local), Entry("FedU", method, local)]
    return Comparison("made", fed, entries, metric)


HALVES = np.repeat([0, 1], 5)


def test_smaller_errors_are_a_gain_and_shown_without_a_minus() -> None:
    comparison = two(METRICS["log-loss"], [-0.6] * 3, [-0.4, -0.4, -0.7], federation(HALVES))
    columns, lines = filled(comparison)
    assert [line[columns.index("mean")] for line in lines[:2]] == ["0.6", "0.5"]
    assert lines[1][columns.index("gain over Local")].startswith("+0.1")
    assert lines[1][columns.index("largest loss")] == "-0.1"
    assert lines[1][columns.index("worst 10%")] == "0.7", "the largest error is the worst"
    answer = str(comparison.answer())
    assert "has the log-loss 0.5 (smaller is better) on test data, training alone 0.6" in answer
    assert "+0.1 against" in " ".join(comparison.verdict()) or "+0.1 " in answer
    text = markdown(comparison) + page(comparison, "", sheets(comparison)).split("<script")[0]
    assert "smaller is better" in text
    assert "-0.6" not in text
    assert "-0.5" not in text


def test_targets_are_values_of_the_metric() -> None:
    comparison = two(METRICS["log-loss"], [-0.5] * 3, [-0.25] * 3, federation(HALVES))
    _, bill = sheets(comparison, [0.3])
    assert bill.columns[1] == "to 0.3"
    assert [line[1] for line in bill.lines] == ["never", "10 B + 20 B (1, 5)"]
    assert default_targets(comparison) == [-0.5, -0.25], "scores, the larger the better"
    _, bill = sheets(comparison)
    assert bill.columns[1:] == ["to 0.5", "to 0.25"]


@pytest.mark.parametrize("name", ["auc", "log-loss", "calibration-error"])
def test_figures_have_the_metrics_name_and_its_direction(name: str) -> None:
    metric = METRICS[name]
    sign = metric.sign
    comparison = two(metric, [sign * 0.6] * 3, [sign * 0.7] * 3, federation(HALVES))
    unit, label = unit_and_label(comparison)
    assert unit == sign * metric.unit
    assert metric.title in label
    assert ("smaller is better" in label) != metric.higher
    (axes,) = plot(comparison, "curves", Wanted()).axes
    assert axes.get_ylabel() == label
    assert [line.get_ydata()[-1] for line in axes.lines] == pytest.approx(
        [0.6 * metric.unit, 0.7 * metric.unit]
    )


def test_sites_without_a_value_are_left_out_for_all_and_named() -> None:
    comparison = two(METRICS["auc"], [0.5, NAN, 0.7], [0.6, NAN, 0.8], federation(HALVES))
    assert comparison.undefined() == ["site-1"]
    assert comparison.left_out() == []
    row = comparison.rows()[1]
    assert row.gain is not None
    assert row.gain.count == 2
    (note,) = comparison.notes()
    assert note == (
        "Not in the means, for all methods alike: site-1. Their AUC is not defined, since their"
        " test rows are all of one class."
    )
    assert note in markdown(comparison)


def test_a_metric_without_a_value_for_anybody_is_refused_before_training() -> None:
    healthy = federation(np.zeros(8, int))
    with pytest.raises(
        coterie.InvalidInput, match=r"'auc', but no client has it .*all of one class"
    ):
        compare(["fedavg"], healthy, rounds=1, metric="auc")


def test_without_a_value_on_validation_data_that_is_said() -> None:
    local = [outcome(coterie.Local(), [0.5] * 3, None)]
    entries = [Entry("Local", local, local)] + [
        Entry(label, [outcome(coterie.FedU(), [score] * 3, None)], local)
        for label, score in (("this", 0.8), ("that", 0.9))
    ]
    answer = str(Comparison("made", federation(HALVES), entries, METRICS["auc"]).answer())
    assert "no validation data for which the AUC is defined" in answer


@pytest.mark.parametrize(
    ("ill", "percent"), [(3, "97"), (1, "99"), (9, "91"), (10, None), (50, None)]
)
def test_one_class_for_nearly_all_rows_is_said(ill: int, percent: str | None) -> None:
    labels = np.repeat([0, 1], [100 - ill, ill])
    plain = two(ACCURACY, [0.9] * 3, [0.9] * 3, federation(labels)).notes()
    if percent is None:
        assert plain == []
        return
    (note,) = plain
    assert note.startswith(f"{percent}% of the test rows are of one class (well)")
    assert 'consider metric = "auc"' in note
    assert two(METRICS["auc"], [0.9] * 3, [0.9] * 3, federation(labels)).notes() == []


def test_what_the_most_frequent_class_scores_by_each_metric() -> None:
    """8 of 10 are well: a model that knows this and nothing else."""
    fed = federation(np.repeat([0, 1], [8, 2]))
    p = 9 / 12  # counts plus one
    expected = {
        "accuracy": 0.8,
        "balanced-accuracy": 0.5,
        "auc": 0.5,
        "f1": 0.0,
        "log-loss": 0.8 * np.log(p) + 0.2 * np.log(1 - p),
        "calibration-error": -(0.8 - p),
    }
    for name, value in expected.items():
        assert majority_scores(fed, METRICS[name]) == pytest.approx([value] * 3), name


def test_attacks_by_errors() -> None:
    cell = Cell((-0.5, -0.7), (None, None), (-0.1, -0.2))
    assert cell_text(cell, METRICS["rmse"]) == "0.6 ± 0.141 (−0.15)"
    assert cell_text(Cell((0.871,), (None,), (-0.024,))) == "87.10 (−2.4)"
    grid = Grid("made", ["FedU"], ["noise"], [0.1], [0], {("FedU", "noise", 0.1): cell})
    text = attack_markdown(dataclasses.replace(grid, metric=METRICS["rmse"]))
    assert "mean test RMSE (smaller is better)" in text
    assert "the change (positive: better) against the same clients" in text
    assert "mean test accuracy in %," in attack_markdown(grid)
    assert "(smaller is better)" in attack_page(dataclasses.replace(grid, metric=METRICS["rmse"]))


def test_a_function_of_ones_own_decides(ragged: Federation) -> None:
    """It is right by its name in all words, and its verdict is by exchanges that were tried."""

    def truth(p: np.ndarray, y: np.ndarray) -> float:
        return float(p[np.arange(len(y)), y].mean())

    try:
        methods = [coterie.FedU(local_steps=2)]
        found = compare(methods, ragged, rounds=2, eval_every=2, batch_size=4, metric=truth)
        rows = found.entries[1].outcomes[0].rows
        assert found.metric.name == "truth"
        assert rows is not None
        assert rows.outputs is not None
        row = found.rows()[1]
        assert row.gain is not None
        assert row.gain.these is not None
        assert row.gain.these.p is not None
        assert "has the truth" in str(found.answer())
        # A mean over rows: the same as if its parts had been known.
        assert row.gain.clients is not None
        assert row.gain.low is not None
        assert row.gain.high is not None
        assert row.gain.low <= row.gain.mean <= row.gain.high
    finally:
        METRICS.pop("truth", None)


def test_a_registered_function_of_which_smaller_is_better(ragged: Federation) -> None:
    try:
        register_metric("misses", lambda p, y: float((p.argmax(1) != y).mean()), higher=False)
        method = coterie.FedAvg(local_steps=2)
        run: dict[str, Any] = {"rounds": 2, "eval_every": 2, "batch_size": 4}
        by_misses = coterie.simulate(method, ragged, metric="misses", **run)
        plain = coterie.simulate(method, ragged, **run)
        np.testing.assert_allclose(by_misses.client_scores(), plain.client_scores() - 1, atol=1e-6)
    finally:
        METRICS.pop("misses", None)
