"""What is timed: the rows of the table, their sizes, and random data for them.

Only numpy is imported here: contenders that live in environments of their own read this file, too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

LR = 0.05
"""Step size of local SGD, and of the personal models."""
OUTER_LR = 0.005
"""pFedMe's and lp-proj's step on what is shared."""
LAM = {"pfedme": 15.0, "ditto": 1.0, "lp-proj-1": 0.01, "lp-proj-2": 1.0}
ETA = 0.01
"""FedU's coupling."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """One row: all clients of the cohort take `steps` mini-batches of `batch`, `inner` gradient
    steps on each.
    """

    method: str
    model: str
    clients: int
    features: int
    steps: int = 20
    inner: int = 1
    hidden: tuple[int, ...] = ()
    classes: int = 10
    batch: int = 20
    samples: int = 500
    dsub: int = 0
    cohort: int | None = None
    """Clients that train in a round; nothing: all."""

    @property
    def name(self) -> str:
        return f"{self.method}, {self.model}, {self.clients} clients"

    @property
    def trainers(self) -> int:
        return self.cohort or self.clients

    @property
    def side(self) -> int:
        """Of square images."""
        return math.isqrt(self.features)

    @property
    def sizes(self) -> list[int]:
        """Widths of a dense model, inputs and outputs included."""
        return [self.features, *self.hidden, self.classes]

    def leaves(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of the model's arrays, in the order in which coterie flattens them."""
        if self.model in ("mlr", "mlp"):
            pairs = zip(self.sizes, self.sizes[1:], strict=False)
            layers = [(f"layer{i}", (b, a)) for i, (a, b) in enumerate(pairs)]
        else:
            side, channels, fields = self.side, CHANNELS[self.model], DENSE[self.model]
            left = side // 4 if self.model == "cnn" else ((side - 4) // 2 - 4) // 2
            sizes = [left * left * channels[1], *fields, self.classes]
            names = ["dense"] if len(fields) == 1 else [f"dense{i + 1}" for i in range(len(fields))]
            pairs = zip(sizes, sizes[1:], strict=False)
            layers = [
                ("conv1", (channels[0], 1, 5, 5)),
                ("conv2", (channels[1], channels[0], 5, 5)),
                *zip([*names, "out"], [(b, a) for a, b in pairs], strict=True),
            ]
        found = []
        for name, shape in layers:
            found += [(f"{name}.b", shape[:1]), (f"{name}.w", shape)]
        return found

    @property
    def parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.leaves())

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def read(cls, found: dict[str, Any]) -> Problem:
        return cls(**found | {"hidden": tuple(found["hidden"])})


CHANNELS = {"lenet": (6, 16), "cnn": (32, 64)}
DENSE = {"lenet": (120, 84), "cnn": (512,)}


def data(problem: Problem) -> tuple[Any, Any]:
    """x (clients, samples, features) and y (clients, samples), random: only speed is measured."""
    rng = np.random.default_rng(0)
    shape = (problem.clients, problem.samples)
    x = rng.random((*shape, problem.features), dtype=np.float32)
    return x, rng.integers(0, problem.classes, shape).astype(np.int64)


_MLP: dict[str, Any] = {"features": 784, "hidden": (100,)}
_PFEDME: dict[str, Any] = {"steps": 20, "inner": 5, "samples": 2000}
_LP: dict[str, Any] = {"clients": 20, "steps": 20, "inner": 5, "dsub": 50}

ROWS: tuple[Problem, ...] = (
    Problem("fedavg", "mlr", 10, 784),
    Problem("fedavg", "mlp", 10, **_MLP),
    Problem("fedavg", "mlp", 100, **_MLP),
    Problem("pfedme", "mlr", 100, 60, **_PFEDME),
    Problem("pfedme", "mlr", 20, 784, **_PFEDME),
    Problem("pfedme", "mlp", 20, **_MLP, **_PFEDME),
    Problem("fedu", "mlr", 30, 561, classes=6, samples=200),
    Problem("lp-proj-1", "mlr", features=784, **_LP),
    Problem("lp-proj-1", "mlp", **_MLP, **_LP),
    Problem("lp-proj-2", "mlr", features=784, **_LP),
    Problem("lp-proj-2", "mlp", **_MLP, **_LP),
    Problem("ditto", "mlp", 20, **_MLP),
    Problem("fedavg", "lenet", 10, 784),
    Problem("fedavg", "cnn", 10, 784, steps=5),
    Problem("fedavg", "cnn", 10, 784),
)
"""The first of pFedMe's is the size of its paper's Synthetic data, FedU's that of HAR."""
