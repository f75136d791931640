"""What a hub keeps from round to round."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from coterie.core.typing import PyTree
from coterie.deploy.bill import Bill
from coterie.deploy.hub_kin import KinKept
from coterie.engine.setting import HubState

REMEDY = (
    "put back the newest copy (`coterie hub restore`); if clients are ahead of it then, `coterie"
    " hub go-back` lets the run go on from there"
)


@dataclasses.dataclass(frozen=True)
class Pull:
    """Graph: a pull that its client has not confirmed yet."""

    round: int
    wire: bytes
    scale: float
    """The sum of the weights of the neighbours that pull."""


@dataclasses.dataclass(frozen=True)
class Broadcast:
    """Star over public copies: what the hub sent to all in a round."""

    round: int
    wire: bytes


@dataclasses.dataclass(frozen=True)
class Billed:
    """Running totals of a client's rows in the bill."""

    up: int = 0
    down: int = 0
    rounds: int = 0
    """In how many rounds it took part; the last word is none."""
    last: int = -1
    """The round that was billed last."""

    def plus(self, round_: int, up: int, down: int, *, counts: bool = True) -> Billed:
        new = counts and round_ != self.last
        return Billed(self.up + up, self.down + down, self.rounds + new, round_)


@dataclasses.dataclass(frozen=True)
class ClientRecord:
    """What a hub keeps of one client."""

    up: PyTree = ()
    """The hub's end of what the client sends."""
    down: PyTree = ()
    """Graph: the hub's end of the client's pulls."""
    message: PyTree = ()
    """Graph: the client's last message."""
    pull: Pull | None = None
    seen: int = -1
    """The round of the last message that was accepted."""
    worked: int = -1
    """The last round of its work that was accepted, with a message or without."""
    last_broadcast: int = -1
    """Star over public copies: the round of the last broadcast that the client confirmed."""
    lost: bool = False
    """The client must get a whole copy."""
    samples: int = 0
    at: float = 0.0
    """When its last message came (seconds since the epoch)."""
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    rejected: int = 0
    billed: Billed = Billed()


@dataclasses.dataclass(frozen=True)
class HubKept:
    hub: HubState
    clients: list[ClientRecord]
    ledger: Bill
    broadcasts: list[Broadcast] = dataclasses.field(default_factory=list)
    """The broadcasts that some client may still need, oldest first."""
    round: int = 0
    finished: bool = False
    kin: KinKept | None = None
    """Where the graph is learnt."""
    again: int = 0
    """When the run was last set back to an older copy (seconds since the epoch)."""

    def with_bill(self, round_: int, rows: Iterable[Sequence[int]], *, counts: bool) -> HubKept:
        """With the bill of a round: rows of client, bytes up, bytes down, gradients."""
        bill, clients = self.ledger.copy(), list(self.clients)
        columns = np.array([*rows], np.int64).reshape(-1, 4)
        bill.add(round_, *columns.T)
        for k, up, down, _ in columns.tolist():
            after = clients[k].billed.plus(round_, up, down, counts=counts)
            clients[k] = dataclasses.replace(clients[k], billed=after)
        return dataclasses.replace(self, ledger=bill, clients=clients)

    def with_totals(self, rounds: int) -> HubKept:
        """With the running totals of all rows that are not on file yet; `rounds` are the plan's.

        Files of format 4 have the rows and no totals.
        """
        kept = dataclasses.replace(self, ledger=Bill(self.ledger.clients))
        rows = self.ledger.rows() if self.ledger.parts else np.zeros((0, 5), np.int64)
        for t in dict.fromkeys(rows[:, 0].tolist()):
            kept = kept.with_bill(t, rows[rows[:, 0] == t][:, 1:], counts=t < rounds)
        return dataclasses.replace(kept, ledger=self.ledger)

    def with_client(self, k: int, record: ClientRecord) -> HubKept:
        clients = [*self.clients[:k], record, *self.clients[k + 1 :]]
        return dataclasses.replace(self, clients=clients)


class Arrived(NamedTuple):
    """A client's message as it arrived, and the hub's end of its link afterwards."""

    message: PyTree
    public: PyTree
