"""Models off the shelf beside the methods: scikit-learn's own numbers on the same rows."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.report.comparison import Comparison
from coterie.runs.answer import _references
from coterie.runs.compare import Doing
from coterie.runs.references import references

sklearn = pytest.importorskip("sklearn")


def sites(task: str) -> coterie.Federation:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3 * 40, 4)).astype(np.float32)
    owner = np.repeat(np.arange(3), 40)
    value = x @ np.array([1.0, 2.0, -1.0, 0.5]) + owner
    if task == "regression":
        return coterie.from_arrays("r", x, value.astype(np.float32), owner, task="regression")
    y = np.where(owner == 2, 1, value > 1).astype(np.int32)  # the last client has one class
    return coterie.from_arrays("c", x, y, owner, classes=3)


def rows(task: str) -> dict[str, np.ndarray]:
    fed = sites(task)
    metric = coterie.METRICS["accuracy" if task == "classification" else "mse"]
    made = Comparison("made", fed, [], metric)
    return {r.label: r.scores for r in _references(made, Doing(say=lambda _: None), 60.0)}


def test_linear_models_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    fed, found = sites("classification"), rows("classification")
    x, y = fed.train.client(0)
    model = LogisticRegression(max_iter=1000).fit(x, y)
    assert found["logistic regression, each alone"][0] == model.score(*fed.test.client(0))
    assert found["logistic regression, each alone"][2] == 1.0, "one class, known beforehand"
    whole = LogisticRegression(max_iter=1000).fit(fed.train.x, fed.train.y)
    pooled = [whole.score(*fed.test.client(k)) for k in range(3)]
    np.testing.assert_allclose(found["logistic regression, pooled"], pooled)
    assert {"gradient boosting, each alone", "gradient boosting, pooled"} <= set(found)
    fed, found = sites("regression"), rows("regression")
    ridge = Ridge().fit(*fed.train.client(1))
    tested, wanted = fed.test.client(1)
    error = np.mean((ridge.predict(tested) - wanted) ** 2)
    assert -found["ridge, each alone"][1] == pytest.approx(error, rel=1e-5)


def test_what_there_is_no_time_for_is_left_out_and_said() -> None:
    said: list[str] = []
    found = references(sites("classification"), seconds=-1.0, say=said.append)
    assert [r.kind for r in found] == ["linear", "linear"]
    assert len(said) == 2
    assert all("there was no time for scikit-learn's gradient boosting" in s for s in said)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InvalidInput, match=r"coterie\[sklearn\]"):
        references(sites("regression"), seconds=1.0)
