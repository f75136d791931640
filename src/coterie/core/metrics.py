"""What models are judged by: accuracy, AUC, RMSE, …; `training.metric` names one.

A metric has a value for each client, from what its models give for its rows. Values are as people
know them. *Scores* are what coterie compares: the value where larger is better, the negated value
where smaller is better, so that of two scores the larger one is always the better.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coterie.core import metric_effects as effects
from coterie.core import metric_values as values
from coterie.core.errors import InvalidInput, shown, unknown
from coterie.core.metric_effects import Effects
from coterie.core.metric_values import Groups

Array = NDArray[Any]
Task = Literal["classification", "regression"]
Values = Callable[[Array, Array, Groups], Array]
"""(outputs, y, groups) → a value per client."""
OwnMetric = Callable[[Array, Array], float]
"""(outputs, y) of one client → its value. Outputs are class probabilities (rows, classes), or what
is predicted, in the shape of y.
"""


@dataclasses.dataclass(frozen=True)
class Metric:
    """What models are judged by."""

    name: str
    title: str
    """As it stands in a sentence."""
    task: Task | None
    """None: either."""
    function: Values
    higher: bool = True
    """Whether larger is better."""
    percent: bool = False
    """Whether it is shown in per cent."""
    rowwise: bool = False
    """Whether it is the mean over rows of something that each row has by itself. The engine then
    knows how to compute it on the device (`models.objective`).
    """
    low: float | None = None
    high: float | None = None
    """Between which values it is; None: no bound."""
    undefined: str = "the metric gave no number for them"
    """Why a client with rows may have no value, as in "left out, since …"."""
    row_effects: Effects | None = None
    """What the exchange of single rows between two models changes; None: by trying it out."""
    summary: str = ""

    @property
    def sign(self) -> float:
        return 1.0 if self.higher else -1.0

    @property
    def unit(self) -> float:
        """What a value is multiplied by when it is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def better(self) -> str:
        return "larger is better" if self.higher else "smaller is better"

    @property
    def heading(self) -> str:
        """'AUC in %, larger is better', for heads of tables."""
        return f"{self.title}{' in %' if self.percent else ''}, {self.better}"

    def values(self, outputs: Array, y: Array, offsets: Array) -> Array:
        """The value of each client; NaN where it has none. Rows are packed client by client, those
        of client k are offsets[k] … offsets[k + 1] − 1.
        """
        groups = Groups(np.asarray(offsets))
        return np.asarray(self.function(np.asarray(outputs), np.asarray(y), groups), np.float64)

    def scores(self, outputs: Array, y: Array, offsets: Array) -> Array:
        """The score of each client: the larger the better."""
        return self.sign * self.values(outputs, y, offsets)

    def value(self, score: Any) -> Any:
        """The value of a score, or of an array of them; and the score of a value."""
        return score if self.higher else -score

    def told(self) -> dict[str, Any]:
        """What is needed to show scores, for files."""
        return {"name": self.name, "title": self.title, "higher": self.higher}

    def check_target(self, what: str, value: float) -> None:
        """Refuse a value that the metric cannot have, or that says nothing."""
        far = self.high if self.higher else self.low
        near = self.low if self.higher else self.high
        above = near is None or (value > near if self.higher else value < near)
        below = far is None or (value <= far if self.higher else value >= far)
        if np.isfinite(value) and above and below:
            return
        low = f"{'> ' if self.higher else '≥ '}{self.low:g}" if self.low is not None else ""
        high = f"{'≤ ' if self.higher else '< '}{self.high:g}" if self.high is not None else ""
        allowed = " and ".join(part for part in (low, high) if part)
        hint = f", e.g. {value / 100:g}" if self.percent and 1 < value <= 100 else ""
        hint = f", e.g. {-value:g}" if self.low == 0 and value < 0 else hint
        shares = " as a share" if self.percent else ""
        raise InvalidInput(
            f"{what} is {value:g}, but the {self.title}{shares} must be"
            f" {allowed or 'a finite number'}{hint}."
        )


METRICS: dict[str, Metric] = {}
DEFAULT: dict[str, str] = {"classification": "accuracy", "regression": "mse"}
"""What a task is judged by where nothing is asked for."""


def _shipped(metric: Metric) -> Metric:
    METRICS[metric.name] = metric
    return metric


ACCURACY = _shipped(
    Metric(
        "accuracy",
        "accuracy",
        "classification",
        values.accuracy,
        percent=True,
        rowwise=True,
        low=0,
        high=1,
        row_effects=effects.accuracy,
        summary="share of rows that are classified correctly",
    )
)
_shipped(
    Metric(
        "balanced-accuracy",
        "balanced accuracy",
        "classification",
        values.balanced_accuracy,
        percent=True,
        low=0,
        high=1,
        row_effects=effects.balanced_accuracy,
        summary="the same for each class that a client has, mean over these classes",
    )
)
_shipped(
    Metric(
        "auc",
        "AUC",
        "classification",
        values.auc,
        percent=True,
        low=0,
        high=1,
        undefined="their test rows are all of one class",
        row_effects=effects.auc,
        summary="area under the ROC curve; more than two classes: each that a client has against"
        " the rest, mean",
    )
)
_shipped(
    Metric(
        "f1",
        "F1",
        "classification",
        values.f1,
        percent=True,
        low=0,
        high=1,
        undefined="they have no test row of the positive class",
        row_effects=effects.f1,
        summary="harmonic mean of precision and recall of the last class (the positive one); more"
        " than two classes: mean over those that a client has",
    )
)
_shipped(
    Metric(
        "log-loss",
        "log-loss",
        "classification",
        values.log_loss,
        higher=False,
        rowwise=True,
        low=0,
        row_effects=effects.log_loss,
        summary="mean of −log of the probability of the true class",
    )
)
_shipped(
    Metric(
        "calibration-error",
        "calibration error",
        "classification",
        values.calibration_error,
        higher=False,
        percent=True,
        low=0,
        high=1,
        row_effects=effects.calibration_error,
        summary="expected calibration error: confidence minus accuracy in 15 bins of equal width",
    )
)
MSE = _shipped(
    Metric(
        "mse",
        "mean squared error",
        "regression",
        values.mse,
        higher=False,
        rowwise=True,
        low=0,
        row_effects=effects.mse,
        summary="mean squared error, added up over targets",
    )
)
_shipped(
    Metric(
        "rmse",
        "RMSE",
        "regression",
        values.rmse,
        higher=False,
        low=0,
        row_effects=effects.rmse,
        summary="square root of the mean squared error of each client",
    )
)
_shipped(
    Metric(
        "mae",
        "mean absolute error",
        "regression",
        values.mae,
        higher=False,
        rowwise=True,
        low=0,
        row_effects=effects.mae,
        summary="mean absolute error, added up over targets",
    )
)
_shipped(
    Metric(
        "r2",
        "R²",
        "regression",
        values.r2,
        high=1,
        undefined="their test rows are one, or have all the same target",
        row_effects=effects.r2,
        summary="1 − squared error / squared error of the client's own mean; mean over targets",
    )
)
SHIPPED = frozenset(METRICS)


def _own(function: OwnMetric, name: str, task: Task | None) -> Values:
    """A function of one client's rows, for all clients, one by one."""

    def each(outputs: Array, y: Array, groups: Groups) -> Array:
        found = np.full(groups.count, np.nan)
        regression = np.issubdtype(y.dtype, np.floating)
        told = outputs.reshape(y.shape) if regression else values.probabilities(outputs)
        for k in np.flatnonzero(groups.sizes):
            rows = slice(int(groups.offsets[k]), int(groups.offsets[k + 1]))
            value = function(told[rows], y[rows])
            try:
                found[k] = float(value)
            except (TypeError, ValueError):
                raise InvalidInput(
                    f"the metric {name!r} gave {shown(value)} for client {k}, but must give one"
                    " number (NaN where it has none)."
                ) from None
        return found

    return each


def register_metric(
    name: str,
    function: OwnMetric,
    *,
    higher: bool = True,
    task: Task | None = None,
    title: str | None = None,
    percent: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> Metric:
    """Make a metric of one's own known by a name, for `training.metric`.

    `function(outputs, y)` gets the rows of one client, class probabilities (rows, classes) or
    predictions, and gives a number, NaN where it has none. `higher` says whether larger is better.

    >>> from coterie.core.metrics import METRICS
    >>> def half_right(p, y):
    ...     return float(abs(p[:, 1] - y).mean() < 0.5)
    >>> register_metric("half-right", half_right, task="classification").better
    'larger is better'
    >>> del METRICS["half-right"]
    """
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"a metric's name is {shown(name)}, but must be a string.")
    if not callable(function):
        raise InvalidInput(
            f"the metric {name!r} is {shown(function)}, but must be a function (outputs, y) → a"
            " number."
        )
    if name in SHIPPED:
        raise InvalidInput(f"the name {name!r} is taken by a metric of coterie; choose another.")
    if task not in (None, "classification", "regression"):
        raise InvalidInput(
            f"the task of the metric {name!r} is {shown(task)}, but must be 'classification',"
            " 'regression' or None (either)."
        )
    about = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    METRICS[name] = Metric(
        name,
        title or name.replace("_", " "),
        task,
        _own(function, name, task),
        higher=bool(higher),
        percent=percent,
        low=low,
        high=high,
        summary=about or "a metric of your own",
    )
    return METRICS[name]


def metric_name(value: Any) -> str | None:
    """The name of a metric that is given by its name, as a `Metric`, or as a function (outputs, y)
    → a number, of which larger is better; None stays None.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Metric):
        if METRICS.get(value.name) is not value:
            if value.rowwise:
                raise InvalidInput(
                    f"the metric {value.name!r} has rowwise=True, which only metrics of coterie"
                    " have; leave it out."
                )
            if value.name in SHIPPED:
                raise InvalidInput(
                    f"the name {value.name!r} is taken by a metric of coterie; choose another."
                )
            METRICS[value.name] = value
        return value.name
    if callable(value) and not isinstance(value, type):
        name = getattr(value, "__name__", type(value).__name__)
        return register_metric(name, value).name
    raise InvalidInput(
        f'the metric is {shown(value)}, but must be a name, e.g. "auc", or a function (outputs,'
        " y) → a number."
    )


def check_metric(name: str) -> None:
    """Refuse a name that no metric has."""
    if name not in METRICS:
        raise unknown("training.metric,", name, METRICS)


def metric_of(name: str | None, task: str) -> Metric:
    """The metric of a run; nothing: accuracy, or the mean squared error."""
    if name is None:
        return METRICS[DEFAULT[task]]
    check_metric(name)
    found = METRICS[name]
    if found.task not in (None, task):
        fitting = ", ".join(m.name for m in METRICS.values() if m.task in (None, task))
        raise InvalidInput(
            f"training.metric is {name!r}, but that is for {found.task} and the task is {task};"
            f" it must be one of: {fitting}."
        )
    return found
