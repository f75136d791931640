"""The penalty `l2` that every method has: that of the model, but tuned for each method."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import coterie
from coterie.methods.base import METHODS, get_method
from coterie.models.dense import LogisticRegression
from coterie.runs.presets import own_options
from coterie.runs.references import references
from coterie.runs.tuning.spaces import spaces_of


def few_rows(rows: int = 400, sites: int = 12) -> coterie.Federation:
    """One rule at all sites; a few training rows at each, and many test rows, to see little."""
    rng = np.random.default_rng(3)
    rule = rng.normal(size=20)
    owner = np.repeat(np.arange(sites), rows)
    x = rng.normal(size=(len(owner), 20)).astype(np.float32)
    value = 2 * x @ rule / np.linalg.norm(rule) + rng.normal(size=len(owner))
    y = (value > 0).astype(np.int32)
    return coterie.from_arrays("few", x, y, owner, classes=2, validation=0.01, test=0.92)


@pytest.mark.parametrize("name", ["local", "pfedme", "fedu", "mocha"])
def test_it_is_the_penalty_of_the_model(name: str) -> None:
    fed = few_rows(rows=120, sites=3)
    ours = coterie.simulate(get_method(name, {"l2": 0.25}), fed, LogisticRegression(), rounds=2)
    theirs = coterie.simulate(get_method(name, {}), fed, LogisticRegression(l2=0.25), rounds=2)
    plain = coterie.simulate(get_method(name, {}), fed, LogisticRegression(), rounds=2)
    mine, same, other = (r.simulator.models(0) for r in (ours, theirs, plain))
    jax.tree.map(np.testing.assert_array_equal, mine, same)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True)
    )


def test_every_method_has_it_and_local_gets_that_of_the_method_beside_it() -> None:
    for name, kind in METHODS.items():
        assert "l2" in kind.public(), name
    assert coterie.equal_compute(coterie.FedU(l2=0.125)).l2 == 0.125


def test_it_is_searched_only_where_it_is_used() -> None:
    assert "l2" not in spaces_of(coterie.FedU(), {}, whole=False)
    assert "l2" in spaces_of(coterie.FedU(l2=0.01), {}, whole=False)


def test_a_table_gets_that_of_logistic_regression_unless_the_model_has_one() -> None:
    fed = few_rows()
    rows = float(np.median(fed.train.sizes))
    for name, options in own_options(fed, "mlr").items():
        assert options["l2"] == pytest.approx(1 / rows, rel=0.05), name
    assert all(
        "l2" not in options for options in own_options(fed, LogisticRegression(l2=0.1)).values()
    )


def test_tuned_local_is_no_worse_than_logistic_regression_at_each_site() -> None:
    """28 training rows at each of 12 sites, 4,416 test rows."""
    pytest.importorskip("sklearn")
    pytest.importorskip("optuna")
    fed = few_rows()
    local = coterie.Local(**own_options(fed, "mlr")["local"])
    training = {"rounds": 20, "eval_every": 20, "batch_size": 20}
    (tuned,) = coterie.tune(
        fed, [local], training=training, steps=8 * 5 * 20 * 20, folds=5, decay=True
    )
    found = coterie.simulate(tuned.method, fed, seed=0, **training)
    ours = float(np.nanmean(found.snapshots[-1].scores["test"].score[0]))
    shelf = references(fed, seconds=0.0, say=lambda _: None)[0]
    right = shelf.outputs.argmax(-1) == fed.test.y
    theirs = np.mean([own.mean() for own in np.split(right, fed.test.offsets[1:-1])])
    assert ours > theirs - 0.01
