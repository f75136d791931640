"""scikit-learn's own checks: a handful by default, all of them with -m slow."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from sklearn.utils.estimator_checks import estimator_checks_generator

from coterie import PersonalClassifier, PersonalRegressor

ESTIMATORS = {
    "classifier": PersonalClassifier(rounds=20, local_steps=10, lr=0.3, random_state=0),
    "regressor": PersonalRegressor(rounds=20, local_steps=10, lr=0.1, random_state=0),
}
QUICK = (
    "check_estimator_cloneable",
    "check_no_attributes_set_in_init",
    "check_estimator_tags_renamed",
    "check_requires_y_none",
    "check_estimators_unfitted",
    "check_complex_data",
    "check_estimator_sparse_array",
)
"""They fit once at most."""


def _cases() -> list[Any]:
    cases = []
    for kind, estimator in ESTIMATORS.items():
        for made, check in estimator_checks_generator(estimator, legacy=True):
            name = getattr(check, "func", check).__name__
            marks = [] if name in QUICK else [pytest.mark.slow]
            cases.append(pytest.param(made, check, id=f"{kind}-{name}", marks=marks))
    return cases


@pytest.mark.parametrize(("estimator", "check"), _cases())
def test_scikit_learn_takes_it_for_one_of_its_own(estimator: Any, check: Any) -> None:
    check(estimator)
