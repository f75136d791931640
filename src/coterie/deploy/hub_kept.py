"""What a hub keeps from round to round."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from coterie.core.ledger import Ledger
from coterie.core.typing import PyTree
from coterie.deploy.hub_kin import KinKept
from coterie.engine.setting import HubState


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


@dataclasses.dataclass(frozen=True)
class HubKept:
    hub: HubState
    clients: list[ClientRecord]
    ledger: Ledger
    broadcasts: list[Broadcast] = dataclasses.field(default_factory=list)
    """The broadcasts that some client may still need, oldest first."""
    round: int = 0
    finished: bool = False
    kin: KinKept | None = None
    """Where the graph is learnt."""
    again: int = 0
    """When the run was last set back to an older copy (seconds since the epoch)."""

    def with_client(self, k: int, record: ClientRecord) -> HubKept:
        clients = [*self.clients[:k], record, *self.clients[k + 1 :]]
        return dataclasses.replace(self, clients=clients)


class Arrived(NamedTuple):
    """A client's message as it arrived, and the hub's end of its link afterwards."""

    message: PyTree
    public: PyTree
