"""A hub and three clients in one process, without a network: what is asked and answered."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie import Federation
from coterie.deploy.client import Client
from coterie.deploy.hub import Hub
from coterie.deploy.messages import Forgot
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh import star
from coterie.deploy.zenoh.net import Answered, Asked, Seen
from tests.support.hub_lab import NAMES

Spoil = Callable[[str, bytes], bytes | None]


class AskingRoom:
    """A network in this process: clients answer when they are asked; `spoil` stands between them
    and the hub.
    """

    def __init__(
        self,
        folder: Path,
        fed: Federation,
        plan: Plan,
        spoil: Spoil = lambda name, payload: payload,
    ) -> None:
        self.spoil, self.events = spoil, queue.SimpleQueue[Any]()
        self.clients = {
            name: Client(plan, k, fed.subset(np.array([k])), folder / name)
            for k, name in enumerate(NAMES)
        }
        self.away: set[str] = set()
        self.revoked: set[str] = set()
        self.said: list[str] = []
        self.over: list[str] = []
        self.disputed: set[str] = set()
        self.forgot: Forgot | None = None
        hub, net, passport = Hub(plan, folder / "hub", say=self.said.append), self, self
        self.asking = star.Asking(hub, net, passport, say=self.said.append)  # type: ignore[arg-type]
        self.hub = hub

    def run(self) -> None:
        for name in NAMES:
            self.events.put(Seen(name, name not in self.away))
        self.asking.run()

    # as a network

    def next(self, timeout: float) -> Any:
        try:
            return self.events.get(timeout=timeout)
        except queue.Empty:
            return None

    def ask(
        self, name: str, question: Any, payload: bytes, timeout: float, *, hold: bool = False
    ) -> None:
        got: list[bytes | None] = []
        asked = Asked("hub", payload, got.append, hold)
        try:
            star.answer(self.clients[name], asked, lambda sentence: None)
        except Forgot as error:  # as in a process of its own, which then ends
            self.forgot = error
        answer = None if got[0] is None else self.spoil(name, got[0])
        if answer is not None:  # else its link stands, and nothing comes
            self.events.put(Answered(name, question, answer, name in self.disputed))
            self.disputed.discard(name)

    def send(self, name: str, facts: Any, payload: bytes) -> None:
        assert facts == star.OVER
        self.over.append(name)

    def other_ends(self) -> frozenset[str]:
        return frozenset({"hub"})

    # as a passport

    def check(self) -> None:
        pass

    def renewed(self) -> None:
        pass

    def newest(self) -> None:
        pass

    def refused(self) -> frozenset[str]:
        return frozenset(self.revoked)
