"""What a peer knows of itself and of its neighbours, on disk, and how edges that were dropped come
back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput, shown
from coterie.core.files import write_json
from coterie.core.metrics import metric_of
from coterie.core.typing import PyTree
from coterie.data.federation import Federation
from coterie.deploy import kept as disk
from coterie.deploy.bill import Bill, Lookout
from coterie.deploy.finding_kept import LOOK_SECONDS, Found
from coterie.deploy.messages import SHORT, WIRE, Rejected, check_wire
from coterie.deploy.neighbour import Neighbour, NeighbourState
from coterie.deploy.plan import Plan
from coterie.deploy.plan_graph import looks
from coterie.deploy.worker import Worker
from coterie.engine.setting import ClientState

FILE = "peer.safetensors"
KEPT_ROUNDS = 2
FARTHEST = 1000
"""Rounds ahead for which an edge may be agreed on."""


@dataclasses.dataclass(frozen=True)
class PeerKept:
    """What a peer keeps from round to round."""

    state: ClientState
    message: PyTree
    """What it sent last, as it arrived."""
    neighbours: dict[str, NeighbourState]
    ledger: Bill
    t: int = 0
    entry: int = -1
    """The round to which this peer jumped last."""
    begun: bool = False
    finished: bool = False
    outbox: dict[int, bytes] = dataclasses.field(default_factory=dict)
    """Its messages of the last rounds, by round."""
    recipients: list[str] = dataclasses.field(default_factory=list)
    """Who gets the message of this round."""
    gradients: int = 0
    scores: dict[str, float] = dataclasses.field(default_factory=dict)
    look: int = 0
    """The search in which its neighbours were found, where they are found again and again."""
    joined: list[str] = dataclasses.field(default_factory=list)
    """The neighbours that were none before that search."""
    whole: bytes = b""
    """What these get in the first round after it: all that the others know of this peer."""


class PeerRecord:
    """A peer but for its rounds. `data` is a federation of one; `folder` is this peer's own. With
    `found` it has trained alone and found its neighbours itself.
    """

    def __init__(
        self,
        plan: Plan,
        name: str,
        number: int,
        neighbours: Collection[Neighbour],
        data: Federation | Worker,
        folder: Path,
        *,
        found: Found | None = None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        if not plan.peers:
            raise InvalidInput(
                f"the method is {plan.method.name!r}, which needs a hub; peers run dfedu or"
                " graph-proj."
            )
        self.plan, self.name, self.number, self.folder, self.say = plan, name, number, folder, say
        self.neighbours = self._checked(neighbours)
        self.looks = looks(plan)
        self.worker = data if isinstance(data, Worker) else Worker(plan, number, data)
        self.method, self.largest = self.worker.method, self.worker.largest_up
        self.goes_on = plan.rules.on_missing == "go-on"
        self.staleness = plan.rules.staleness if self.goes_on else 0
        self.remembered = KEPT_ROUNDS + self.staleness
        """For how many rounds messages are kept."""
        self._looked, self.lookout = 0.0, Lookout(folder)
        with self.worker.precision():
            message = self.worker.first_message()
            known = message if self.goes_on else ()
            begun = found or Found(self.worker.client, Bill(plan.size, folder=folder), 0)
            one = NeighbourState(self.worker.first_public, known, round=begun.t - 1)
            states = dict.fromkeys(self.neighbours, one)
            self.kept = PeerKept(begun.state, message, states, begun.ledger, begun.t)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidInput(
                    f"the folder {str(folder)!r} cannot be made: {error.strerror or error}."
                ) from None
            if (folder / FILE).is_file():
                kept = disk.load(folder / FILE, self.kept, self._whose)
                there = {n: kept.neighbours[n] for n in self.neighbours}  # in the order given
                self.kept = dataclasses.replace(kept, neighbours=there)

    def _checked(self, neighbours: Collection[Neighbour]) -> dict[str, Neighbour]:
        found = {n.name: n for n in neighbours}
        if len(found) != len(neighbours) or self.name in found:
            raise InvalidInput("a neighbour is named twice, or is this peer itself.")
        numbers = [self.number, *(n.number for n in neighbours)]
        for n in neighbours:
            if not 0 <= n.number < self.plan.size or numbers.count(n.number) > 1:
                raise InvalidInput(
                    f"neighbour {n.name!r} has the number {n.number}, but must have one of its own"
                    f" from 0 to {self.plan.size - 1}."
                )
            if not 0 < n.weight < float("inf"):
                raise InvalidInput(
                    f"neighbour {n.name!r} has the weight {n.weight}, but it must be a number > 0."
                )
        return found

    @property
    def t(self) -> int:
        """The round that this peer is in."""
        return self.kept.t

    @property
    def begun(self) -> bool:
        """Whether the local work of this round is done."""
        return self.kept.begun

    @property
    def finished(self) -> bool:
        return self.kept.finished

    @property
    def outbox(self) -> dict[int, bytes]:
        return self.kept.outbox

    @property
    def recipients(self) -> list[str]:
        return self.kept.recipients

    @property
    def ledger(self) -> Bill:
        return self.kept.ledger

    @property
    def states(self) -> dict[str, NeighbourState]:
        """What this peer knows of its neighbours."""
        return self.kept.neighbours

    @property
    def done(self) -> bool:
        return self.t >= self.plan.exchanges

    @property
    def until(self) -> int:
        """The round before which neighbours are looked for again, or that after the last."""
        later = self.looks[self.kept.look + 1 :]
        return later[0].exchange if later else self.plan.exchanges

    @property
    def so_far(self) -> Found:
        return Found(self.kept.state, self.kept.ledger, self.t)

    @property
    def first(self) -> int:
        """The round in which new neighbours get whole messages; −1 where all begin alike."""
        return self.looks[self.kept.look].exchange if self.kept.look else -1

    def letter(self, name: str, t: int) -> bytes:
        """The message of round t for a neighbour."""
        whole = self.kept.whole if t == self.first and name in self.kept.joined else b""
        return whole or self.outbox[t]

    def awaited(self, name: str) -> bool:
        """Whether a neighbour counts in this round."""
        return self.states[name].counts(self.t)

    @property
    def missing(self) -> list[str]:
        """The neighbours that count and whose message of this round is not there."""
        there = {name for name, state in self.states.items() if self.t in state.chain}
        return [name for name in self.states if self.awaited(name) and name not in there]

    def wants(self, name: str) -> int:
        """The round of the first message of a neighbour that is of use here."""
        return self.states[name].wants(self.t, any_order=self.worker.up.passes)

    def reject(self, name: str) -> None:
        """Count a message of a neighbour that cannot be used."""
        if name in self.states:
            self._know(name, self.states[name].rejects())

    def _know(self, name: str, state: NeighbourState) -> None:
        """Until something is kept, this is not on disk."""
        self.kept = dataclasses.replace(self.kept, neighbours=self.states | {name: state})

    # -- other neighbours --------------------------------------------------------------------------

    def join(self, look: int, neighbours: Collection[Neighbour], ledger: Bill) -> None:
        """Go on with those that were found in another search, for which `ledger` has the bill.

        Who was a neighbour before and has sent all goes on as it was. From the others, which know
        nothing of this peer's last messages, a whole message is expected in the next round.
        """
        assert self.t == self.until
        new, t, states = self._checked(neighbours), self.t, {}
        known = self.worker.first_message() if self.goes_on else ()
        fresh = NeighbourState(self.worker.first_public, known, t - 1, active=False, entry=t)
        for name in new:
            old = self.states.get(name)
            goes_on = old is not None and old.active and old.round == t - 1
            states[name] = old if old is not None and goes_on else fresh
        joined = [name for name, state in states.items() if state is fresh]
        rest = {"look": look, "joined": joined, "whole": b"", "outbox": {}}
        self._keep(neighbours=states, ledger=ledger, **rest)
        self.neighbours = new

    # -- coming back -------------------------------------------------------------------------------

    def position(self, name: str) -> dict[str, Any]:
        """What this neighbour, and no other, may know before it talks to this peer."""
        state = self.states[name]
        return {
            "wire": WIRE,
            "plan": self.plan.fingerprint,
            "number": self.number,
            "weight": self.neighbours[name].weight,
            "round": self.t,
            "oldest": min(self.outbox, default=self.t),
            "counts": self.awaited(name),
            "entry": state.entry if state.entry > self.t else -1,
        }

    def check_position(self, name: str, position: dict[str, Any]) -> None:
        """Refuse a neighbour that has another plan, number or weight than this peer has for it."""
        mine = self.neighbours[name]
        check_wire(position.get("wire", 1))
        if position.get("plan") not in (whole := self.plan.fingerprint, whole[:SHORT]):
            raise Rejected(f"{name} has another plan; all must have the same.")
        if position.get("number") != mine.number:
            raise Rejected(
                f"{name} says its number is {shown(position.get('number'))}, but here it is"
                f" {mine.number}."
            )
        if position.get("weight") != mine.weight:
            raise Rejected(
                f"{name} gives the edge the weight {shown(position.get('weight'))}, but here it is"
                f" {mine.weight}; an edge must have one weight."
            )

    def earliest(self, name: str) -> int:
        """The first round from which a neighbour may count again: later each time that it was to
        come back and did not.
        """
        state = self.states[name]
        return max(self.t + 2 + (2 ** min(state.failed, 6) if state.failed else 0), state.entry)

    def agree(self, name: str, entry: int) -> int:
        """A neighbour asks to count again from round `entry` on: the round that is agreed on, later
        if both asked at once. Raises Rejected when that round has begun here, or is too far off.
        """
        state = self.states[name]
        if (
            entry <= self.t
            or entry >= self.until
            or entry > self.t + FARTHEST
            or (state.failed and entry < self.earliest(name))
        ):
            raise Rejected(
                f"{name} asks to count again from round {entry} on, but here round {self.t} has"
                " begun."
            )
        settled = max(entry, state.entry)
        self.expect(name, settled)
        return settled

    def expect(self, name: str, entry: int) -> None:
        """This edge counts from round `entry` on, which has not begun here; −1 for not at all."""
        assert entry == -1 or entry > self.t
        state = self.states[name]
        if (state.active, state.entry) != (False, entry):
            self._keep(neighbours=self.states | {name: state.begins(False, entry)})

    def jump(
        self, entry: int, agreed: Collection[str], why: str = "too far behind the others"
    ) -> None:
        """Go on from round `entry`, without the rounds in between, with the neighbours that agreed
        to it.
        """
        if entry <= self.t:
            raise InvalidInput(f"cannot jump from round {self.t} to round {entry}.")
        states = {}
        for name, state in self.states.items():
            later = state.entry if state.entry > entry else -1
            states[name] = state.begins(False, entry if name in agreed else later)
        was = self.t
        self._keep(neighbours=states, t=entry, entry=entry, begun=False, recipients=[], outbox={})
        self.say(
            f"round {was}: {why}; going on with {', '.join(sorted(agreed))} from round {entry}."
        )

    # -- folder ------------------------------------------------------------------------------------

    @property
    def _whose(self) -> dict[str, str]:
        return {"plan": self.plan.fingerprint, "peer": self.name}

    @staticmethod
    def look_on_disk(folder: Path, whose: dict[str, str]) -> int | None:
        """The search whose neighbours are on disk; None where nothing is."""
        path = folder / FILE
        return int(disk.peek(path, whose)["look"]) if path.is_file() else None

    def _keep(self, **changes: Any) -> None:
        """On disk first: what cannot be written did not happen."""
        new = dataclasses.replace(self.kept, **changes)
        disk.save(self.folder / FILE, new, self._whose)
        self.kept = new
        self.look()

    def look(self, *, now: bool = False) -> None:
        """Write what is for looking at; nothing is read back from it."""
        if now or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self.lookout.look(self.ledger, now=now)
            write_json(self.folder / "status.json", self.status())

    def status(self) -> dict[str, Any]:
        """What `coterie status` shows."""
        return {
            "name": self.plan.name,
            "peer": self.name,
            "method": self.method.name,
            "metric": metric_of(self.plan.training.metric, self.plan.shape.task).told(),
            "round": self.t,
            "rounds": self.plan.exchanges,
            "finished": self.finished,
            "up": self.ledger.up,
            "down": self.ledger.down,
            "scores": self.kept.scores,
            "neighbours": [
                {
                    "name": name,
                    "active": state.active,
                    "round": state.last,
                    "entry": state.entry,
                    "rejected": state.rejected,
                }
                for name, state in self.states.items()
            ],
            "written": time.time(),
        }
