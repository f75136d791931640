"""The answer: what is chosen, against which Local, who counts how much, and what stands beside."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import numpy as np
import pytest

import coterie
from coterie.data.federation import Federation, Split
from coterie.engine.row_scores import RowScores
from coterie.methods.base import Method
from coterie.report.comparison import Comparison, Entry
from coterie.report.findings import Findings, LeftOut, ReferenceRow
from coterie.report.outcome import Outcome
from coterie.report.significance import Rows, Tested, of_other_sites, of_these_sites
from coterie.report.sites import sites, sites_csv

ROWS = (40, 40, 40, 40, 40, 40, 40, 2)


def federation(rows: tuple[int, ...] = ROWS) -> Federation:
    def split(sizes: tuple[int, ...]) -> Split:
        n = sum(sizes)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return Split(np.zeros((n, 1)), np.zeros(n, int), offsets)

    few = tuple(3 for _ in rows)
    names = [f"s{k}" for k in range(len(rows))]
    parts = split(few), split(few), split(rows)
    return Federation("made", *parts, classes=2, facts={"clients": names})


def entry(method: Method, right: list[float], validation: float, label: str) -> Entry:
    """A method that has these shares of its clients' rows right: the first ones."""
    client = np.repeat(np.arange(len(ROWS)), ROWS)
    row = np.concatenate([np.arange(n) for n in ROWS])
    scores = (
        row < np.array([round(r * n) for r, n in zip(right, ROWS, strict=True)])[client]
    ) * 1.0
    each = np.array([scores[client == k].mean() for k in range(len(ROWS))])
    view = method.model_views[0]
    outcome = Outcome(
        method,
        0,
        *(np.array([v]) for v in (1, 800, 800, 1)),
        {view: each[None]},
        {view: -each[None]},
        np.array(ROWS),
        1.0,
        1.0,
        validation=validation,
        rows=RowScores(client, row, {view: scores}),
    )
    return Entry(label, [outcome], None)


def comparison(*entries: Entry, **more: object) -> Comparison:
    local = next(e for e in entries if e.label.startswith("Local")).outcomes
    listed = [dataclasses.replace(e, local=local) for e in entries]
    return Comparison("made", federation(), listed, **more)  # type: ignore[arg-type]


SAME = [0.5] * 8
BETTER = [0.9] * 7 + [0.5]


def test_training_alone_is_a_candidate_like_any_other() -> None:
    """FedU looks good beside its own Local, but a tuned Local is better."""
    made = comparison(
        entry(coterie.Local(), SAME, 0.5, "Local (lr 0.01)"),
        entry(coterie.Local(lr=0.5), BETTER, 0.9, "Local (lr 0.5)"),
        entry(coterie.FedU(), [0.8] * 8, 0.8, "FedU"),
    )
    answer = made.answer()
    assert answer.word == "do not federate"
    assert answer.local == "Local (lr 0.5)"
    assert answer.gain is not None
    assert answer.gain.mean == pytest.approx((7 * -0.1 + 0.5) / 8)
    assert "On validation data FedU was not better than training alone" in str(answer)


def test_a_method_that_is_chosen_and_helps() -> None:
    made = comparison(
        entry(coterie.Local(), SAME, 0.5, "Local"),
        entry(coterie.FedU(), BETTER, 0.9, "FedU"),
        entry(coterie.FedAvg(), [0.4] * 8, 0.4, "FedAvg"),
    )
    answer = made.answer()
    assert (answer.word, answer.method) == ("federate", "FedU")
    assert str(answer).startswith("Federate: it helps these 8 clients. FedU scores 85.00")
    assert "best of 2 federated methods on validation data" in str(answer)
    plain = json.loads(json.dumps(answer.to_config()))
    assert plain["answer"] == "federate"
    assert plain["gain"] == pytest.approx(0.35)
    assert plain["clearly_helped"] == 7


def test_a_client_with_two_test_rows_is_listed_apart() -> None:
    """Two rows would move the mean of eight clients by 6 points."""
    lucky = [*SAME[:7], 1.0]
    entries = [
        entry(coterie.Local(), SAME, 0.5, "Local"),
        entry(coterie.FedU(), lucky, 0.6, "FedU"),
    ]
    before, after = comparison(*entries), comparison(*entries, minimum=5)
    assert before.answer().gain.mean == pytest.approx(0.0625)  # type: ignore[union-attr]
    assert after.answer().gain.mean == 0  # type: ignore[union-attr]
    assert after.answer().gain.count == 7  # type: ignore[union-attr]
    assert "fewer than 5: s7 (2)" in str(after.answer())
    assert sites(after)[7].verdict == "too few test rows (2)"


def test_what_is_known_little_of_counts_little() -> None:
    lucky = [*SAME[:7], 1.0]
    made = comparison(
        entry(coterie.Local(), SAME, 0.5, "Local"),
        entry(coterie.FedU(), lucky, 0.6, "FedU"),
        prior=20.0,
    )
    weight = np.array(ROWS) / (np.array(ROWS) + 20)
    expected = 0.5 * weight[7] / weight.sum()
    assert made.answer().gain.mean == pytest.approx(expected)  # type: ignore[union-attr]
    local, fedu = (row.mean.mean for row in made.rows())
    assert fedu - local == pytest.approx(expected)


def test_weights_of_tests_are_those_of_means() -> None:
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(9), 30)
    difference = rng.choice([-1.0, 0.0, 0.0, 1.0, 1.0], len(client))
    weight = rng.uniform(0.2, 1.0, 9)
    alike = of_these_sites([Rows(client, difference)])
    assert of_these_sites([Rows(client, difference, weight=np.ones(9))]) == alike
    weighted = of_these_sites([Rows(client, difference, weight=weight)])
    each = np.array([difference[client == k].mean() for k in range(9)])
    assert weighted.mean == pytest.approx(np.average(each, weights=weight))
    far = of_other_sites(each[None], weight)
    assert far.mean == pytest.approx(weighted.mean)
    assert of_other_sites(each[None], np.ones(9)).p == pytest.approx(of_other_sites(each[None]).p)


def test_a_row_per_client_as_csv() -> None:
    made = comparison(
        entry(coterie.Local(), SAME, 0.5, "Local"), entry(coterie.FedU(), BETTER, 0.9, "FedU")
    )
    table = list(csv.DictReader(io.StringIO(sites_csv(made))))
    assert [line["client"] for line in table] == [f"s{k}" for k in range(8)]
    first = table[0]
    assert float(first["gain"]) == pytest.approx(0.4)
    assert float(first["low"]) < 0.4 < float(first["high"])
    assert first["verdict"] == "clearly helped"
    assert table[7]["verdict"] == "cannot tell"


def test_what_stands_beside_the_answer_is_said() -> None:
    clear, none = Tested(0.03, 0.001, 0.001), Tested(0.0, 1.0, 1.0)
    left = (LeftOut(0, clear, clear), LeftOut(1, none, none))
    found = Findings(left, none, clear, (("similar", clear),), ((2, 0.25), (5, 0.1)))
    better = ReferenceRow("gradient boosting, each alone", False, np.full(8, 0.95))
    made = comparison(
        entry(coterie.Local(), SAME, 0.5, "Local"),
        entry(coterie.FedU(), BETTER, 0.9, "FedU"),
        findings=found,
        references=[better],
    )
    text = str(made.answer())
    assert "s0 is unlike all others and pulls them down: without it they score +3.00 points" in text
    assert "s1 is unlike all others: their models fail there" in text
    assert "gradient boosting, each alone, has 95.00, better than the best here" in text
    assert "With half the training rows everywhere the gain would be +3.00 instead of +0.00" in text
    assert "More rows would help first at s2 (+25.00 points), s5 (+10.00 points)" in text
    assert "reads everybody's labels, FedU would gain +3.00 points" in text
    again = Findings.from_config(json.loads(json.dumps(found.to_config())))
    assert again == found
    row = ReferenceRow.from_config(json.loads(json.dumps(better.to_config())))
    np.testing.assert_array_equal(row.scores, better.scores)
