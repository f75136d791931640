"""PersonalClassifier and PersonalRegressor: `fit(X, y, groups=site)`, and `predict` with each
row's own model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from coterie.core.errors import InvalidInput, shown, unknown
from coterie.core.trees import named_leaves
from coterie.data.federation import Federation
from coterie.data.shape import ProblemShape, Task
from coterie.engine.adapt import ROUNDS, adapt
from coterie.engine.training import Training
from coterie.estimators import saved
from coterie.estimators.fitting import (
    Inputs,
    federation_of,
    groups_of,
    is_frame,
    method_of,
    model_of,
    places_of,
    strange_groups,
    train,
    tree_of,
)
from coterie.models.apply import mean_of_all, outputs_of, outputs_of_each, probabilities
from coterie.models.base import Model
from coterie.models.build import build_model
from coterie.runs.contender import Contender
from coterie.runs.kit import Kit

Array = NDArray[Any]
FALLBACKS = ("error", "shared")
NEWCOMER = "newcomer"
_OWN = ("rounds", "batch_size", "seed")


class Personal(BaseEstimator):
    """What classifier and regressor share."""

    _task: ClassVar[Task]

    def __init__(
        self,
        method: Any = "fedu",
        *,
        model: Any = "mlr",
        graph: Any = "complete",
        rounds: int = 100,
        lr: float | None = None,
        local_steps: int | None = None,
        batch_size: int = 20,
        method_options: dict[str, Any] | None = None,
        model_options: dict[str, Any] | None = None,
        training_options: dict[str, Any] | None = None,
        standardise: bool = True,
        fallback: str = "error",
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.model = model
        self.graph = graph
        self.rounds = rounds
        self.lr = lr
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.method_options = method_options
        self.model_options = model_options
        self.training_options = training_options
        self.standardise = standardise
        self.fallback = fallback
        self.random_state = random_state

    # -- training ----------------------------------------------------------------------------------

    def _training(self) -> Training:
        given = dict(self.training_options or {})
        for key in _OWN:
            if key in given:
                instead = "random_state" if key == "seed" else key
                raise InvalidInput(
                    f"training_options has {key!r}, which the estimator's {instead} says; leave it"
                    " out."
                )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(self.random_state, (int, np.integer)):
            seed = int(self.random_state)
        every = {"eval_every": self.rounds}
        size = {} if given.get("sampling") == "full" else {"batch_size": self.batch_size}
        return Training.from_config({"rounds": self.rounds, **size, "seed": seed, **every, **given})

    def _method(self) -> Any:
        given = dict(self.method_options or {})
        for key, value in (("lr", self.lr), ("local_steps", self.local_steps)):
            if value is not None:
                if key in given:
                    raise InvalidInput(f"{key} is given twice, and in method_options too.")
                given[key] = value
        return method_of(self.method, given)

    def _validated(self, x: Any, *, reset: bool) -> Any:
        """X as an array of numbers, or as the frame it is."""
        if is_frame(x):
            return validate_data(self, x, reset=reset, skip_check_array=True)
        return validate_data(self, x, reset=reset, dtype=[np.float64, np.float32])

    def _validated_both(self, x: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
        """The same of X and y."""
        if is_frame(x):
            x, y = validate_data(self, x, y, reset=reset, skip_check_array=True)
            rows = x.num_rows if hasattr(x, "num_rows") else x.shape[0]
            if rows != len(y):
                raise InvalidInput(f"X has {rows} rows, but y has {len(y)}; they must be as many.")
            return x, self._checked_y(y)
        many = self._task == "regression"
        kinds = {"dtype": [np.float64, np.float32], "multi_output": many, "y_numeric": many}
        x, y = validate_data(self, x, y, reset=reset, **kinds)
        return x, self._checked_y(y)

    def _checked_y(self, y: Any) -> Array:
        raise NotImplementedError

    def _targets(self, y: Array) -> Array:
        """y as a federation has it; after fit."""
        raise NotImplementedError

    def _classes(self) -> int:
        return 0

    def _fit(self, x: Any, y: Array, groups: Any) -> Self:
        if self.fallback not in FALLBACKS:
            raise unknown("fallback", self.fallback, FALLBACKS)
        how, inputs = Inputs.fit(x, standardise=self.standardise)
        self._inputs = tuple(how)
        found = groups_of(groups, len(inputs))
        self.groups_, which = np.unique(found, return_inverse=True)
        self.group_sizes_ = np.bincount(which)
        federation = federation_of(
            inputs, self._targets(y), which, len(self.groups_), self._task, self._classes()
        )
        spec = model_of(self.model, dict(self.model_options or {}))
        trained = train(federation, self._method(), spec, self._training(), self.graph)
        self.models_, self._kit = trained.models, trained.kit
        self._shape: tuple[Any, ...] = tuple(federation.shape)
        return self

    # -- prediction --------------------------------------------------------------------------------

    def _built(self) -> tuple[Model, int]:
        shape = ProblemShape(*self._shape)
        facts = self._kit[0]["model"]
        spec = model_of(facts["name"], {k: v for k, v in facts.items() if k != "name"})
        method = Contender.from_config(self._kit[0]["method"]).method
        return method.modelled(build_model(spec, shape), shape), shape.outputs

    def _stacked(self, model: Model, view: str) -> Any:
        return tree_of(model.predictor(self._shape[1]), self.models_[view])

    def _shared(self, x: Array) -> Array:
        """The global model where the method has one, else the mean of all groups' answers, weighted
        by their training rows; probabilities for classes.
        """
        model, outputs = self._built()
        classes = self._task == "classification"
        if "global" in self.models_:
            one = jax.tree.map(lambda a: a[0], self._stacked(model, "global"))
            found = outputs_of(model, one, x, outputs)
            return probabilities(found) if classes else found
        stacked = self._stacked(model, next(iter(self.models_)))
        weights = self.group_sizes_.astype(float)
        return mean_of_all(model, stacked, weights, x, outputs, classes=classes)

    def _answers(self, x: Any, groups: Any) -> Array:
        """(rows, outputs): probabilities, or values in the units of training."""
        check_is_fitted(self)
        x = self._validated(x, reset=False)
        inputs = Inputs(*self._inputs).of(x)
        if groups is None and len(self.groups_) > 1:
            return self._shared(inputs)
        which = np.zeros(len(inputs), np.int64)
        if groups is not None:
            named = groups_of(groups, len(inputs))
            which = places_of(self.groups_, named)
            if (which < 0).any() and self.fallback != "shared":
                raise strange_groups(self.groups_, named[which < 0])
        model, outputs = self._built()
        stacked = self._stacked(model, next(iter(self.models_)))
        count = len(jax.tree.leaves(stacked)[0])
        found = outputs_of_each(model, stacked, np.clip(which, 0, count - 1), inputs, outputs)
        found = probabilities(found) if self._task == "classification" else found
        if (which < 0).any():
            found[which < 0] = self._shared(inputs[which < 0])
        return found

    # -- newcomers ---------------------------------------------------------------------------------

    def _adapt(self, x: Any, y: Array, rounds: int) -> Self:
        inputs = Inputs(*self._inputs).of(x)
        which = np.zeros(len(inputs), np.int64)
        newcomer: Federation = federation_of(
            inputs, self._targets(y), which, 1, self._task, self._classes()
        )
        simulator = Kit.from_config(*self._kit).simulator()
        found = adapt(simulator, newcomer, rounds=rounds)
        made: Any = clone(self)
        for name, value in vars(self).items():
            if name not in made.get_params():
                setattr(made, name, value)
        made.models_ = {view: named_leaves(model.tree) for view, model in found.models.items()}
        made.groups_, made.group_sizes_ = np.array([NEWCOMER]), np.array([len(inputs)])
        return made

    def adapt(self, X: Any, y: Any, *, rounds: int = ROUNDS) -> Self:
        """An estimator for a newcomer: a group that was not in training, of which these are the
        rows. The federation stays as it is.

        It works in the method's own way (see `coterie adapt`); `rounds` are local rounds.
        """
        check_is_fitted(self)
        if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or rounds < 0:
            raise InvalidInput(f"rounds is {shown(rounds)}, but must be a whole number ≥ 0.")
        x, checked = self._validated_both(X, y, reset=False)
        return self._adapt(x, checked, int(rounds))

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator as a folder of JSON and safetensors; `load` reads it again.

        Nothing in it is code.
        """
        check_is_fitted(self)
        saved.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The estimator of a folder that `save` wrote."""
        made = cls()
        made.__dict__.update(saved.read(cls.__name__, Path(path)))
        return made


class PersonalClassifier(ClassifierMixin, Personal):
    """A classifier with a model of its own for every group (client, site, …) of rows, learnt
    together by a method of coterie.

    `fit(X, y, groups=site)` trains; without groups all rows are one group's, and it is an ordinary
    classifier. `predict(X, groups=site)` answers each row by its group's model; without groups by
    the shared model: the global one where the method has one, else the mean of all groups'
    probabilities. Frames (pandas, polars, Arrow) may have columns of all kinds; arrays hold
    numbers.

    Parameters: `method` (a name or an object) with `lr`, `local_steps` and `method_options`;
    `graph` (a kind, "learn", a rule, a Graph, or a matrix in the order of `groups_`); `model` with
    `model_options`; `rounds`, `batch_size` and other `training_options`; `standardise`; `fallback`
    ("shared": rows of groups that fit did not see get the shared model; "error": they are refused);
    `random_state`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(90, 2)), np.repeat(["a", "b", "c"], 30)
    >>> y = np.where(site == "c", X[:, 0] < 0, X[:, 0] > 0)
    >>> mine = PersonalClassifier("fedu", rounds=20, local_steps=5, lr=0.5, random_state=0)
    >>> float(mine.fit(X, y, groups=site).score(X, y, groups=site)) > 0.9
    True
    """

    _task: ClassVar[Task] = "classification"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on rows X with labels y; `groups` says whose row each is."""
        x, found = self._validated_both(X, y, reset=True)
        self.classes_ = np.unique(found)
        return self._fit(x, found, groups)

    def _checked_y(self, y: Any) -> Array:
        y = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
        check_classification_targets(y)
        return np.asarray(y)

    def _targets(self, y: Array) -> Array:
        found = np.searchsorted(self.classes_, y)
        found = np.minimum(found, len(self.classes_) - 1)
        if (strange := self.classes_[found] != y).any():
            raise InvalidInput(
                f"y has the label {y[strange][0]!r}, which fit did not see; it saw"
                f" {', '.join(map(str, self.classes_[:8]))}."
            )
        return found.astype(np.int32)

    def _classes(self) -> int:
        return len(self.classes_)

    def predict_proba(self, X: Any, groups: Any = None) -> Array:
        """The probability of every class, in the order of `classes_`."""
        return self._answers(X, groups)

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The most probable class of every row."""
        answers = self._answers(X, groups)  # first: it checks whether there was a fit
        return np.asarray(self.classes_[answers.argmax(1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """Accuracy."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))


class PersonalRegressor(RegressorMixin, Personal):
    """A regressor with a model of its own for every group (client, site, …) of rows, learnt
    together by a method of coterie.

    See `PersonalClassifier` for parameters and groups; y may have several columns. The target is
    standardised for training, and predictions are in its own units.
    """

    _task: ClassVar[Task] = "regression"

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on rows X with targets y; `groups` says whose row each is."""
        x, found = self._validated_both(X, y, reset=True)
        self._mean, spread = found.mean(0), found.std(0)
        self._spread = np.where(spread > 0, spread, 1.0)
        return self._fit(x, found, groups)

    def _checked_y(self, y: Any) -> Array:
        y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y, np.float64)
        if not np.isfinite(y).all():
            raise InvalidInput("y holds NaN or infinity, but must hold finite numbers.")
        return y

    def _targets(self, y: Array) -> Array:
        return ((y - self._mean) / self._spread).astype(np.float32)

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The value of every row."""
        found = self._answers(X, groups)
        if np.ndim(self._mean) == 0:
            found = found[:, 0]
        return np.asarray(found * self._spread + self._mean)

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """R²."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
