"""The problem of a plan: what a sample looks like, what is predicted, and how a client's table
becomes samples.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from coterie.core.errors import InvalidInput, unknown
from coterie.data.federation import Federation
from coterie.data.shape import ProblemShape, Task
from coterie.data.tables import Column, Prepared


@dataclasses.dataclass(frozen=True)
class Problem:
    """What the models are for: shapes, names of labels, and how a client's table becomes inputs."""

    task: Task
    inputs: tuple[int, ...]
    labels: tuple[str, ...] = ()
    targets: int = 1
    """Regression: numbers to predict."""
    features: tuple[str, ...] = ()
    """Names of the inputs, `column` or `column=category`; needed only to read tables."""
    target: str = ""
    mean: tuple[float, ...] | None = None
    scale: tuple[float, ...] | None = None
    """x ↦ (x − mean) / scale, the same for everybody; nothing: each client scales by its own
    training rows.
    """

    KEYS: ClassVar[tuple[str, ...]] = (
        "task",
        "inputs",
        "labels",
        "targets",
        "features",
        "target",
        "mean",
        "scale",
    )

    @classmethod
    def from_config(cls, given: Any) -> Problem:
        if not isinstance(given, dict):
            raise InvalidInput(
                f"problem is {given!r}, but must be a table with task, inputs and labels."
            )
        for key in given:
            if key not in cls.KEYS:
                raise unknown("the option of problem,", key, cls.KEYS)
        task = given.get("task", "classification")
        if task not in ("classification", "regression"):
            raise InvalidInput(
                f"problem.task is {task!r}, but must be 'classification' or 'regression'."
            )
        features = tuple(map(str, _list(given, "features", str)))
        inputs = tuple(_list(given, "inputs", int)) or ((len(features),) if features else ())
        if not inputs or any(i < 1 for i in inputs):
            raise InvalidInput(
                f"problem.inputs is {list(inputs)!r}, but must be the shape of a sample, whole"
                " numbers ≥ 1, or features must be given."
            )
        if features and inputs != (len(features),):
            raise InvalidInput(
                f"problem.inputs is {list(inputs)!r}, but there are {len(features)} features."
            )
        labels = given.get("labels", [])
        if isinstance(labels, int) and not isinstance(labels, bool):
            labels = [str(i) for i in range(labels)]
        if not isinstance(labels, list) or (
            task == "classification" and len(set(map(str, labels))) < 2
        ):
            raise InvalidInput(
                f"problem.labels is {labels!r}, but must be the list of all classes (or how many"
                " there are), at least 2 different ones."
            )
        targets = given.get("targets", 1)
        if not isinstance(targets, int) or targets < 1:
            raise InvalidInput(f"problem.targets is {targets!r}, but must be a whole number ≥ 1.")
        scaling = [
            tuple(map(float, _list(given, key, (int, float)))) or None for key in ("mean", "scale")
        ]
        for key, values in zip(("mean", "scale"), scaling, strict=True):
            if values is not None and len(values) != int(np.prod(inputs)):
                raise InvalidInput(
                    f"problem.{key} has {len(values)} numbers, but there are {int(np.prod(inputs))}"
                    " inputs."
                )
        if (scaling[0] is None) != (scaling[1] is None):
            raise InvalidInput(
                "problem.mean and problem.scale belong together; give both or neither."
            )
        if scaling[1] is not None and not all(s > 0 for s in scaling[1]):
            raise InvalidInput("problem.scale holds a number that is not > 0.")
        return cls(
            task,
            inputs,
            tuple(map(str, labels)),
            targets,
            features,
            str(given.get("target", "")),
            *scaling,
        )

    def to_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"task": self.task, "inputs": list(self.inputs)}
        if self.task == "classification":
            config["labels"] = list(self.labels)
        else:
            config["targets"] = self.targets
        optional = {
            "features": list(self.features),
            "target": self.target,
            "mean": list(self.mean or ()),
            "scale": list(self.scale or ()),
        }
        return config | {key: value for key, value in optional.items() if value}

    @classmethod
    def of(cls, federation: Federation) -> Problem:
        """The problem that a federation poses, for a plan made from it.

        Its data is taken as it is, without further scaling.
        """
        labels = tuple(map(str, federation.facts.get("labels") or range(federation.classes)))
        return cls(
            federation.task,
            tuple(federation.input_shape),
            labels if federation.task == "classification" else (),
            federation.outputs,
        )

    @property
    def outputs(self) -> int:
        return len(self.labels) if self.task == "classification" else self.targets

    def shape(self, clients: int) -> ProblemShape:
        """The shapes of models and messages. Nobody's samples are known."""
        return ProblemShape(self.task, self.inputs, self.outputs, clients, 1)

    def reading(self) -> Reading:
        """How a client's table is read."""
        places = {feature: i for i, feature in enumerate(self.features)}
        mean, scale = self.mean or (0.0,) * len(places), self.scale or (1.0,) * len(places)
        columns = []
        for name in dict.fromkeys(f.partition("=")[0] for f in self.features):
            values = tuple(
                f.partition("=")[2] for f in self.features if f.partition("=")[:2] == (name, "=")
            )
            if values:
                columns.append(Column(name, "category", values=values))
            if name in places:
                i = places[name]
                columns.append(Column(name, "number").fitted([mean[i]], [mean[i]], [scale[i]]))
        prepared = Prepared(
            tuple(columns), self.features, self.task, self.target, labels=self.labels
        )
        facts: dict[str, Any] = {
            "features": list(self.features),
            "target": self.target,
            "labels": list(self.labels),
            "prepared": prepared,
        }
        return Reading(self.task, len(self.labels), facts)


@dataclasses.dataclass(frozen=True)
class Reading:
    """What `newcomers_from_table` must know to read a client's table as the plan says."""

    task: Task
    classes: int
    facts: dict[str, Any]
    name: str = "the plan"


def _list(given: dict[str, Any], key: str, kind: Any) -> list[Any]:
    values = given.get(key, [])
    if not isinstance(values, list) or not all(
        isinstance(v, kind) and not isinstance(v, bool) for v in values
    ):
        raise InvalidInput(f"problem.{key} is {values!r}, but must be a list.")
    return values
