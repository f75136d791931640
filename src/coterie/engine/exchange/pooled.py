"""Pooled: one learner with everybody's data in one place. A reference, not a federation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel.link import Sent
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector
from coterie.engine.exchange.base import Accounts, Bill, Closed, Exchange, Heard, Offer, Turn
from coterie.engine.setting import ClientState, HubState, Log, Round, State, Who


class Pooled(Exchange):
    """The learner is client 0 of the data, which the simulator has widened to all rows."""

    kind = "pooled"
    pooled = True

    def open_hub(self, now: Round, template: Vector) -> HubState:
        # A copy, since rounds reuse the memory of what they are given and the template must stay.
        return HubState(jax.tree.map(jnp.copy, now.method.hub_init(template)))

    def hear(
        self, now: Round, hub: HubState, broadcast: Sent | None, client: Scalar, state: ClientState
    ) -> Heard:
        return Heard(hub.method_state, state.down, 0)

    def close(
        self, now: Round, state: State, broadcast: Sent | None, turns: Turn, who: Who
    ) -> Closed:
        method_state = jax.tree.map(lambda leaf: leaf[0], turns.message)
        return Closed(
            HubState(method_state), turns.state, turns.down, turns.finite, jnp.zeros(1, bool)
        )

    def bill(self, log: Log, t: int, accounts: Accounts, method: Any) -> Bill:
        """A pooled step looks at as many samples as one step of each of these."""
        everyone, members = np.arange(len(accounts.data_bytes)), accounts.members(t)
        members = members[: method.batches(len(members))]
        gradients = np.where(np.isin(everyone, members), log.gradients, 0)
        return Bill(everyone, accounts.data_bytes if t == 0 else 0, 0, gradients)

    def newcomer(
        self, now: Round, offer: Offer, client: Scalar, weights: Array, rounds: Scalar
    ) -> tuple[PyTree, PyTree]:
        """There is one model for all: a newcomer takes it."""
        return offer.received, offer.method_state
