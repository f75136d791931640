"""Waiting for jobs that are done elsewhere: in processes of this machine (`grid`) or on a cluster
(`cluster`). Both put what they hear into a queue, and one loop takes it from there.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.queues import heard
from coterie.runs import run as runs

if TYPE_CHECKING:
    from coterie.runs.grid import Board, Job

Event = tuple[int, dict[str, Any] | None]
"""Who tells something, by number, and what; None: nothing will come from there any more."""


def refuse(event: Mapping[str, Any]) -> None:
    """Raise here what a job was refused for elsewhere."""
    if "error" in event:
        raise (InvalidInput if event["error"] == "InvalidInput" else CoterieError)(event["text"])


class Waiting(ABC):
    """Jobs of one command that are under way elsewhere."""

    def __init__(
        self,
        todo: int,
        total: int,
        board: Board | None,
        say: runs.Say,
        keep_models: bool = True,
    ) -> None:
        self.total, self.ended, self.board, self.say = total, total - todo, board, say
        self.keep_models = keep_models
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether there is still something to wait for."""

    @abstractmethod
    def take(self, number: int, event: dict[str, Any] | None) -> None:
        """What somebody tells; raises what ends the command."""

    def wait(self, stop_asked: Callable[[], bool]) -> None:
        """Until all jobs have ended, or somebody wants to stop."""

        def going() -> bool:
            if self.busy and stop_asked():
                raise runs.Interrupted(
                    f"stopped; {self.ended} of {self.total} runs have ended and the others are"
                    " saved as far as they are; go on with the same command."
                )
            return self.busy

        for number, event in heard(self.events, going):
            self.take(number, event)

    def end(self, job: Job) -> None:
        """A job has ended well."""
        self.ended += 1
        if not self.keep_models:
            runs.drop_models(job.folder)
        self.tell_overall()

    def tell_overall(self) -> None:
        if self.board:
            self.board.overall(self.ended, self.total)
