"""Metrics of many clients at once are those of scikit-learn, client by client."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from coterie import InvalidInput, register_metric
from coterie.core import metric_effects as effects
from coterie.core.metric_values import BINS, Groups, midranks, probabilities
from coterie.core.metrics import METRICS, SHIPPED, Metric, metric_name, metric_of

SIZES = np.array([30, 0, 7, 1, 55, 12, 2, 20])
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
ONE_CLASS = 5
"""A client whose rows are all of class 1, the last of two."""
NO_POSITIVE = 7
"""One whose rows are all of class 0."""


def classes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs of two models with many ties, and labels of which class 0 is the most frequent."""
    share = np.arange(count, 0, -1.0) ** 2
    y = rng.choice(count, OFFSETS[-1], p=share / share.sum())
    y[OFFSETS[ONE_CLASS] : OFFSETS[ONE_CLASS + 1]] = 1
    y[OFFSETS[NO_POSITIVE] :] = 0
    told = np.eye(count)[y] * 1.5
    a, b = (np.round(rng.normal(told, 1.5) * 2) / 2 for _ in range(2))
    return a, b, y


def quantities(rng: np.random.Generator, targets: int) -> tuple[np.ndarray, ...]:
    y = rng.normal(5, 2, (OFFSETS[-1], targets))
    y[OFFSETS[ONE_CLASS] : OFFSETS[ONE_CLASS + 1]] = 0.1  # all alike, though not exactly in a mean
    a, b = (y + rng.normal(0, 1, y.shape) for _ in range(2))
    return (a, b, y[:, 0]) if targets == 1 else (a, b, y)


def each_client(function: Callable[[Any, Any], float], outputs: Any, y: Any) -> np.ndarray:
    found = np.full(len(SIZES), np.nan)
    for k in np.flatnonzero(SIZES):
        rows = slice(OFFSETS[k], OFFSETS[k + 1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[k] = function(outputs[rows], y[rows])
    return found


def sk_auc(outputs: Any, y: Any) -> float:
    p = probabilities(outputs)
    present = np.unique(y)
    if len(present) < 2:
        return float("nan")
    judged = [1] if p.shape[1] == 2 else present
    return float(np.mean([sk.roc_auc_score(y == k, np.round(p[:, k], 12)) for k in judged]))


def sk_f1(outputs: Any, y: Any) -> float:
    if outputs.shape[1] > 2:
        return float(sk.f1_score(y, outputs.argmax(1), labels=np.unique(y), average="macro"))
    return float(sk.f1_score(y, outputs.argmax(1))) if (y == 1).any() else float("nan")


def plain_calibration_error(outputs: Any, y: Any) -> float:
    p = probabilities(outputs)
    sure, hit = p.max(1), outputs.argmax(1) == y
    total = 0.0
    for i in range(BINS):
        inside = (sure > i / BINS) & (sure <= (i + 1) / BINS)
        if inside.any():
            total += inside.mean() * abs(hit[inside].mean() - sure[inside].mean())
    return total


CLASSES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": lambda o, y: sk.accuracy_score(y, o.argmax(1)),
    "balanced-accuracy": lambda o, y: sk.balanced_accuracy_score(y, o.argmax(1)),
    "auc": sk_auc,
    "f1": sk_f1,
    "log-loss": lambda o, y: sk.log_loss(y, probabilities(o), labels=range(o.shape[1])),
    "calibration-error": plain_calibration_error,
}
QUANTITIES: dict[str, Callable[[Any, Any], float]] = {
    "mse": lambda o, y: sk.mean_squared_error(y.reshape(o.shape), o) * o.shape[1],
    "rmse": lambda o, y: np.sqrt(sk.mean_squared_error(y.reshape(o.shape), o) * o.shape[1]),
    "mae": lambda o, y: sk.mean_absolute_error(y.reshape(o.shape), o) * o.shape[1],
    "r2": lambda o, y: sk.r2_score(y, o) if len(y) > 1 and np.ptp(y, 0).all() else np.nan,
}
CASES = [(name, "classification", n) for name in CLASSES for n in (2, 5)]
CASES += [(name, "regression", n) for name in QUANTITIES for n in (1, 3)]


def made(task: str, width: int, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return classes(rng, width) if task == "classification" else quantities(rng, width)


def test_every_metric_is_compared() -> None:
    assert set(SHIPPED) == {*CLASSES, *QUANTITIES}


@pytest.mark.parametrize(("name", "task", "width"), CASES)
def test_it_is_that_of_scikit_learn(name: str, task: str, width: int) -> None:
    for seed in range(3):
        a, _, y = made(task, width, seed)
        metric = metric_of(name, task)
        expected = each_client({**CLASSES, **QUANTITIES}[name], a, y)
        found = metric.values(a, y, OFFSETS)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        assert np.isnan(found[1]), "a client without rows has no value"
        scores = metric.scores(a, y, OFFSETS)
        np.testing.assert_array_equal(scores, found if metric.higher else -found)


def test_the_direction_is_that_of_better_predictions() -> None:
    for name, task, width in CASES:
        a, b, y = made(task, width, 0)
        right = np.eye(width)[y] * 9 if task == "classification" else y.reshape(a.shape)
        better = metric_of(name, task).scores(right, y, OFFSETS)
        for worse in (a, b):
            assert np.nanmin(better - metric_of(name, task).scores(worse, y, OFFSETS)) >= -1e-6


@pytest.mark.parametrize("name", ["auc", "f1"])
def test_clients_of_one_class_have_no_value(name: str) -> None:
    a, _, y = made("classification", 2, 0)
    found = METRICS[name].values(a, y, OFFSETS)
    assert np.isnan(found[NO_POSITIVE])
    assert np.isnan(found[ONE_CLASS]) == (name == "auc"), "the last of two classes is the positive"


def test_sure_predictions_are_not_ties() -> None:
    """Both probabilities are 1 in double precision; the first is still the larger."""
    outputs = np.array([[0.0, 50.0], [0.0, 45.0]])
    assert METRICS["auc"].values(outputs, np.array([1, 0]), np.array([0, 2])).tolist() == [1.0]


def test_ranks_are_those_within_clients() -> None:
    groups = Groups(np.array([0, 3, 3, 5]))
    assert midranks(np.array([2.0, 1.0, 2.0, 7.0, 0.0]), groups).tolist() == [2.5, 1, 2.5, 2, 1]


@pytest.mark.parametrize(("name", "task", "width"), CASES)
def test_row_effects_add_up_to_the_difference(name: str, task: str, width: int) -> None:
    """And a model has no effect against itself."""
    a, b, y = made(task, width, 1)
    metric, groups = METRICS[name], Groups(OFFSETS)
    assert metric.row_effects is not None
    found = metric.row_effects(a, b, y, groups)
    difference = metric.values(a, y, OFFSETS) - metric.values(b, y, OFFSETS)
    there = ~np.isnan(difference)
    total = groups.means(found.difference)[there]
    if name in ("f1", "rmse"):  # a little nearer to 0
        large = np.isin(np.flatnonzero(there), [0, 4])
        assert width > 2 or (np.abs(total) <= np.abs(difference[there]) + 1e-12).all()
        np.testing.assert_allclose(total[large], difference[there][large], rtol=0.15)
    else:
        np.testing.assert_allclose(total, difference[there], atol=1e-12)
    np.testing.assert_allclose(groups.means(found.share)[there], 1)
    back = metric.row_effects(b, a, y, groups)
    mine = there[groups.owner]
    np.testing.assert_allclose(found.difference[mine], -back.difference[mine], atol=1e-12)
    assert not metric.row_effects(a, a, y, groups).difference[mine].any()


LINEAR = ("accuracy", "balanced-accuracy", "log-loss", "mse", "mae", "r2")
EXACT = (*LINEAR, "f1", "rmse", "auc")


@pytest.mark.parametrize(
    ("name", "task", "width"),
    [case for case in CASES if case[0] in EXACT and case[::2] != ("auc", 5)],
)
def test_signs_of_effects_are_exchanges_of_rows(name: str, task: str, width: int) -> None:
    """Exchange any rows of the two models and compute all anew: the effects are those of before
    with their signs turned, so that the test by sign-flips is the test by exchanges, exactly.

    The AUC compares ranks, so models are given by their ranks here. (With more than two classes
    these differ from class to class.)
    """
    rng = np.random.default_rng(0)
    a, b, y = made(task, width, 2)
    metric, groups = METRICS[name], Groups(OFFSETS)
    if name == "auc":
        ranks = [midranks(o[:, 1] - o[:, 0], groups) for o in (a, b)]
        a, b = (np.stack([np.zeros(len(y)), r], 1) for r in ranks)
    assert metric.row_effects is not None
    d = metric.row_effects(a, b, y, groups).difference
    there = ~np.isnan(metric.values(a, y, OFFSETS))
    for _ in range(5):
        out = rng.random(len(y)) < 0.5
        x, z = np.where(out[:, None], b, a), np.where(out[:, None], a, b)
        turned = np.where(out, -d, d)
        if name != "auc":  # exchanged ranks are no ranks
            again = metric.row_effects(x, z, y, groups).difference
            np.testing.assert_allclose(turned[there[groups.owner]], again[there[groups.owner]])
        if name in (*LINEAR, "auc"):
            after = metric.values(x, y, OFFSETS) - metric.values(z, y, OFFSETS)
            np.testing.assert_allclose(groups.means(turned)[there], after[there], atol=1e-9)


@pytest.mark.parametrize(("name", "task", "width"), CASES)
def test_effects_by_trying_are_the_effects(name: str, task: str, width: int) -> None:
    """Exactly where the metric is linear in the exchanges, nearly elsewhere."""
    a, b, y = made(task, width, 3)
    metric, groups = METRICS[name], Groups(OFFSETS)
    assert metric.row_effects is not None
    found = effects.by_trying(metric.function, a, b, y, groups).difference
    expected = metric.row_effects(a, b, y, groups).difference
    large = np.isin(groups.owner, [0, 4])  # clients with both classes and enough rows
    if name in LINEAR:
        np.testing.assert_allclose(found[large], expected[large], atol=1e-9)
    elif name in ("f1", "rmse"):
        assert np.corrcoef(found[large], expected[large])[0, 1] > 0.97
    difference = metric.values(a, y, OFFSETS) - metric.values(b, y, OFFSETS)
    np.testing.assert_allclose(groups.means(found)[[0, 4]], difference[[0, 4]], atol=1e-12)


def test_parts_of_many_rows_are_exchanged_together(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, y = made("regression", 1, 0)
    groups = Groups(OFFSETS)
    monkeypatch.setattr(effects, "BLOCKS", 25)
    mse = METRICS["mse"]
    found = effects.by_trying(mse.function, a, b, y, groups).difference
    rows = np.flatnonzero(groups.owner == 4)
    assert np.count_nonzero(found[rows]) == 25
    assert mse.row_effects is not None
    single = mse.row_effects(a, b, y, groups).difference[rows]
    part = np.arange(55) * 25 // 55
    np.testing.assert_allclose(found[rows][found[rows] != 0], np.bincount(part, single))


def test_a_metric_of_ones_own_by_function_or_name() -> None:
    def top(p: np.ndarray, y: np.ndarray) -> float:
        """How sure the model is of the truth."""
        return float(p[np.arange(len(y)), y].mean())

    try:
        assert metric_name(top) == "top"
        assert metric_of("top", "classification").summary == "How sure the model is of the truth."
        a, _, y = made("classification", 2, 0)
        expected = each_client(lambda o, y: top(probabilities(o), y), a, y)
        np.testing.assert_allclose(METRICS["top"].values(a, y, OFFSETS), expected)
        cost = register_metric("cost", top, higher=False, task="regression")
        assert (cost.sign, cost.better) == (-1.0, "smaller is better")
        with pytest.raises(InvalidInput, match="for regression and the task is classification"):
            metric_of("cost", "classification")
    finally:
        METRICS.pop("top", None)
        METRICS.pop("cost", None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "must be a name"),
        (int, "must be a name"),
        (
            Metric("mine", "mine", None, METRICS["auc"].function, rowwise=True),
            "rowwise",
        ),
    ],
)
def test_what_is_no_metric_is_refused(value: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        metric_name(value)


def test_names_of_coterie_are_taken() -> None:
    with pytest.raises(InvalidInput, match="'auc' is taken"):
        register_metric("auc", lambda p, y: 0.0)


def test_a_function_that_gives_no_number_is_told_so() -> None:
    a, _, y = made("classification", 2, 0)
    try:
        mine = register_metric("mine", lambda p, y: "good")  # type: ignore[arg-type, return-value]
        with pytest.raises(InvalidInput, match="'mine' gave 'good' for client 0"):
            mine.values(a, y, OFFSETS)
    finally:
        METRICS.pop("mine", None)
