"""What an exchange is: the round of one kind of method, written for one client and for the hub.

A round is: the hub speaks; every client that takes part has its turn (hear → local → send); the
round is closed (the hub merges, or neighbours pull). The simulator maps the client's turn over
stacked clients inside one compiled program; a deployed client calls the very same turn alone, with
what it received over a wire, and encodes the payload that the turn gives.

A method with no exchange (`Alone`) has the simplest of all rounds, so the others build on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import link
from coterie.channel.link import LinkKind, Outgoing, Sent
from coterie.core.ledger import BroadcastAccount
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector, all_finite
from coterie.engine.setting import ClientState, HubState, Log, Round, State, Who


class Heard(NamedTuple):
    """What a client has received from the hub at the beginning of a round."""

    received: PyTree
    down: PyTree = ()
    """The client's link down afterwards."""
    bytes: Scalar = 0


class Turn(NamedTuple):
    """What one client's turn gives."""

    message: PyTree
    """As it arrives."""
    state: ClientState
    finite: Scalar
    gradients: Scalar
    up: Scalar
    down: Scalar
    sent: Sent | None = None
    """How the message went; a deployed client encodes it."""
    dropped: Scalar = False
    """Whether the client dropped out of the round by itself; a deployed client then sends nothing,
    and a message without bytes could not say so.
    """


class Closed(NamedTuple):
    """What closing a round gives: the state after it, bytes down, and what became of NaN."""

    hub: HubState
    rows: ClientState
    down: Array
    finite: Array
    """Whether each client's state is finite now."""
    unsent: Array
    """Whether each one's message was not finite and counts as not sent."""


class Offer(NamedTuple):
    """What the federation gives a newcomer: the hub's state, what all receive, the members'
    last messages (graph), and what every client begins with.
    """

    hub: PyTree
    received: PyTree
    messages: PyTree
    template: Vector
    method_state: PyTree


class Accounts(NamedTuple):
    """What a bill needs besides the log of a round."""

    broadcasts: BroadcastAccount
    whole_copy: int
    """Bytes that bring a client up to date that has received nothing, or nothing for long."""
    degrees: Any
    adjacency: Any
    members: Any
    """A function of t: who was sampled."""
    data_bytes: Any
    """What each client's training data takes, in the precision of the run."""
    edges: Any = None
    """The edges that rounds draw, where they do not take all of them."""
    joined: Any = None
    """Peers over public copies: the edges over which this round sends whole copies, because their
    ends were no neighbours before.
    """


class Bill(NamedTuple):
    """Who pays what for a round."""

    clients: Any
    up: Any
    down: Any
    gradients: Any


class Exchange:
    """A round without messages; the kinds of exchange override what they do differently."""

    kind = "alone"
    sends = False
    """Whether messages are sent at all."""
    pooled = False
    """Whether there is one learner with everybody's data."""

    # -- links -------------------------------------------------------------------------------------

    def up(self, now: Round) -> LinkKind:
        """How clients' messages use the channel."""
        return link.PASSES

    def down(self, now: Round) -> LinkKind:
        """How the hub's messages use the channel."""
        return link.PASSES

    # -- before the first round --------------------------------------------------------------------

    def open_hub(self, now: Round, template: Vector) -> HubState:
        """The hub before the first round; what it would broadcast then is known to all."""
        return HubState(())

    def open_client(self, now: Round, hub: HubState, template: Vector) -> ClientState:
        """What is kept for a client before the first round; all clients start alike."""
        return ClientState(now.method.client_init(template))

    # -- a round -----------------------------------------------------------------------------------

    def speak(self, now: Round, hub: HubState) -> Sent | None:
        """What the hub sends to all at once, over its link; None when each client gets something
        of its own, or nothing is compressed.
        """
        return None

    def hear(
        self, now: Round, hub: HubState, broadcast: Sent | None, client: Scalar, state: ClientState
    ) -> Heard:
        """What a client receives in this round (or would, when it is evaluated)."""
        return Heard((), state.down, 0)

    def turn(
        self, now: Round, client: Scalar, state: ClientState, heard: Heard, sending: Any = True
    ) -> Turn:
        """A client's local work, and its message on its way.

        A link is left alone when its client sends nothing.
        """
        step = now.method.local(heard.received, state.method_state, now.objective(client))
        kind = self.up(now)
        near = self.reference(now, heard.received, step.message)
        out = Outgoing(step.message, near, t=now.nth)
        if not kind.passes:
            out = out._replace(key=now.up_key(client))
        sent = link.transmit(kind, now.channel, state.up, out)
        real = sending & jnp.asarray(step.sent)
        keep = lambda new, old: jnp.where(real, new, old)
        arrived, up = sent.arrived, sent.link
        if not kind.passes:
            arrived = jax.tree.map(keep, arrived, step.message)
            up = jax.tree.map(keep, up, state.up)
        count = lambda n: jnp.asarray(n, jnp.int32)
        return Turn(
            arrived,
            ClientState(step.state, up, heard.down),
            all_finite((step.message, step.state)),
            count(step.gradients),
            count(jnp.where(real, sent.bytes, 0)),
            count(heard.bytes),
            sent,
            ~jnp.asarray(step.sent),
        )

    def reference(self, now: Round, received: PyTree, message: PyTree) -> PyTree:
        """What both ends know beforehand that is near the message."""
        return None

    def close(
        self, now: Round, state: State, broadcast: Sent | None, turns: Turn, who: Who
    ) -> Closed:
        """The end of a round: `turns` are stacked over `who.ids`."""
        return Closed(
            state.hub, turns.state, turns.down, turns.finite, jnp.zeros(len(who.ids), bool)
        )

    # -- around rounds -----------------------------------------------------------------------------

    def bill(self, log: Log, t: int, accounts: Accounts, method: Any) -> Bill:
        """What round t costs each client."""
        return Bill(log.ids, 0, 0, log.gradients)

    def last_messages(self, now: Round, rows: ClientState | None) -> PyTree:
        """Graph: what is known of clients that do not take part, stacked."""
        return ()

    def newcomer(
        self, now: Round, offer: Offer, client: Scalar, weights: Array, rounds: Scalar
    ) -> tuple[PyTree, PyTree]:
        """What a newcomer has received, and its method state, after so many rounds."""
        local = lambda i, state: self.alone(now, offer.received, client, state, i).state
        return offer.received, jax.lax.fori_loop(0, rounds, local, offer.method_state)

    @staticmethod
    def alone(now: Round, received: PyTree, client: Scalar, method_state: PyTree, i: Scalar) -> Any:
        """The local work of a newcomer in the i-th round after this one."""
        later = now._replace(t=now.t + i)
        return now.method.local(received, method_state, later.objective(client))


def honest(now: Round, finite: Array, ids: Array) -> Array:
    """`finite`, but what malicious clients have is nobody's concern."""
    threat = now.setting.threat
    return finite if threat is None else finite | threat.malicious[ids]


def zeros(shapes: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def integers(values: Any) -> Any:
    return np.asarray(values).astype(np.int64)
