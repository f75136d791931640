"""What is known of a federation without its rows: enough to restore models and to take in newcomers
where the training data are not at hand.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.data.federation import SPLITS, Federation, Split
from coterie.data.prepared import Prepared
from coterie.data.shape import ProblemShape

KEPT = (
    "clients",
    "labels",
    "features",
    "target",
    "target_mean",
    "target_scale",
    "scaling",
    "protocol",
)
"""Facts that an outline takes over as they are."""
COUNTS = "label_counts"


def _size_fact(split: str) -> str:
    return f"{split}_sizes"


@dataclasses.dataclass(frozen=True)
class Outline(Federation):
    """A federation of which only the outline is known.

    In each split a client has one sample of zeros in the place of its rows, and none where it had
    none, so shapes are as they were. The true sizes and label counts are kept as facts.
    """

    @property
    def shape(self) -> ProblemShape:
        largest = int(self.sizes("train").max())
        return ProblemShape(self.task, self.input_shape, self.outputs, self.clients, largest)

    def sizes(self, split: str) -> NDArray[np.int64]:
        """How many samples of a split each client had."""
        return np.asarray(self.facts[_size_fact(split)])

    def label_counts(self) -> NDArray[np.int64]:
        return np.asarray(self.facts[COUNTS])

    def to_config(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values for a JSON file, and arrays for a safetensors file."""
        prepared = self.facts.get("prepared")
        targets = self.train.y.shape[1] if self.train.y.ndim > 1 else None
        plain = {
            "name": self.name,
            "task": self.task,
            "classes": self.classes,
            "inputs": list(self.input_shape),
            "targets": targets,
            "facts": {k: _plain(self.facts[k]) for k in KEPT if k in self.facts},
            "prepared": prepared.to_config() if isinstance(prepared, Prepared) else None,
        }
        arrays = {_size_fact(s): self.sizes(s) for s in SPLITS}
        if self.task == "classification":
            arrays[COUNTS] = self.label_counts()
        return plain, arrays

    @classmethod
    def from_config(cls, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Outline:
        """The inverse of `to_config`."""
        missing = {"name", "task", "classes", "inputs", "facts"} - set(plain)
        needed = {_size_fact(s) for s in SPLITS}
        needed |= {COUNTS} if plain.get("task") == "classification" else set()
        if lacks := sorted(missing | needed - set(arrays)):
            raise InvalidInput(f"the outline of the data lacks {lacks[0]!r}.")
        facts = dict(plain["facts"])
        if plain.get("prepared") is not None:
            facts["prepared"] = Prepared.from_config(plain["prepared"])
        return _hollow(
            plain["name"],
            plain["task"],
            plain["classes"],
            (tuple(plain["inputs"]), plain.get("targets")),
            facts,
            {k: np.asarray(arrays[k], np.int64) for k in needed},
        )


def outline(federation: Federation) -> Outline:
    """The outline of a federation."""
    if isinstance(federation, Outline):
        return federation
    kept = {k: federation.facts[k] for k in (*KEPT, "prepared") if k in federation.facts}
    arrays = {_size_fact(s): getattr(federation, s).sizes for s in SPLITS}
    if federation.task == "classification":
        arrays[COUNTS] = federation.label_counts()
    y = federation.train.y
    return _hollow(
        federation.name,
        federation.task,
        federation.classes,
        (federation.input_shape, y.shape[1] if y.ndim > 1 else None),
        kept,
        arrays,
    )


def _hollow(
    name: str,
    task: Any,
    classes: int,
    shapes: tuple[tuple[int, ...], int | None],
    facts: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
) -> Outline:
    inputs, targets = shapes
    kind = np.int32 if task == "classification" else np.float32
    after = () if targets is None else (targets,)

    def split(name: str) -> Split:
        has = arrays[_size_fact(name)] > 0
        rows = int(has.sum())
        x, y = np.zeros((rows, *inputs), np.float32), np.zeros((rows, *after), kind)
        return Split(x, y, np.concatenate([[0], np.cumsum(has)]).astype(np.int64))

    train, validation, test = map(split, SPLITS)
    facts = {**facts, **arrays}
    return Outline(name, train, validation, test, task, classes, facts, tuple(arrays))


def _plain(value: Any) -> Any:
    """Numbers and names as JSON knows them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
