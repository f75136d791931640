"""What a peer keeps of its search for kin."""

from __future__ import annotations

import dataclasses

from coterie.deploy.bill import Bill
from coterie.engine.setting import ClientState

FILE = "finding.safetensors"
LOOK_SECONDS = 1.0
"""status.json, which is for looking at, is not written more often than this."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What a peer begins its rounds with."""

    state: ClientState
    ledger: Bill
    t: int
    """The first round that goes over the graph."""


@dataclasses.dataclass(frozen=True)
class Spoken:
    """What a peer has said in a search."""

    sketch: bytes = b""
    said: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """What it told of others, by step."""
    kin: list[int] = dataclasses.field(default_factory=list)
    """To whom it says yes; in the end, who said yes as well."""


@dataclasses.dataclass(frozen=True)
class FindingKept(Spoken):
    """What a peer keeps while it looks for its kin, and to answer others later."""

    state: ClientState = dataclasses.field(kw_only=True)
    ledger: Bill = dataclasses.field(kw_only=True)
    t: int = 0
    """Rounds that it has done before."""
    look: int = 0
    """The how many-th search this is."""
    step: int = -1
    """−1: it still trains alone."""
    known: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Sketches of those that it has heard of, by their numbers."""
    heard: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """What has come in this step, by number."""
    wish: list[int] = dataclasses.field(default_factory=list)
    """Whom it would choose."""
    suitors: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Sketches of those that would choose it."""
    up: int = 0
    down: int = 0
    settled: bool = False
    """Nobody needs an answer of this peer any more."""
    before: Spoken = dataclasses.field(default_factory=Spoken)
    """In the search before this one, of which others may still be."""
