"""Drives a hub over Flower's grid: asks, takes answers, asks again, waits or goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from coterie.core.errors import InvalidInput
from coterie.deploy.flower.library import Grid, Message
from coterie.deploy.flower.records import packed, unpacked
from coterie.deploy.log import GaveUp
from coterie.deploy.messages import Refusal, Rejected, Reply, Request, one_line
from coterie.deploy.set_back import remedy

if TYPE_CHECKING:
    from coterie.deploy.hub import Hub


POLL = 0.25
LOOK = 2.0
"""Seconds between looks at who is there."""
AGAIN = 5.0
"""Seconds before somebody whose answer could not be used is asked again."""


class Asked:
    """A message that is under way."""

    def __init__(self, k: int, to: tuple[int, str], ttl: float) -> None:
        self.k, self.to, self.until = k, to, time.monotonic() + ttl


class Conductor:
    """Drives a Hub over Flower's grid.

    A node is the client under whose name its key was registered (`flwr supernode register KEY
    --name ward-a`); nothing that a node says of itself counts.
    """

    def __init__(
        self,
        grid: Grid,
        hub: Hub,
        say: Callable[[str], None],
        revoked: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.grid, self.hub, self.say, self.revoked = grid, hub, say, revoked
        if isinstance(hub.plan.clients, int):
            raise InvalidInput(
                "clients is a number, but a hub knows its clients by name: list them."
            )
        self.names = hub.plan.clients
        self.present: dict[int, tuple[int, str]] = {}
        """Client → Flower's node, and since when it is there."""
        self.rules = hub.plan.rules
        self.asked: dict[str, Asked] = {}
        self.pause: dict[int, float] = {}
        """Client → when it may be asked again after an answer that could not be used."""
        self.looked = 0.0
        self.refused: frozenset[str] = frozenset()
        """Who is not asked, and not waited for."""

    def run(self) -> None:
        hub = self.hub
        if hub.finished:
            self.say(f"the run {hub.plan.name!r} is finished already, after {hub.t} rounds.")
            return
        if hub.t:
            self.say(f"going on from round {hub.t} of {hub.plan.exchanges}.")
        while not hub.done:
            what = hub.title
            self._gather(hub.requests, what)
            before = hub.ledger.up, hub.ledger.down
            came, missing = len(hub.replies), [self.names[k] for k in hub.missing]
            if self.refused.issuperset(self.names):
                raise GaveUp(f"{what}: nobody is left who may take part.")
            hub.close()
            without = f", without {', '.join(missing)}" if missing else ""
            up, down = hub.ledger.up - before[0], hub.ledger.down - before[1]
            done = f"{hub.t} of {hub.plan.exchanges} done"
            self.say(f"{what}: {came} clients{without}; {up} bytes up, {down} down ({done}).")
        self._gather(hub.farewells, "the farewell")
        missing = [self.names[k] for k in hub.missing]
        hub.end()
        self.say(
            "finished."
            if not missing
            else f"finished; {', '.join(missing)} did not hear the last word."
        )

    def _gather(self, requests: Callable[[], dict[int, Request]], what: str) -> None:
        """Ask whoever has not answered, until all have, or the rules say that it is enough."""
        began, warned = time.monotonic(), 0.0
        self.asked.clear()
        self.pause.clear()
        self._look()
        while True:
            self._send(requests)
            self._pull(what)
            waiting = self._missing()
            if not waiting:
                break
            waited = time.monotonic() - began
            if (
                self.rules.on_missing == "go-on"
                and waited >= self.rules.patience
                and (self.hub.done or self.hub.enough)
            ):
                break
            if waited >= self.rules.give_up:
                raise GaveUp(
                    f"{what}: no usable answer from {self._names(waiting)} in {waited:.0f} s; the"
                    " run is saved and goes on when started again."
                )
            if waited - warned >= self.rules.patience:
                warned = waited
                self.say(f"{what}: still waiting for {self._names(waiting)} after {waited:.0f} s.")
            time.sleep(POLL)
            if time.monotonic() - self.looked >= LOOK:
                self._look()

    def _look(self) -> None:
        self.looked, found = time.monotonic(), dict[int, tuple[int, str]]()
        revoked = self.revoked() & set(self.names)
        for name in sorted(revoked - self.refused):
            self.say(f"{self.hub.title}: {name} is revoked: it is not asked and does not count.")
        self.refused = revoked
        for node in self.grid.get_nodes():
            if node.name in self.names and node.name not in revoked:
                found[self.names.index(node.name)] = (node.node_id, str(node.last_activated_at))
        self.present = found
        for ident, asked in list(self.asked.items()):
            # One that has come back since it was asked does not know of it any more.
            if self.present.get(asked.k, asked.to) != asked.to:
                del self.asked[ident]

    def _missing(self) -> list[int]:
        return [k for k in self.hub.missing if self.names[k] not in self.refused]

    def _names(self, clients: Iterable[int]) -> str:
        return ", ".join(
            self.names[k] if k in self.present else f"{self.names[k]} (not connected)"
            for k in clients
        )

    def _send(self, requests: Callable[[], dict[int, Request]]) -> None:
        now = time.monotonic()
        for ident, asked in list(self.asked.items()):
            if now > asked.until:
                del self.asked[ident]
        busy = {asked.k for asked in self.asked.values()}
        due = [
            k
            for k in self.hub.missing
            if k in self.present and k not in busy and now >= self.pause.get(k, 0.0)
        ]
        if not due:
            return
        wanted = requests()
        for k in due:
            # The time to live is Flower's: a node that was away does not work on what nobody waits
            # for any more.
            to = self.present[k]
            message = Message(
                packed(wanted[k]),
                to[0],
                "train",
                ttl=self.rules.patience,
                group_id=str(self.hub.stage),
            )
            for ident in self.grid.push_messages([message]):
                if ident:
                    self.asked[ident] = Asked(k, to, self.rules.patience)

    def _pull(self, what: str) -> None:
        if not self.asked:
            return
        for message in self.grid.pull_messages(list(self.asked)):
            asked = self.asked.pop(message.metadata.reply_to_message_id, None)
            refused = asked is None or self.names[asked.k] in self.refused
            if asked is not None and not refused and asked.k not in self.hub.replies:
                self._take(asked.k, message, what)

    def _take(self, k: int, message: Message, what: str) -> None:
        name = self.names[k]
        if message.has_error():
            self.pause[k] = time.monotonic() + AGAIN
            self.say(f"{what}: no answer from {name}: {_flower_error(message)}; it is asked again.")
            return
        try:
            try:
                reply = unpacked(Reply, message.content)
            except Rejected:
                self.hub.reject(k)
                raise
            if not self.hub.take(k, reply):
                self.say(f"{what}: {name} has lost track and gets a whole copy.")
        except Refusal as error:
            self.pause[k] = time.monotonic() + AGAIN
            ahead = error.done is not None and error.done >= self.hub.t
            self.say(
                remedy(self.hub, name, error.done or 0)
                if ahead
                else f"{what}: {name} cannot answer: {error}"
            )
        except Rejected as error:
            self.pause[k] = time.monotonic() + AGAIN
            self.say(
                f"{what}: rejected a message of {name} ({self.hub.clients[k].rejected} so far):"
                f" {error}"
            )


def _flower_error(message: Message) -> str:
    known = {
        3: "its answer did not come in time",
        4: "its answer did not come in time",
        5: "its node is away",
    }
    return known.get(
        message.error.code,
        f"Flower says {one_line(message.error.reason or 'nothing')} (code {message.error.code})",
    )
