"""What a score costs and how evenly it is spread, on hand-made outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput
from coterie.core.sizes import parse_bytes
from coterie.report.budget import at_budget, spent, to_target
from coterie.report.comparison import Comparison, Entry
from coterie.report.measures import bytes_sheet, default_targets, fairness_sheet, sheets
from coterie.report.outcome import Outcome
from coterie.report.page import page
from coterie.report.plots import Wanted, plot


def outcome(
    method: coterie.Method, curve: list[float], up: int, down: int, collapsed: str | None = None
) -> Outcome:
    """Two clients, 0.1 above and below the curve; bytes grow evenly over evaluations at rounds 0,
    5, 10, …
    """
    steps = np.arange(len(curve))
    scores = np.array(curve)[:, None] + np.array([0.1, -0.1])
    views: dict[str, Any] = dict.fromkeys(method.model_views, scores)
    return Outcome(
        method,
        0,
        5 * steps,
        up * steps,
        down * steps,
        7 * steps,
        views,
        {v: 1 - s for v, s in views.items()},
        np.ones(2),
        1.0,
        0.5,
        collapsed,
    )


@pytest.fixture(scope="module")
def comparison(ragged: Federation) -> Comparison:
    local = [outcome(coterie.Local(), [0.2, 0.5, 0.6], 0, 0)]
    fedu = [outcome(coterie.FedU(), [0.2, 0.6, 0.8], 1000, 3000)]
    broken = [outcome(coterie.FedAvg(), [0.2], 10, 10, "it diverged")]
    return Comparison(
        "hand-made",
        ragged,
        [Entry("Local", local, local), Entry("FedU", fedu, local), Entry("FedAvg", broken, local)],
    )


def test_bytes_to_a_target_count_until_it_is_first_met(comparison: Comparison) -> None:
    fedu = comparison.entries[1].outcomes[0]
    assert to_target(fedu, 0.55, "up") == (1000, 5, 7)
    assert to_target(fedu, 0.55, "down") == (3000, 5, 7)
    assert to_target(fedu, 0.7) == (8000, 10, 14)
    assert to_target(fedu, 0.81) == (None, None, None)
    assert at_budget(fedu, 4000) == pytest.approx(0.6)
    assert at_budget(fedu, 3999) == pytest.approx(0.2)
    assert at_budget(fedu, 2000, "up") == pytest.approx(0.8)
    with pytest.raises(InvalidInput, match="direction is 'sideways'"):
        spent(fedu, "sideways")


@pytest.mark.parametrize("text", ["", "many", "3 hours", "1.2.3MB", "MB"])
def test_bad_numbers_of_bytes_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="the number of bytes is"):
        parse_bytes(text)


def test_the_sheets_say_it_all(comparison: Comparison) -> None:
    bill = bytes_sheet(comparison, [0.55, 0.9], [4000])
    assert bill.columns == ["method", "to 55.00", "to 90.00", "for 4.0 kB"]
    assert bill.lines[0] == ["Local", "0 B + 0 B (10, 14)", "never", "60.00"]
    assert bill.lines[1] == ["FedU", "1.0 kB + 3.0 kB (5, 7)", "never", "60.00"]
    assert len(bill.lines) == 2, "what collapsed has no score"
    fair = fairness_sheet(comparison)
    assert [line[0] for line in fair.lines] == ["Local", "FedU"]
    assert fair.lines[1][1:5] == ["80.00", "100", "70.00", "90.00"]
    assert fair.lines[1][-1] == "1.000"
    assert fair.lines[0][-1] == ""
    assert default_targets(comparison) == [0.6, 0.795]


def test_figures_go_without_the_seeds_that_collapsed(ragged: Federation) -> None:
    whole, cut = (
        outcome(coterie.FedU(), [0.2, 0.6, 0.8], 10, 10),
        outcome(coterie.FedU(), [0.2, 0.6], 10, 10, "it diverged"),
    )
    local = [outcome(coterie.Local(), [0.2, 0.5, 0.6], 0, 0)] * 2
    some = Comparison(
        "hand-made", ragged, [Entry("Local", local, local), Entry("FedU", [cut, whole], local)]
    )
    for over in ("rounds", "bytes", "gradients"):
        (axes,) = plot(some, "curves", Wanted(over=over)).axes
        assert len(axes.lines) == 2, over
    assert "collapsed at round" in page(some, "", sheets(some))


def test_the_page_has_both_tables_and_the_scatter(comparison: Comparison) -> None:
    text = page(comparison, "", sheets(comparison))
    assert "<h2>Fairness</h2>" in text
    assert "<h2>What a score costs</h2>" in text
    assert "varies between clients" in text
    (axes,) = plot(comparison, "fairness", Wanted()).axes
    assert axes.get_xlabel() == "standard deviation between clients (points)"
    for sheet in sheets(comparison):
        assert sheet.markdown().count("\n| ") == len(sheet.lines) + 2
        assert sheet.rich().row_count == len(sheet.lines)
