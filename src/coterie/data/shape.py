"""What a problem looks like before anybody has seen its data."""

from __future__ import annotations

from typing import Literal, NamedTuple

Task = Literal["classification", "regression"]


class ProblemShape(NamedTuple):
    """All that participants must agree on to build models and messages of the same shapes."""

    task: Task
    inputs: tuple[int, ...]
    """The shape of one sample."""
    outputs: int
    """Classes, or targets of a regression."""
    clients: int
    """N"""
    largest: int
    """Training samples of the largest client; on a deployed client its own."""
