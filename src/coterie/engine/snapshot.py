"""What a simulator gives: scores at an evaluation, and all that is needed to go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.engine.evaluate import Scores


@dataclasses.dataclass
class Snapshot:
    """One evaluation: after `round` rounds, per split the scores of all views and clients, and what
    it had cost by then.
    """

    round: int
    scores: dict[str, Scores]
    up: int
    down: int
    gradients: int


class Saved(NamedTuple):
    """All that a run must remember to go on, but for what its options say."""

    t: int
    hub: dict[str, NDArray[Any]]
    totals: dict[str, int]
    rows: Sequence[tuple[NDArray[np.int64], NDArray[np.uint8]]]
    """Clients and their states as bytes; of clients that are there twice the last one counts."""
