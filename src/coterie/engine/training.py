"""The options of a run that do not belong to a method: the same for all methods that are
compared.
"""

from __future__ import annotations

from typing import ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.metrics import check_metric
from coterie.core.options import Options, option, traced_dataclass
from coterie.core.randomness import Role, shuffled, some_of
from coterie.core.schedule import Number
from coterie.data.federation import Federation
from coterie.data.shape import ProblemShape


@traced_dataclass
class Training(Options):
    """How long, with how many clients, on which batches."""

    name: ClassVar[str] = "training"

    rounds: int = option(100, "communication rounds", symbol="T", low=1)
    cohort: int | None = option(
        None, "clients sampled per round, without replacement; nothing: all", symbol="S", low=1
    )
    fraction: float | None = option(
        None,
        "the cohort as a share of the clients instead of a number",
        above=0,
        high=1,
        static=True,
    )
    batch_size: int = option(20, "samples per mini-batch", symbol="B", low=1)
    sampling: str = option(
        "shuffle",
        "mini-batches from shuffled epochs, from independent draws, or full (exact gradients)",
        choices=("shuffle", "replace", "full"),
    )
    batch_schedule: Number | None = option(
        None,
        "samples that count in a batch of round t, rounded up, at most batch_size",
        symbol="D_t",
        above=0,
    )
    keep: str = option(
        "last",
        "which round counts: the last, or the one that is best on validation data (its models are"
        " evaluated, exported and reported; keeps a second copy of all clients' states, in memory"
        ' or, with the store "file", in the run\'s folder)',
        choices=("last", "best"),
    )
    patience: int | None = option(
        None,
        "evaluations without a better one on validation data after which training stops; nothing:"
        " all rounds",
        low=1,
    )
    eval_every: int = option(10, "rounds between evaluations of all clients", low=1)
    metric: str | None = option(
        None,
        "what models are judged by, e.g. auc, f1, rmse (coterie list metrics); nothing: accuracy,"
        " or the mean squared error",
    )
    seed: int = option(0, "of initial model, cohorts, batches", low=0, high=2**31 - 1)
    precision: str = option("float32", "of models and data", choices=("float32", "float64"))
    store: str = option(
        "device", "where the clients' states live", choices=("device", "host", "file")
    )
    clients_at_once: int | None = option(
        None, "clients trained side by side, to bound memory; nothing: chosen", low=1
    )
    devices: int | None = option(
        None, "devices that clients are spread over; nothing: as many as pay", low=1
    )
    eval_at_once: int = option(256, "clients evaluated side by side, to bound memory", low=1)
    eval_clients: int | None = option(
        None,
        "clients that evaluations look at, a fixed sample (the same for every method and seed);"
        " nothing: all",
        low=1,
    )
    held_out: int = option(
        0,
        "clients that never train (the same at every seed); after the last round they adapt as"
        " newcomers and are scored",
        low=0,
    )
    adapt_rounds: int = option(20, "local rounds that a held-out client adapts for", low=0)
    train_metrics: bool = option(False, "evaluate on the training data too")
    checkpoint_every: int | None = option(
        None,
        "rounds between checkpoints (rounded up to an evaluation); nothing: about every 10 seconds",
        low=1,
    )

    @property
    def plain(self) -> bool:
        """Whether the last of all rounds counts, whatever validation data say."""
        return self.keep == "last" and self.patience is None

    def validate(self) -> None:
        if self.metric is not None:
            check_metric(self.metric)

    def unused(self) -> dict[str, str]:
        return {"batch_size": 'training.sampling is "full"'} if self.sampling == "full" else {}

    def hold_out(self, federation: Federation) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The clients that train and those that are held out as newcomers: the same for every
        method and seed, so that comparisons are paired.
        """
        n, out = federation.clients, self.held_out
        if out >= n:
            raise InvalidInput(
                f"training.held_out is {out}, but must be at most {n - 1}: somebody has to train."
            )
        drawn = np.zeros(0, np.int64)
        if out:
            drawn = np.sort(np.asarray(shuffled(0, Role.NEWCOMERS, n), np.int64)[:out])
        return np.setdiff1d(np.arange(n), drawn), drawn

    def evaluated(self, clients: int) -> NDArray[np.bool_] | None:
        """Which of the clients that train evaluations look at; None: all."""
        if self.eval_clients is None:
            return None
        if self.eval_clients > clients:
            raise InvalidInput(
                f"training.eval_clients is {self.eval_clients}, but must be at most {clients}, the"
                " number of clients that train."
            )
        seen = np.zeros(clients, bool)
        seen[np.asarray(some_of(0, Role.EVALUATION, clients, self.eval_clients))] = True
        return seen

    def cohort_size(self, federation: Federation | ProblemShape) -> int:
        n = federation.clients
        if self.cohort is not None and self.fraction is not None:
            raise InvalidInput(
                "training.cohort and training.fraction are both given; give one of them."
            )
        if self.fraction is not None:
            return max(1, round(self.fraction * n))
        if self.cohort is not None and self.cohort > n:
            raise InvalidInput(
                f"training.cohort is {self.cohort}, but must be at most {n}, the number of clients."
            )
        return self.cohort or n


class TrainingOptions(TypedDict, total=False):
    """The options of `Training` as keyword arguments, for editors and type checkers."""

    rounds: int
    cohort: int | None
    fraction: float | None
    batch_size: int
    sampling: str
    batch_schedule: Number | None
    eval_every: int
    seed: int
    precision: str
    store: str
    clients_at_once: int | None
    devices: int | None
    eval_at_once: int
    eval_clients: int | None
    held_out: int
    adapt_rounds: int
    train_metrics: bool
    checkpoint_every: int | None
    keep: str
    patience: int | None
