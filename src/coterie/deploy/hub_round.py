"""What a hub says in a round, and what it makes of the answers: in a star, and between neighbours.

engine/exchange says what that is; here it meets the wire.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import jax.numpy as jnp

from coterie.channel import ends
from coterie.channel.codec import PlainCodec
from coterie.channel.link import Outgoing, Sent
from coterie.core.errors import Diverged
from coterie.core.randomness import down_key
from coterie.core.typing import PyTree
from coterie.core.vector import all_finite
from coterie.coupling.graph import Graph
from coterie.deploy import messages, programs
from coterie.deploy.hub_aside import Aside, puts_aside
from coterie.deploy.hub_kept import Arrived, Broadcast, ClientRecord, HubKept, Pull
from coterie.deploy.messages import Request
from coterie.deploy.programs import STAR, stacked
from coterie.deploy.setup import Setup
from coterie.deploy.weights import Weights
from coterie.engine.setting import ClientState, HubState
from coterie.methods.star import Cohort


class HubRound(Protocol):
    """A hub's part of a round."""

    def request(self, kept: HubKept, k: int, basic: Request) -> Request:
        """What client k is asked: `basic`, and what the hub says to it."""
        ...

    def reference(self, kept: HubKept, k: int) -> PyTree:
        """What hub and client k know that is near the client's message."""
        ...

    def lost(self, record: ClientRecord) -> ClientRecord:
        """A client has lost track of what it received."""
        ...

    def keep(self, k: int, one: Arrived) -> Arrived:
        """A message that has come, as it is kept until the round is closed."""
        ...

    def close(self, kept: HubKept, arrived: dict[int, Arrived]) -> HubKept:
        """The hub after the round: `arrived` are the messages of those that were sampled, in order.

        Raises Diverged.
        """
        ...

    def down(self, kept: HubKept, k: int, request_bytes: int) -> int:
        """What client k is billed for in the round; `request_bytes` is the size of its
        request."""
        ...


class Spoken(NamedTuple):
    """What the hub of a star sends to all in a round."""

    round: int
    sent: Sent
    wire: bytes
    whole: bytes


class StarRound:
    """The hub of a star says something to all (or to each), and merges what they answer."""

    def __init__(self, setup: Setup, say: Callable[[str], None], folder: Path) -> None:
        self.setup, self.weights = setup, Weights(setup.plan, say)
        self._spoken: Spoken | None = None
        self._plain: tuple[int, bytes] = (-1, b"")
        """What all are told without compression, and the round."""
        self.aside = Aside(folder, setup.message) if puts_aside(setup) else None
        if self.aside is not None:
            self.aside.clear()

    def spoken(self, kept: HubKept) -> Spoken | None:
        """What is sent to all, once a round; None when nothing is compressed."""
        if kept.hub.link == ():
            return None
        if self._spoken is None or self._spoken.round != kept.round:
            setup = self.setup
            sent = programs.speak(setup.spec, setup.setting, setup.plan.at(kept.round), kept.hub)
            wire = ends.encoded(setup.down, setup.channel.downward(), sent)
            self._spoken = Spoken(kept.round, sent, wire, ends.whole_copy(sent.link.public))
        return self._spoken

    def received(self, kept: HubKept, k: int) -> PyTree:
        """What client k receives."""
        spoken, now = self.spoken(kept), self.setup.now(kept.round)
        sent = None if spoken is None else spoken.sent
        return STAR.hear(now, kept.hub, sent, k, ClientState(())).received

    def request(self, kept: HubKept, k: int, basic: Request) -> Request:
        spoken, t, record = self.spoken(kept), kept.round, kept.clients[k]
        if spoken is None:
            return dataclasses.replace(basic, first=t, frames=(self._plainly(kept, k),))
        frames = (
            *(b.wire for b in kept.broadcasts if b.round > record.last_broadcast),
            spoken.wire,
        )
        behind = record.last_broadcast + 1
        missing = behind < t and (not kept.broadcasts or kept.broadcasts[0].round > behind)
        if record.lost or missing or messages.total(frames) > len(spoken.whole):
            return dataclasses.replace(basic, first=t, whole=True, frames=(spoken.whole,))
        return dataclasses.replace(basic, first=t - len(frames) + 1, frames=frames)

    def _plainly(self, kept: HubKept, k: int) -> bytes:
        if self.setup.method.addressed:
            return PlainCodec().encode(self.received(kept, k))
        if self._plain[0] != kept.round:
            self._plain = (kept.round, PlainCodec().encode(self.received(kept, k)))
        return self._plain[1]

    def reference(self, kept: HubKept, k: int) -> PyTree:
        message = ends.zeros(self.setup.message)
        return self.setup.method.reference(self.received(kept, k), message)

    def lost(self, record: ClientRecord) -> ClientRecord:
        return dataclasses.replace(record, lost=True, pull=None)

    def keep(self, k: int, one: Arrived) -> Arrived:
        if self.aside is None:
            return one
        self.aside.put(k, one.message)
        return Arrived((), one.public)

    def close(self, kept: HubKept, arrived: dict[int, Arrived]) -> HubKept:
        setup, spoken, clients = self.setup, self.spoken(kept), list(kept.clients)
        sent, broadcasts = None, kept.broadcasts
        if spoken is not None:
            sent = spoken.sent._replace(bytes=None, payload=None)
            broadcasts = self._needed(kept, spoken)
        hub = HubState(kept.hub.method_state, kept.hub.link if sent is None else sent.link)
        for k, one in arrived.items():
            clients[k] = dataclasses.replace(clients[k], up=one.public, seen=kept.round)
        if arrived:
            weights = [1.0] * len(arrived)
            if setup.method.by_samples:
                claims = {k: one.samples for k, one in enumerate(clients) if one.samples}
                weights = self.weights.of(arrived.keys(), claims)
            cohort = Cohort(jnp.array([*arrived]), jnp.array(weights, setup.dtype))
            at, now = setup.plan.at(kept.round), (setup.spec, setup.setting)
            if self.aside is None:
                came = stacked([one.message for one in arrived.values()]), cohort
                hub = programs.merge(*now, at, kept.hub, sent, came)
            else:
                mean = self.aside.merged(setup.method, [*arrived], cohort.weights)
                hub = programs.adopt(*now, at, kept.hub, sent, mean)
                self.aside.clear()
            if not bool(all_finite(hub.method_state)):
                raise Diverged(setup.method.title, kept.round + 1, [])
        return dataclasses.replace(kept, hub=hub, clients=clients, broadcasts=broadcasts)

    def _needed(self, kept: HubKept, spoken: Spoken) -> list[Broadcast]:
        """Without broadcasts that everybody has, or that are longer together than a whole copy."""
        oldest = min(record.last_broadcast for record in kept.clients)
        needed = [
            b for b in (*kept.broadcasts, Broadcast(kept.round, spoken.wire)) if b.round > oldest
        ]
        while sum(len(b.wire) for b in needed) > len(spoken.whole):
            needed.pop(0)
        return needed

    def down(self, kept: HubKept, k: int, request_bytes: int) -> int:
        return request_bytes


class GraphRound:
    """A hub between neighbours works out how they pull each client; the client hears of it with its
    next request.
    """

    def __init__(self, setup: Setup, graph: Graph, fresh: Callable[[], ClientRecord]) -> None:
        self.setup, self.graph, self.fresh = setup, graph, fresh

    def request(self, kept: HubKept, k: int, basic: Request) -> Request:
        pull = kept.clients[k].pull
        if pull is None:
            return basic
        scale = None if self.setup.down.passes else pull.scale
        return dataclasses.replace(basic, first=pull.round, scale=scale, frames=(pull.wire,))

    def reference(self, kept: HubKept, k: int) -> PyTree:
        return None

    def lost(self, record: ClientRecord) -> ClientRecord:
        """It begins anew."""
        fresh = self.fresh()
        return dataclasses.replace(
            record,
            up=fresh.up,
            down=fresh.down,
            message=fresh.message,
            pull=None,
            seen=-1,
            lost=True,
        )

    def keep(self, k: int, one: Arrived) -> Arrived:
        return one

    def close(self, kept: HubKept, arrived: dict[int, Arrived]) -> HubKept:
        clients = list(kept.clients)
        pool = {k: one.message for k, one in arrived.items()}
        if self.setup.method.hears_all:
            pool = {l: pool.get(l, record.message) for l, record in enumerate(clients)}
        for k, one in arrived.items():
            record = dataclasses.replace(clients[k], up=one.public, seen=kept.round)
            clients[k] = self._pulled(k, record, pool, kept.round)
        return dataclasses.replace(kept, clients=clients)

    def _pulled(
        self, k: int, record: ClientRecord, pool: dict[int, PyTree], t: int
    ) -> ClientRecord:
        """Client k after its neighbours' pull, which is ready to be sent to it."""
        setup, own, at = self.setup, pool[k], self.setup.plan.at(t)
        edges = zip(*self.graph.neighbours(k), strict=True)
        near = [(pool[l], w) for l, w in edges if l in pool] or [(own, 0.0)]
        weights = jnp.array([w for _, w in near], setup.dtype)
        weights = programs.effective(setup.method, weights, at)
        pull = programs.pull(setup.method, own, stacked([m for m, _ in near]), weights)
        total = weights.sum()
        out = Outgoing(pull)
        if not setup.down.passes:
            key = down_key(setup.seed, at, k)
            out = Outgoing(pull, setup.method.own_pull(own), key, t, scale=total)
        sender = ends.Sender(setup.down, setup.channel.downward(), pull, record.down)
        whole = record.lost and not setup.down.passes
        wire, pull = sender.send_whole(out) if whole else sender.send(out)
        up, keeps = record.up, setup.method.hears_all
        if up != ():
            up = programs.follow(setup.spec, setup.setting, at, up, pull, own)
        return dataclasses.replace(
            record,
            up=up,
            down=sender.link,
            message=programs.moved(setup.method, own, pull, at) if keeps else own,
            pull=Pull(t, wire, float(total)),
            lost=record.lost and not whole,
        )

    def down(self, kept: HubKept, k: int, request_bytes: int) -> int:
        """A pull goes down with the next request, but belongs to this round."""
        pull = kept.clients[k].pull
        return len(pull.wire) if pull is not None and pull.round == kept.round else 0
