"""What somebody would try instead of a federation: scikit-learn's logistic (or ridge) regression
and gradient boosting, at each client alone and on all data in one place.

They are fitted on the training rows and scored on the test rows of the same split. They need the
extra `[sklearn]`; without it there are none, and that is said.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation, Split

Array = NDArray[Any]
KINDS = ("linear", "boosting")


class Reference(NamedTuple):
    """A model of scikit-learn's, at each client alone or pooled, and what it gives on test rows."""

    label: str
    kind: str
    pooled: bool
    outputs: Array
    """Of every test row, in the order of the test split: log-probabilities of all classes, or the
    predicted value, shape (rows, outputs).
    """
    seconds: float


def library() -> Any:
    """scikit-learn, or a sentence that says how to get it."""
    try:
        import sklearn
    except ImportError:
        raise InvalidInput(
            "reference rows need scikit-learn, which is not installed; install coterie[sklearn]."
        ) from None
    return sklearn


def _model(kind: str, task: str) -> Any:
    """A fresh model, as somebody would take it off the shelf."""
    if kind == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        made = (
            HistGradientBoostingClassifier
            if task == "classification"
            else HistGradientBoostingRegressor
        )
        return made(random_state=0)
    from sklearn.linear_model import LogisticRegression, Ridge

    return LogisticRegression(max_iter=1000) if task == "classification" else Ridge()


def _flat(x: Array) -> Array:
    return x.reshape(len(x), -1)


def _fitted(kind: str, task: str, x: Array, y: Array) -> Callable[[Array], Array]:
    """From inputs to outputs of a model that was fitted on these rows."""
    if task == "classification":
        classes = np.unique(y)
        if len(classes) == 1:
            return lambda inputs: np.ones((len(inputs), 1))
    model = _model(kind, task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(_flat(x), y)
    if task == "classification":
        return lambda inputs: np.asarray(model.predict_proba(_flat(inputs)))
    return lambda inputs: np.asarray(model.predict(_flat(inputs))).reshape(len(inputs), -1)


def _outputs(federation: Federation, kind: str, train: Sequence[int], test: Split) -> Array:
    """The outputs on some test rows of a model that was fitted on some clients' training rows."""
    parts = [federation.train.client(k) for k in train]
    x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    found = _fitted(kind, federation.task, x, y)(test.x)
    if federation.task == "regression":
        return found.astype(np.float32)
    # A class that was not in these training rows has almost no chance.
    whole = np.full((len(test.x), federation.classes), 1e-9)
    whole[:, np.unique(y)] = np.maximum(found, 1e-9)
    return np.log(whole / whole.sum(1, keepdims=True)).astype(np.float32)


def _one(federation: Federation, k: int) -> Split:
    x, y = federation.test.client(k)
    return Split(x, y, np.array([0, len(y)]))


class _Watch:
    """Whether there is still time for another piece of work, judged by the ones before."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds

    def allows(self, spent: float, done: int, pieces: int) -> bool:
        ahead = spent / done * (pieces - done) if done else 0.0
        return time.perf_counter() + ahead < self.end


def references(
    federation: Federation, *, seconds: float, say: Callable[[str], None] = print
) -> list[Reference]:
    """Each kind at every client and pooled, as far as `seconds` reach; what is left out is said.

    The order is by cost, so that the linear models are there in any case.
    """
    library()
    watch, out = _Watch(seconds), []
    names = {
        "linear": "logistic regression" if federation.task == "classification" else "ridge",
        "boosting": "gradient boosting",
    }
    for kind in KINDS:
        for pooled in (False, True):
            label = f"{names[kind]}, {'pooled' if pooled else 'each alone'}"
            found = _pooled(federation, kind, watch) if pooled else _each(federation, kind, watch)
            if found is None:
                say(f"there was no time for scikit-learn's {label}; more --minutes give it.")
                continue
            outputs, spent = found
            out.append(Reference(label, kind, pooled, outputs, spent))
    return out


def _each(federation: Federation, kind: str, watch: _Watch) -> tuple[Array, float] | None:
    begun, found = time.perf_counter(), []
    clients = np.flatnonzero(federation.test.sizes)
    for done, k in enumerate(clients):
        if kind != "linear" and not watch.allows(time.perf_counter() - begun, done, len(clients)):
            return None
        found.append(_outputs(federation, kind, [int(k)], _one(federation, int(k))))
    return np.concatenate(found), time.perf_counter() - begun


def _pooled(federation: Federation, kind: str, watch: _Watch) -> tuple[Array, float] | None:
    """On all training rows at once; boosting is tried on a tenth of them first, to see how long it
    would take.
    """
    begun, everybody = time.perf_counter(), range(federation.clients)
    if kind != "linear" and not watch.allows(0.0, 0, 1):
        return None
    if kind != "linear" and len(federation.train) > 2000:
        some = np.random.default_rng(0).permutation(len(federation.train))[
            : len(federation.train) // 10
        ]
        x, y = federation.train.x[some], federation.train.y[some]
        _fitted(kind, federation.task, x, y)
        if not watch.allows(3 * (time.perf_counter() - begun), 1, 2):
            return None
        begun = time.perf_counter()
    return _outputs(federation, kind, everybody, federation.test), time.perf_counter() - begun
