"""What each client has: packed arrays, one per split, with offsets.

No padding, no Python object per client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.frames import frame, html_table
from coterie.core.pages import chunks
from coterie.data.shape import ProblemShape, Task

if TYPE_CHECKING:
    import pandas

__all__ = [
    "SPLITS",
    "Federation",
    "Split",
    "Task",
    "cut",
    "from_arrays",
    "pack",
    "warn_without_test",
    "without_test",
]
SPLITS = ("train", "validation", "test")
LARGEST = 2**24
"""Whole numbers up to here are exact in single precision."""
PER_CLIENT = ("clients", "cluster")
"""Facts that hold one value per client wherever they stand."""


@dataclasses.dataclass(frozen=True)
class Split:
    """The samples of all clients, one after the other: client k owns rows offsets[k] … offsets[k+1]
    − 1.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    offsets: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def client(self, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        return self.x[rows], self.y[rows]

    def __len__(self) -> int:
        return int(self.offsets[-1])


def pack(parts: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Split:
    """Concatenate (x, y) of client 0, 1, … into one Split."""
    if not parts:
        raise InvalidInput("a federation needs at least 1 client, but 0 were given.")
    for k, (x, y) in enumerate(parts):
        if len(x) != len(y):
            raise InvalidInput(
                f"client {k} has {len(x)} inputs but {len(y)} targets; they must be as many."
            )
    offsets = np.concatenate([[0], np.cumsum([len(x) for x, _ in parts])]).astype(np.int64)
    return Split(
        np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), offsets
    )


@dataclasses.dataclass(frozen=True)
class Federation:
    """The data of N clients.

    `train` must hold at least one sample of every client; `validation` and `test` may be empty for
    some (they are then left out of means, and named). Inputs are floating point, or whole numbers
    that a model looks up (characters, words); targets are class numbers 0 … classes−1, or floating
    point for regression.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    task: Task = "classification"
    classes: int = 0
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Anything worth keeping with the data, e.g. the true solutions of a synthetic problem.

    "clients" holds the clients' names, "labels" those of the classes, "features" those of the
    inputs; "no_test" and "downsampled" hold numbers of clients.
    """
    per_client: tuple[str, ...] = ()
    """Which other facts hold one value per client, and so go along with a subset of the clients."""

    def __post_init__(self) -> None:
        for name in SPLITS:
            self._check(name, getattr(self, name))
        for key in self._per_client():
            if len(self.facts[key]) != self.clients:
                raise InvalidInput(
                    f"the fact {key!r} of {self.name!r} has {len(self.facts[key])} values for"
                    f" {self.clients} clients; it must have one for each."
                )
        empty = np.flatnonzero(self.train.sizes == 0)
        if len(empty):
            raise InvalidInput(
                f"client {empty[0]} of {self.name!r} has no training samples (so have {len(empty)}"
                " in all); every client needs at least 1."
            )
        shapes = [s.x.shape[1:] for s in self.splits if len(s)]
        if any(shape != shapes[0] for shape in shapes):
            raise InvalidInput(
                f"train, validation and test of {self.name!r} have inputs of different shapes"
                f" ({', '.join(map(str, shapes))}); they must agree."
            )
        if len({s.offsets.shape for s in self.splits}) != 1:
            raise InvalidInput(
                f"train, validation and test of {self.name!r} have different numbers of clients;"
                " they must agree."
            )

    def _check(self, split: str, s: Split) -> None:
        where = f"the {split} split of {self.name!r}"
        o = s.offsets
        if (
            o.ndim != 1
            or len(o) < 2
            or o[0] != 0
            or np.any(np.diff(o) < 0)
            or o[-1] != len(s.x)
            or len(s.x) != len(s.y)
        ):
            raise InvalidInput(
                f"{where} has offsets that do not cover its {len(s.x)} inputs and {len(s.y)}"
                " targets from 0 upwards."
            )
        if np.issubdtype(s.x.dtype, np.integer):
            if len(s.x) and max(int(s.x.max()), -int(s.x.min())) > LARGEST:
                raise InvalidInput(
                    f"{where} has whole numbers beyond {LARGEST:,} as inputs; single precision does"
                    " not tell these apart, so give floating-point numbers or smaller ones."
                )
        elif not np.issubdtype(s.x.dtype, np.floating):
            raise InvalidInput(
                f"{where} has inputs of type {s.x.dtype}; they must be floating point, or whole"
                " numbers."
            )
        elif not all(np.isfinite(part).all() for part in chunks(s.x)):
            wrong = [~np.isfinite(part.reshape(len(part), -1)).all(1) for part in chunks(s.x)]
            row = int(np.flatnonzero(np.concatenate(wrong))[0])
            owner = int(np.searchsorted(o, row, "right")) - 1
            raise InvalidInput(
                f"{where} has NaN or infinity in sample {row - int(o[owner])} of client {owner};"
                " inputs must be finite."
            )
        if self.task == "classification":
            if not np.issubdtype(s.y.dtype, np.integer):
                raise InvalidInput(
                    f"{where} has targets of type {s.y.dtype}; class numbers must be whole numbers."
                )
            if len(s.y) and (s.y.min() < 0 or s.y.max() >= self.classes):
                label = int(s.y.min() if s.y.min() < 0 else s.y.max())
                raise InvalidInput(
                    f"{where} has the label {label}, but labels must be from 0 to"
                    f" {self.classes - 1}."
                )
        elif not np.issubdtype(s.y.dtype, np.floating) or not np.isfinite(s.y).all():
            raise InvalidInput(
                f"{where} has targets that are not finite floating-point numbers, as regression"
                " needs."
            )

    @property
    def splits(self) -> tuple[Split, Split, Split]:
        return self.train, self.validation, self.test

    @property
    def clients(self) -> int:
        """N."""
        return len(self.train.offsets) - 1

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.train.x.shape[1:]

    @property
    def shape(self) -> ProblemShape:
        """What must be known of this data to build models and messages for it."""
        largest = int(self.train.sizes.max())
        return ProblemShape(self.task, self.input_shape, self.outputs, self.clients, largest)

    @property
    def outputs(self) -> int:
        """How many numbers a model must give per sample."""
        if self.task == "classification":
            return self.classes
        return 1 if self.train.y.ndim == 1 else int(self.train.y.shape[1])

    def names(self) -> list[str]:
        """The clients as their owners call them, or by number."""
        known = self.facts.get("clients")
        return [str(n) for n in known] if known else [f"client {k}" for k in range(self.clients)]

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.input_shape))
        task = f"{self.classes} classes" if self.task == "classification" else "regression"
        sizes = ", ".join(f"{name} {len(getattr(self, name)):,}" for name in SPLITS)
        return (
            f"<Federation {self.name!r}: {self.clients:,} clients, {shape} inputs, {task}, samples:"
            f" {sizes}>"
        )

    def _repr_html_(self) -> str:
        from coterie.data.describe import describe

        return html_table("Federation", [], describe(self).rows())

    def to_pandas(self) -> pandas.DataFrame:
        """A row per client and split: how many samples, and how many of each label (or the mean and
        the standard deviation of a quantity). Needs pandas.
        """
        from coterie.data.describe import sizes_and_labels

        return frame(sizes_and_labels(self))

    def subset(self, clients: NDArray[Any]) -> Federation:
        """Some of the clients, in the order given; facts that are one per client go along, and
        numbers of clients become those in the subset.
        """
        chosen = [int(k) for k in clients]
        facts = dict(self.facts)
        for key in self._per_client():
            values = facts[key]
            facts[key] = (
                values[np.asarray(chosen, int)]
                if isinstance(values, np.ndarray)
                else [values[k] for k in chosen]
            )
        for key in ("no_test", "downsampled"):
            if key in facts:
                facts[key] = [i for i, k in enumerate(chosen) if k in facts[key]]
        parts = (pack([split.client(k) for k in chosen]) for split in self.splits)
        train, validation, test = parts
        return dataclasses.replace(self, train=train, validation=validation, test=test, facts=facts)

    def _per_client(self) -> list[str]:
        """The facts that hold one value per client."""
        return [key for key in (*PER_CLIENT, *self.per_client) if key in self.facts]

    def label_counts(self) -> NDArray[np.int64]:
        """How many training samples of each class each client has, shape (N, classes)."""
        owner = np.repeat(np.arange(self.clients), self.train.sizes)
        counts = np.zeros((self.clients, self.classes), np.int64)
        np.add.at(counts, (owner, self.train.y), 1)
        return counts

    def majority_score(self) -> NDArray[np.float64]:
        """Per client, the test accuracy of always answering its most frequent training class (NaN
        without test data).
        """
        best = self.label_counts().argmax(1)
        owner = np.repeat(np.arange(self.clients), self.test.sizes)
        hits = np.bincount(owner, self.test.y == best[owner], self.clients)
        with np.errstate(invalid="ignore"):
            return hits / np.where(self.test.sizes > 0, self.test.sizes, np.nan)

    def astype(self, dtype: Any) -> Federation:
        """The same data with inputs (and regression targets) in another precision."""

        def cast(s: Split) -> Split:
            y = s.y.astype(dtype) if self.task == "regression" else s.y
            return Split(s.x.astype(dtype), y, s.offsets)

        return dataclasses.replace(
            self, train=cast(self.train), validation=cast(self.validation), test=cast(self.test)
        )


def cut(
    client: NDArray[np.integer[Any]],
    *,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    whole_train: bool = False,
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows and offsets of train, validation and test, given who owns each row (−1: nobody).

    Each client's rows are shuffled by `seed` and cut once, so the three are disjoint by
    construction. A client always keeps at least one training sample; with very few samples its
    validation or test part may be empty. Shares are rounded to the nearest whole number; with
    `whole_train`, as the papers' scripts do, the part that is not for testing is rounded down.
    """
    for label, value in (("validation", validation), ("test", test)):
        if not 0 <= value < 1:
            raise InvalidInput(f"the {label} share is {value!r}, but must be a number ≥ 0 and < 1.")
    if validation + test >= 1:
        raise InvalidInput(
            f"the validation and test shares add up to {validation + test:g}, but must leave"
            " something to train on (< 1)."
        )
    rng = np.random.default_rng([seed, 0x5EED])
    order = rng.permutation(len(client))
    order = order[client[order] >= 0]
    order = order[np.argsort(client[order], kind="stable")]
    owners = client[order]
    n = int(owners.max()) + 1 if len(owners) else 0
    if n == 0:
        raise InvalidInput(
            "no sample is assigned to any client; a federation needs at least 1 client."
        )
    sizes = np.bincount(owners, minlength=n)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    tests = (
        sizes - np.floor(sizes * (1 - test) + 1e-9).astype(int)
        if whole_train
        else np.round(sizes * test).astype(int)
    )
    tests = np.minimum(tests, np.maximum(sizes - 1, 0))
    vals = np.minimum(np.round(sizes * validation).astype(int), np.maximum(sizes - tests - 1, 0))
    index = np.arange(len(order)) - starts[owners]
    part = np.where(index < tests[owners], 2, np.where(index < (tests + vals)[owners], 1, 0))
    pieces = []
    for which in range(3):
        rows = order[part == which]
        counts = np.bincount(client[rows], minlength=n)
        pieces.append((rows, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)))
    return pieces


def from_arrays(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    client: NDArray[np.integer[Any]],
    *,
    task: Task = "classification",
    classes: int | None = None,
    validation: float = 0.1,
    test: float = 0.25,
    seed: int = 0,
    facts: dict[str, Any] | None = None,
    per_client: tuple[str, ...] = (),
) -> Federation:
    """A Federation from flat arrays and the number of the client that owns each row (−1: nobody,
    the row is left out).

    Each client's rows are shuffled by `seed` and cut into train, validation and test, disjoint by
    construction (see `cut`). `per_client` names those of the `facts` that hold one value per
    client.
    """
    if len(x) != len(y) or len(x) != len(client):
        raise InvalidInput(
            f"there are {len(x)} inputs, {len(y)} targets and {len(client)} client numbers; they"
            " must be as many."
        )
    if not np.any(client >= 0):
        raise InvalidInput(
            f"{name!r} assigns no sample to any client; a federation needs at least 1 client."
        )
    if classes is None:
        classes = int(y.max()) + 1 if task == "classification" and len(y) else 0
    pieces = cut(client, validation=validation, test=test, seed=seed)
    train, held_out, tested = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
    return Federation(name, train, held_out, tested, task, classes, facts or {}, per_client)


def without_test(federation: Federation) -> list[int]:
    """The clients that have no test data: they train, but no score of theirs enters a mean."""
    return [int(k) for k in np.flatnonzero(federation.test.sizes == 0)]


def warn_without_test(federation: Federation) -> str:
    """One sentence that names the clients without test data, or an empty string."""
    missing = without_test(federation)
    if not missing:
        return ""
    names = federation.facts.get("clients")
    shown = ", ".join(str(names[k]) if names else str(k) for k in missing[:8]) + (
        f" and {len(missing) - 8} more" if len(missing) > 8 else ""
    )
    who, verb = (
        ("Clients", "have no test data and are")
        if len(missing) != 1
        else ("Client", "has no test data and is")
    )
    return f"{who} {shown} of {federation.name!r} {verb} left out of means."
