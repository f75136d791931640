"""Accuracies as papers measure them, and values as their authors' commands have them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import coterie
from coterie.report.outcome import Outcome
from coterie.runs.contender import Contender
from coterie.runs.reproduce.base import all_tables, table_of
from coterie.runs.reproduce.measures import TOLD, Ran, mean_curve, place
from coterie.runs.reproduce.result import per_round
from tests.support.reports import outcome

SIZES = np.array([10, 30, 40, 20])
SCORES = np.array([[0.2, 0.2, 0.2, 0.2], [0.9, 0.5, 0.6, 0.8], [0.8, 0.4, 0.6, 0.8]])


def made(poor: tuple[int, ...] = ()) -> Outcome:
    plain = outcome(coterie.FedAvg(), 0, len(SIZES), len(SCORES), 1.0)
    return dataclasses.replace(plain, scores={"global": SCORES}, samples=SIZES, poor=poor)


def test_clients_count_alike_or_by_their_test_samples() -> None:
    run, everybody = made(), np.ones(4, bool)
    assert mean_curve(run, "global", everybody)[-1] == pytest.approx(65)
    by_samples = mean_curve(run, "global", everybody, "by samples")[-1]
    assert by_samples == pytest.approx(8 + 12 + 24 + 16)
    assert place(run, "global", everybody, "by samples") == 2
    assert place(run, "global", everybody, "best") == 1


def test_down_sampled_clients_count_as_the_published_code_has_them() -> None:
    """FedU's code keeps 40% of their test rows. Client 0, which lies, does not count at all."""
    honest = np.array([False, True, True, True])
    found = mean_curve(made((0, 1)), "global", honest, "by samples")[-1]
    assert found == pytest.approx(100 * (12 * 0.4 + 40 * 0.6 + 20 * 0.8) / (12 + 40 + 20))


def test_every_measure_is_told_in_words() -> None:
    assert {table.measured for table in all_tables("both")} <= set(TOLD)


PUBLISHED: list[tuple[str, str, str, str, dict[str, float]]] = [
    ("pfedme/figure-6", "paper", "mnist-dnn", "pFedMe (PM)", {"personal_lr": 0.09, "lam": 15}),
    ("pfedme/figure-6", "paper", "mnist-mlr", "pFedMe (PM)", {"personal_lr": 0.1, "lr": 0.005}),
    ("pfedme/figure-7", "paper", "synthetic-dnn", "Per-FedAvg", {"adapt_lr": 0.005, "lr": 0.001}),
    ("pfedme/figure-1", "honest", "mnist-mlr", "PM, R = 5", {"personal_lr": 0.09, "lr": 0.005}),
    ("pfedme/figure-5", "honest", "mnist-dnn", "PM, β = 4", {"personal_lr": 0.09, "lr": 0.003}),
    ("fedu/table-4", "paper", "vehicle-convex", "FedAvg", {"lr": 0.02}),
    ("fedu/table-4", "paper", "mnist-convex", "FedAvg", {"lr": 0.03}),
    ("fedu/table-1", "paper", "har-convex", "pFedMe", {"lam": 10, "personal_lr": 0.01}),
    ("fedu/table-1", "paper", "har-nonconvex", "pFedMe", {"lam": 15, "personal_lr": 0.01}),
    ("fedu/table-1", "paper", "har-convex", "FedU (all neighbours)", {"eta": 0.05, "lr": 0.03}),
    ("fedu/table-3", "paper", "vehicle-nonconvex", "Global", {"lr": 0.05}),
]
"""What the authors' commands have (README of CharlieDinh/pFedMe and CharlieDinh/FedU_FMTL), looked
up by eye.
"""


@pytest.mark.parametrize(("key", "protocol", "name", "label", "values"), PUBLISHED)
def test_values_are_those_of_the_published_commands(
    key: str, protocol: str, name: str, label: str, values: dict[str, float]
) -> None:
    block = next(b for b in table_of(key, protocol).blocks if b.name == name)
    line = next(x for x in block.lines if x.name == label)
    assert not line.tuned
    assert {k: v for k, v in (line.method | line.changes).items() if k in values} == values


def test_a_run_that_collapsed_counts_with_the_rounds_that_it_had() -> None:
    block = table_of("fedu/table-3").blocks[0]
    whole = dataclasses.replace(made(), gradients=np.array([0, 400, 800]))
    at = np.array([0, whole.rounds[1]])
    broken = dataclasses.replace(whole, rounds=at, gradients=np.array([0, 400]), collapsed="NaN")
    at_once = dataclasses.replace(whole, rounds=at[:1], gradients=np.array([0]), collapsed="NaN")
    line, contender = block.lines[0], Contender.from_config(block.lines[0].method)
    outcomes = [whole, broken, at_once]
    run = Ran(line, contender, outcomes, [], [np.ones(4, bool)] * 3, block)
    assert per_round(run, "gradients") == 800 / whole.rounds[-1] / 4
    assert per_round(dataclasses.replace(run, outcomes=[at_once]), "gradients") == 0
