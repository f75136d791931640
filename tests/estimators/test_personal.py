"""PersonalClassifier and PersonalRegressor: groups, frames, newcomers, files, and scikit-learn's
own tools.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

import pandas as pd
import polars as pl
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import coterie
from coterie import InvalidInput, PersonalClassifier, PersonalRegressor
from coterie.data.federation import Split

SMALL: dict[str, Any] = {"rounds": 8, "local_steps": 5, "lr": 0.5, "random_state": 0}


def opposed(rows: int = 90) -> tuple[Any, Any, Any]:
    """Three sites; at the last one the rule is turned round."""
    rng = np.random.default_rng(0)
    x, site = rng.normal(size=(rows, 2)), np.repeat(["a", "b", "c"], rows // 3)
    return x, np.where(site == "c", x[:, 0] < 0, x[:, 0] > 0), site


@pytest.fixture(scope="module")
def fitted() -> PersonalClassifier:
    x, y, site = opposed()
    return PersonalClassifier("fedu", **SMALL).fit(x, y, groups=site)


def test_a_learnt_graph_parts_opposed_sites() -> None:
    x, y, site = opposed()
    rule = coterie.learn_graph("kin", neighbours=1, crowd=1, after=2)
    for graph in ("learn", rule):
        mine = PersonalClassifier("fedu", graph=graph, **SMALL).fit(x, y, groups=site)
        assert mine.score(x, y, groups=site) > 0.9


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_each_group_has_its_own_model(fitted: PersonalClassifier) -> None:
    x, y, site = opposed()
    assert fitted.score(x, y, groups=site) > 0.9
    assert fitted.score(x, y, groups=np.full(len(x), "a")) < 0.75
    assert fitted.classes_.tolist() == [False, True]
    assert fitted.groups_.tolist() == ["a", "b", "c"]
    assert fitted.n_features_in_ == 2
    mixed = np.random.default_rng(1).permutation(len(x))
    np.testing.assert_array_equal(
        fitted.predict_proba(x, site)[mixed], fitted.predict_proba(x[mixed], site[mixed])
    )


def test_it_is_what_simulate_gives(fitted: PersonalClassifier) -> None:
    """The same federation, options and seed by the engine: the same models."""
    x, y, _ = opposed()
    scaled = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    train = Split(scaled, y.astype(np.int32), np.array([0, 30, 60, 90]))
    empty = Split(scaled[:0], train.y[:0], np.zeros(4, np.int64))
    fed = coterie.Federation("X", train, empty, empty, "classification", 2)
    method = coterie.FedU(local_steps=5, lr=0.5)
    run = coterie.simulate(method, fed, "mlr", rounds=8, eval_every=8, seed=0)
    for k in range(3):
        for name, leaf in run.personal(k).tree.items():
            np.testing.assert_allclose(
                fitted.models_["personal"][name][k], leaf, rtol=1e-5, atol=1e-6
            )


def test_without_groups_the_answer_is_shared(fitted: PersonalClassifier) -> None:
    """The mean of all groups' probabilities by their rows; or the global model."""
    x, _, _ = opposed()
    each = [fitted.predict_proba(x, np.full(len(x), g)) for g in "abc"]
    np.testing.assert_allclose(fitted.predict_proba(x), np.mean(each, 0), atol=1e-12)
    np.testing.assert_allclose(fitted.predict_proba(x).sum(1), 1)


def test_groups_that_fit_did_not_see(fitted: PersonalClassifier) -> None:
    x, _, site = opposed()
    strange = np.where(site == "b", "z", site)
    with pytest.raises(InvalidInput, match=r"groups has 'z', which fit did not see .*fallback"):
        fitted.predict(x, groups=strange)
    kind = pickle.loads(pickle.dumps(fitted)).set_params(fallback="shared")
    found = kind.predict_proba(x, groups=strange)
    np.testing.assert_array_equal(found[site != "b"], fitted.predict_proba(x, site)[site != "b"])
    np.testing.assert_array_equal(found[site == "b"], fitted.predict_proba(x)[site == "b"])


def test_a_newcomer_gets_a_model_of_its_own(fitted: PersonalClassifier, tmp_path: Path) -> None:
    x, _, site = opposed()
    rng = np.random.default_rng(7)
    new = rng.normal(size=(60, 2))
    turned = new[:, 0] < 0
    before = fitted.predict_proba(x, site)
    mine = fitted.adapt(new[:30], turned[:30], rounds=40)
    assert mine.score(new[30:], turned[30:]) > 0.85
    np.testing.assert_array_equal(fitted.predict_proba(x, site), before)
    fitted.save(tmp_path / "kept")
    again = PersonalClassifier.load(tmp_path / "kept").adapt(new[:30], turned[:30], rounds=40)
    np.testing.assert_array_equal(again.predict_proba(new), mine.predict_proba(new))
    with pytest.raises(InvalidInput, match="rounds is -1"):
        fitted.adapt(new, turned, rounds=-1)


def test_files_and_pickles_hold_plain_values(fitted: PersonalClassifier, tmp_path: Path) -> None:
    x, _, site = opposed()
    want = fitted.predict_proba(x, site)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(x, site), want)
    fitted.save(tmp_path / "kept")
    loaded = PersonalClassifier.load(tmp_path / "kept")
    np.testing.assert_array_equal(loaded.predict_proba(x, site), want)
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.dtype == fitted.classes_.dtype
    with pytest.raises(InvalidInput, match=r"holds a PersonalClassifier; load it with"):
        PersonalRegressor.load(tmp_path / "kept")
    file = tmp_path / "kept/estimator.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidInput, match="was changed or damaged"):
        PersonalClassifier.load(tmp_path / "kept")

    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(plain(v) for v in value.values())
        if isinstance(value, (list, tuple)):
            return type(value) in (list, tuple) and all(map(plain, value))
        return value is None or isinstance(value, (bool, int, float, str, np.ndarray, np.generic))

    odd = [name for name, value in vars(fitted).items() if not plain(value)]
    assert odd == []


def test_frames_may_have_columns_of_all_kinds() -> None:
    rng = np.random.default_rng(3)
    n = 60
    colour, heat = rng.choice(["red", "blue"], n), rng.normal(20, 5, n)
    y = np.where((colour == "red") ^ (rng.random(n) < 0.05), "ill", "well")
    columns = {"colour": colour, "heat": heat, "site": np.tile(["n", "s"], n // 2)}
    frame = pd.DataFrame(columns)
    mine = PersonalClassifier("fedu", **SMALL)
    mine.fit(frame[["colour", "heat"]], y, groups=frame["site"])
    assert mine.score(frame[["colour", "heat"]], y, groups=frame["site"]) > 0.85
    assert mine.feature_names_in_.tolist() == ["colour", "heat"]
    assert (
        mine.predict(frame[["colour", "heat"]].head(3), groups=["n", "s", "n"]).dtype.kind in "UO"
    )
    other = pl.DataFrame(columns)
    np.testing.assert_array_equal(
        mine.predict_proba(other[["colour", "heat"]], groups=other["site"]),
        mine.predict_proba(frame[["colour", "heat"]], groups=frame["site"]),
    )
    with pytest.raises(ValueError, match="feature names"):
        mine.predict(frame[["heat", "colour"]])


def test_values_are_in_the_targets_own_units() -> None:
    rng = np.random.default_rng(5)
    x, site = rng.normal(size=(80, 3)), np.tile([10, 20], 40)
    y = 1000 + 50 * np.where(site == 10, x[:, 0], -x[:, 0])
    mine = PersonalRegressor("fedu", **{**SMALL, "lr": 0.1, "rounds": 20}).fit(x, y, groups=site)
    assert mine.score(x, y, groups=site) > 0.95
    both = np.stack([y, x[:, 1]], 1)
    several = PersonalRegressor("fedu", **{**SMALL, "lr": 0.1, "rounds": 20}).fit(x, both, site)
    assert several.predict(x, site).shape == (80, 2)
    assert several.score(x, both, groups=site) > 0.9


@pytest.mark.usefixtures("routing")
def test_cross_validation_passes_groups_on() -> None:
    x, y, site = opposed(60)
    mine = PersonalClassifier("fedavg", fallback="shared", **SMALL)
    mine.set_fit_request(groups=True).set_score_request(groups=True)
    found = cross_validate(mine, x, y, params={"groups": site}, cv=GroupKFold(3))
    assert len(found["test_score"]) == 3
    assert found["test_score"].min() < 0.3  # what a and b know is wrong at c


@pytest.mark.slow
@pytest.mark.usefixtures("routing")
def test_pipelines_and_searches_pass_groups_on() -> None:
    x, y, site = opposed(60)
    mine = PersonalClassifier("fedavg", fallback="shared", **SMALL)
    mine.set_fit_request(groups=True).set_score_request(groups=True)
    whole = make_pipeline(StandardScaler(), clone(mine))
    cv = KFold(2, shuffle=True, random_state=0)
    search = GridSearchCV(whole, {"personalclassifier__lr": [1e-4, 0.5]}, cv=cv)
    search.fit(x[:40], y[:40], groups=site[:40])
    assert search.best_params_ == {"personalclassifier__lr": 0.5}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"method": "fedyou"}, "did you mean 'fedu'"),
        ({"method": "mocha", "lr": 0.5}, "lr is 0.5, but the method 'mocha' has no such option"),
        ({"model": coterie.Model(lambda k: k, lambda p, x: x)}, "must be the name of a model"),
        ({"graph": "cubic"}, "graph.kind 'cubic' is unknown"),
        ({"training_options": {"seed": 3}}, "training_options has 'seed'"),
        ({"method_options": {"lr": 0.1}, "lr": 0.1}, "lr is given twice"),
        ({"fallback": "none"}, "fallback 'none' is unknown"),
        ({"rounds": 0}, "training.rounds is 0"),
    ],
)
def test_bad_parameters_are_told_at_fit(changes: dict[str, Any], sentence: str) -> None:
    x, y, site = opposed(30)
    with pytest.raises(InvalidInput, match=sentence):
        PersonalClassifier(**changes).fit(x, y, groups=site)


def test_bad_groups_are_told() -> None:
    x, y, site = opposed(30)
    for groups, sentence in (
        (site[:5], "one group for each of 30 rows"),
        ([None, *site[1:].tolist()], "missing values"),
        (np.full(30, np.nan), "text or numbers without gaps"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            PersonalClassifier().fit(x, y, groups=groups)


@pytest.mark.slow
def test_batch_normalisation_goes_along(tmp_path: Path) -> None:
    x, y, site = opposed()
    options = {"hidden": "8", "norm": "batch"}
    mine = PersonalClassifier("fedu", model="mlp", model_options=options, **SMALL)
    mine.fit(x, y, groups=site)
    assert mine.score(x, y, groups=site) > 0.9
    mine.save(tmp_path / "kept")
    again = PersonalClassifier.load(tmp_path / "kept")
    np.testing.assert_array_equal(again.predict_proba(x, site), mine.predict_proba(x, site))
