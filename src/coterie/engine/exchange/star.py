"""Star: the hub broadcasts, the sampled clients send, the hub merges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from coterie.channel import link
from coterie.channel.codec import size_of
from coterie.channel.link import LinkKind, Outgoing, Sent
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector, all_finite
from coterie.engine.exchange.base import (
    Accounts,
    Bill,
    Closed,
    Exchange,
    Heard,
    Offer,
    Turn,
    integers,
    zeros,
)
from coterie.engine.mesh import everywhere
from coterie.engine.setting import ClientState, HubState, Log, Round, State, Who
from coterie.methods.star import Cohort


class Star(Exchange):
    kind = "star"
    sends = True

    def up(self, now: Round) -> LinkKind:
        return link.star_up(now.channel)

    def down(self, now: Round) -> LinkKind:
        return link.star_down(now.channel)

    def open_hub(self, now: Round, template: Vector) -> HubState:
        # A copy, since rounds reuse the memory of what they are given and the template must stay.
        method_state = jax.tree.map(jnp.copy, now.method.hub_init(template))
        if now.method.addressed:
            return HubState(method_state)
        says = now.method.broadcast(method_state, 0)
        return HubState(method_state, link.open_link(self.down(now), now.channel.downward(), says))

    def open_client(self, now: Round, hub: HubState, template: Vector) -> ClientState:
        method_state = now.method.client_init(template)
        up, down = self.up(now), self.down(now)
        if up.passes and down.passes:
            return ClientState(method_state)
        received = now.method.broadcast(hub.method_state, 0)
        # Copies are of updates, and the first update is taken to be nothing: only shapes count.
        message = zeros(self.message_shapes(now, received, method_state))
        addressed = now.method.addressed
        return ClientState(
            method_state,
            link.open_link(up, now.channel, message),
            link.open_link(down, now.channel.downward(), received) if addressed else (),
        )

    @staticmethod
    def message_shapes(now: Round, received: PyTree, method_state: PyTree) -> PyTree:
        """The shapes of what a client sends. `now.setting.data` may be shapes alone."""
        first = now.setting.data.first
        client = 0 if first is None else first

        def local(data: Any) -> PyTree:
            setting = now.setting._replace(data=data, seed=0)
            there = now._replace(setting=setting, t=0)
            return now.method.local(received, method_state, there.objective(client)).message

        return jax.eval_shape(local, now.setting.data)

    def speak(self, now: Round, hub: HubState) -> Sent | None:
        kind = self.down(now)
        if now.method.addressed or kind.passes:
            return None
        out = Outgoing(
            now.method.broadcast(hub.method_state, 0), key=now.broadcast_key(), t=now.nth
        )
        return link.transmit(kind, now.channel.downward(), hub.link, out)

    def hear(
        self, now: Round, hub: HubState, broadcast: Sent | None, client: Scalar, state: ClientState
    ) -> Heard:
        if broadcast is not None:
            return Heard(broadcast.arrived, state.down, broadcast.bytes)
        received = now.method.broadcast(hub.method_state, client)
        if not now.method.addressed or not now.channel.down:
            return Heard(received, state.down, size_of(received))
        out = Outgoing(received, key=now.down_key(client), t=now.nth)
        sent = link.transmit(self.down(now), now.channel.downward(), state.down, out)
        return Heard(sent.arrived, sent.link, sent.bytes)

    def reference(self, now: Round, received: PyTree, message: PyTree) -> PyTree:
        return now.method.reference(received, message)

    def close(
        self, now: Round, state: State, broadcast: Sent | None, turns: Turn, who: Who
    ) -> Closed:
        sent, members = everywhere(now.spec.mesh, turns.message), who.members
        if who.senders is not None:
            sent = jax.tree.map(lambda m: m[who.senders], sent)
        data = now.setting.data
        by_samples = now.method.by_samples
        mine = data.index_of(members)
        size = data.size[mine].astype(data.x.dtype) if by_samples else None
        weights = jnp.ones(len(members), data.x.dtype) if size is None else size
        sent = self.forward(now, state.hub, broadcast, sent)
        unsent = jnp.zeros(len(who.ids), bool)
        if (threat := now.setting.threat) is not None:
            sent = threat.attack.apply(sent, threat.malicious[members], now.setting.seed, now.t)
            if who.counted is None:
                broken = ~jax.vmap(all_finite)(sent)
                unsent = broken if who.senders is None else unsent.at[who.senders].set(broken)
            else:
                sent = jax.tree.map(lambda m: m[who.counted], sent)
                members, weights = members[who.counted], weights[who.counted]
        hub = self.merge(now, state.hub, broadcast, sent, Cohort(members, weights))
        return Closed(hub, turns.state, turns.down, turns.finite, unsent)

    def forward(
        self, now: Round, hub: HubState, broadcast: Sent | None, messages: PyTree
    ) -> PyTree:
        """Messages, stacked, as if their clients had begun from what the hub has."""
        if broadcast is None:
            return messages
        return ahead(
            now.method, now.method.broadcast(hub.method_state, 0), broadcast.arrived, messages
        )

    def merge(
        self, now: Round, hub: HubState, broadcast: Sent | None, messages: PyTree, cohort: Cohort
    ) -> HubState:
        """The hub's turn: messages (see `forward`), stacked in the order of `cohort`, become its
        new state.
        """
        link_down = hub.link if broadcast is None else broadcast.link
        if not len(cohort.ids):
            return HubState(hub.method_state, link_down)
        return HubState(now.method.merge(hub.method_state, messages, cohort, now.t), link_down)

    def bill(self, log: Log, t: int, accounts: Accounts, method: Any) -> Bill:
        up, down = integers(log.up), integers(log.down)
        if accounts.whole_copy and not method.addressed:
            down = accounts.broadcasts.bill(log.ids, int(down[0]), accounts.whole_copy)
        return Bill(log.ids, up, down, log.gradients)

    def newcomer(
        self, now: Round, offer: Offer, client: Scalar, weights: Array, rounds: Scalar
    ) -> tuple[PyTree, PyTree]:
        method, received, method_state = now.method, offer.received, offer.method_state
        receives = lambda sent: method.welcome(offer.hub, received, sent)
        first = jax.eval_shape(lambda: self.alone(now, received, client, method_state, 0).message)

        def one(i: Scalar, state: Any) -> Any:
            method_state, sent = state
            step = self.alone(now, receives(sent), client, method_state, i)
            return step.state, jax.tree.map(lambda a, b: a + b, sent, step.message)

        method_state, sent = jax.lax.fori_loop(0, rounds, one, (method_state, zeros(first)))
        return receives(sent), method_state


def ahead(method: Any, at_hub: PyTree, arrived: PyTree, messages: PyTree) -> PyTree:
    """With a compressed downlink: messages as if their clients had begun from what the hub has, and
    not from what reached them of it.

    Else their mean would take the place of what the hub has, and what had not reached the clients
    yet would be forgotten instead of sent later. `messages` are stacked.
    """
    if not method.begins_from_received:
        return messages
    one = jax.tree.map(lambda leaf: leaf[0], messages)
    there, here = method.reference(at_hub, one), method.reference(arrived, one)
    gap = jax.tree.map(lambda a, b: a - b, there, here)
    return jax.tree.map(lambda m, g: m + g, messages, gap)
