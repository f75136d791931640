"""The rounds of engine/exchange, compiled for one participant alone.

The simulator maps a client's turn over all clients; here the very same turn is called for one.
Methods, channels and data are arguments, so that one program serves all rounds and hyper-parameters
(and all clients with as much data).
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from coterie.channel.link import Sent
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector
from coterie.engine.exchange import Graph, Star, exchange_of
from coterie.engine.exchange.base import Heard, Turn
from coterie.engine.setting import ClientState, HubState, Round, Setting, Spec
from coterie.methods.star import Cohort

STAR, GRAPH = Star(), Graph()


@dataclasses.dataclass(frozen=True)
class LoaderSpec(Spec):
    """The spec of a client whose mini-batches come from a loader of its own."""

    loader: Any = None
    """A `LoaderClient`."""


class LoaderRound(Round):
    """A round of such a client: its objective draws from the loader."""

    def objective(self, client: Scalar) -> Any:
        assert isinstance(self.spec, LoaderSpec)
        found = self.spec.loader.objective(self.t)
        return dataclasses.replace(found, l2=found.l2 + self.method.l2)


def round_of(spec: Spec, setting: Setting, t: Scalar) -> Round:
    kind = LoaderRound if isinstance(spec, LoaderSpec) else Round
    return kind(spec, setting, t)


# -- a client --------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="spec")
def turn(
    spec: Spec,
    setting: Setting,
    t: Scalar,
    number: Scalar,
    state: ClientState,
    received: PyTree,
    *,
    sending: Scalar,
) -> Turn:
    """A client's turn in round t."""
    heard = Heard(received, state.down)
    now = round_of(spec, setting, t)
    made = exchange_of(setting.method).turn(now, number, state, heard, sending)
    assert made.sent is not None
    # Bytes are counted from what is encoded.
    return made._replace(up=None, down=None, sent=made.sent._replace(bytes=None))


@partial(jax.jit, static_argnames="spec")
def models(
    spec: Spec, setting: Setting, t: Scalar, number: Scalar, received: PyTree, own: PyTree
) -> dict[str, Vector]:
    """A client's models after t rounds, by view."""
    objective = Round(spec, setting, t).objective(number)
    found: dict[str, Vector] = setting.method.predictors(received, own, objective)
    return found


@partial(jax.jit, static_argnames="spec")
def _absorbed(
    spec: Spec, setting: Setting, t: Scalar, state: ClientState, pull: PyTree, message: PyTree
) -> ClientState:
    return GRAPH.absorb(Round(spec, setting, t), state, pull, message)


@partial(jax.jit, static_argnames="spec")
def follow(
    spec: Spec, setting: Setting, t: Scalar, public: PyTree, pull: PyTree, message: PyTree
) -> PyTree:
    """The public copy of a client's message after a pull, at a hub between neighbours."""
    return GRAPH.follow(Round(spec, setting, t), public, pull, message)


def absorb(
    spec: Spec, setting: Setting, t: Scalar, state: ClientState, pull: PyTree, message: PyTree
) -> ClientState:
    """The end of a client's round on a graph.

    Its public copy is taken from the program that the hub has too: another one could round in
    another way, and the two ends must agree to the last bit.
    """
    after = _absorbed(spec, setting, t, state, pull, message)
    if state.up == () or not setting.method.hub_between:  # type: ignore[attr-defined]
        return after
    public = follow(spec, setting, t, state.up.public, pull, message)
    return after._replace(up=after.up._replace(public=public))


# -- a hub, or a peer ------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="spec")
def speak(spec: Spec, setting: Setting, t: Scalar, hub: HubState) -> Sent | None:
    """What the hub of a star says to all in round t."""
    return STAR.speak(Round(spec, setting, t), hub)


@partial(jax.jit, static_argnames="spec")
def merge(
    spec: Spec,
    setting: Setting,
    t: Scalar,
    hub: HubState,
    broadcast: Sent | None,
    came: tuple[PyTree, Cohort],
) -> HubState:
    """The hub's turn in a star: messages, stacked in the order of the cohort."""
    now, (messages, cohort) = Round(spec, setting, t), came
    return STAR.merge(now, hub, broadcast, STAR.forward(now, hub, broadcast, messages), cohort)


@partial(jax.jit, static_argnames="spec")
def adopt(
    spec: Spec,
    setting: Setting,
    t: Scalar,
    hub: HubState,
    broadcast: Sent | None,
    merged: PyTree,
) -> HubState:
    """The same, of a mean of the messages that is there already (deploy/hub_aside.py)."""
    link_down = hub.link if broadcast is None else broadcast.link
    return HubState(setting.method.next(hub.method_state, merged, t), link_down)  # type: ignore[attr-defined]


def stacked(trees: list[PyTree]) -> PyTree:
    """Along a new axis 0."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@jax.jit
def effective(method: Any, weights: Array, t: Scalar) -> Array:
    """The weights of a client's neighbours that count in round t."""
    found: Array = method.effective(weights, t)
    return found


@jax.jit
def pull(method: Any, own: PyTree, messages: PyTree, weights: Array) -> PyTree:
    """The pull of stacked messages on one client."""
    return method.pull(own, messages, weights)


@jax.jit
def message_of(method: Any, own: PyTree) -> PyTree:
    return method.message(own)


@jax.jit
def moved(method: Any, message: PyTree, pull: PyTree, t: Scalar) -> PyTree:
    """What a client's message would be after a pull, at a hub between neighbours."""
    return method.moved(message, pull, t)
