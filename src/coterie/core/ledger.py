"""The byte bill: per round and client, up and down, by one rule for every method.

The rule: every encoded message is billed to its sender as "up" and to its receiver as "down" when
that is a client. A broadcast is billed once for every client that receives it. Without a hub a
client pays once for each neighbour it sends to. Measuring (evaluation) is not billed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("round", "client", "up", "down", "gradients")


class BroadcastAccount:
    """The bytes that a hub has broadcast over public copies, and how many of them each client has
    received.

    A client that missed some messages gets them all when it takes part again, or a whole copy where
    that is shorter.
    """

    def __init__(self, clients: int) -> None:
        self.total = 0
        self.received: NDArray[np.int64] = np.zeros(clients, np.int64)

    def bill(self, clients: NDArray[Any], size: int, whole: int) -> NDArray[np.int64]:
        """Bytes down for each of these clients, once the hub has broadcast `size` more bytes."""
        self.total += size
        due = np.minimum(self.total - self.received[clients], whole)
        self.received[clients] = self.total
        return due


@dataclasses.dataclass
class Ledger:
    """Rows (round, client, bytes up, bytes down, gradients), appended block by block."""

    clients: int
    parts: list[NDArray[np.int64]] = dataclasses.field(default_factory=list)
    up: int = 0
    down: int = 0
    gradients: int = 0

    def add(self, round_: int, client: Any, up: Any, down: Any, gradients: Any) -> None:
        """Bill one round: arrays over the clients that took part."""
        rows = np.stack(
            np.broadcast_arrays(np.int64(round_), client, up, down, gradients), axis=1
        ).astype(np.int64)
        self.parts.append(rows)
        self.up += int(rows[:, 2].sum())
        self.down += int(rows[:, 3].sum())
        self.gradients += int(rows[:, 4].sum())

    def take(self) -> NDArray[np.int64]:
        """The rows since the last take, for writing to disk; totals stay."""
        rows = np.concatenate(self.parts) if self.parts else np.zeros((0, len(COLUMNS)), np.int64)
        self.parts = []
        return rows

    def rows(self) -> NDArray[np.int64]:
        return np.concatenate(self.parts) if self.parts else np.zeros((0, len(COLUMNS)), np.int64)

    def totals(self) -> dict[str, int]:
        return {"up": self.up, "down": self.down, "gradients": self.gradients}

    def carry_on(self, totals: dict[str, int]) -> None:
        """Go on from what was billed before; the rows of that are elsewhere."""
        self.up, self.down, self.gradients = (totals[k] for k in ("up", "down", "gradients"))

    def to_bytes(self) -> bytes:
        """All rows, little-endian."""
        return self.rows().astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, clients: int, data: bytes) -> Ledger:
        """The inverse of `to_bytes`."""
        ledger = cls(clients)
        rows = np.frombuffer(data, "<i8").reshape(-1, len(COLUMNS)).astype(np.int64)
        if len(rows):
            ledger.parts = [rows]
            ledger.carry_on(dict(zip(COLUMNS[2:], rows[:, 2:].sum(0).tolist(), strict=True)))
        return ledger

    def copy(self) -> Ledger:
        return dataclasses.replace(self, parts=list(self.parts))
