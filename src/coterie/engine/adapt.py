"""Newcomers: a model for a client that was not in training, from what the federation has learnt and
from its own data. The federation stays as it is.

Each method does it its own way, by the functions it trains with. In a star the newcomer hears what
the hub says now and does its local rounds against it: for pFedMe steps towards prox(w), for lp-proj
steps pulled to w̃ in the subspace; where there is one model for all it takes that model. On a graph
it begins with its neighbours' mean (for graph-proj inside the subspace) and is pulled to their last
messages while it trains.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.evaluate import Scores, hold, score_models
from coterie.engine.rounds import Data, Spec, hear, last_messages, objective_of, speak
from coterie.engine.simulate import Simulator
from coterie.methods.base import Method

ROUNDS = 20
"""Local rounds that a newcomer gets unless asked otherwise."""


class Adapted(NamedTuple):
    """Models by view, stacked over the newcomers, and how they do on the newcomers' test data."""

    models: dict[str, Vector]
    scores: Scores


def neighbour_weights(
    graph: Graph, members: Federation, newcomers: Federation
) -> NDArray[np.float64]:
    """How strongly each newcomer is tied to each member, (newcomers, members).

    By common labels where the graph is "similar", alike to all members otherwise; a newcomer's
    weights add up to what a member's do on average.
    """
    total = float(graph.weights.sum()) / max(1, graph.clients)
    if graph.name == "similar":
        theirs, mine = members.label_counts() > 0, newcomers.label_counts() > 0
        common = (mine[:, None] & theirs[None]).any(2)
        same = (mine[:, None] == theirs[None]).all(2)
        raw = np.where(same, 1.0, np.where(common, 0.5, 0.0))
    else:
        raw = np.ones((newcomers.clients, members.clients))
    raw[raw.sum(1) == 0] = 1.0
    return total * raw / raw.sum(1, keepdims=True)


def check_alike(members: Federation, newcomers: Federation) -> None:
    """Newcomers must have the inputs and targets of those the models were trained for."""
    if newcomers.task != members.task:
        raise InvalidInput(
            f"the newcomers' task is {newcomers.task}, but the run's is {members.task}."
        )
    if newcomers.input_shape != members.input_shape:
        raise InvalidInput(
            f"the newcomers' inputs have the shape {newcomers.input_shape}, but the run's have"
            f" {members.input_shape}."
        )
    if newcomers.outputs != members.outputs:
        raise InvalidInput(
            f"the newcomers have {newcomers.outputs} classes or targets, but the run has"
            f" {members.outputs}."
        )


class Offer(NamedTuple):
    """What the federation gives a newcomer: the hub's state, what all hear, the members' last
    messages (graph), and what every client begins with.
    """

    hub: Any
    received: Any
    messages: Any
    template: Vector
    memory: Any


def _join(
    spec: Spec,
    method: Method,
    data: Data,
    seed: Any,
    t: Any,
    rounds: Any,
    offer: Offer,
    ids: Any,
    weights: Any,
) -> Any:
    received, pool = offer.received, offer.messages

    def one(place: Any, weights: Any) -> tuple[Any, Any]:
        objective = lambda i: objective_of(spec, data, seed, t + i, place, spec.clients + place)
        if method.exchange == "graph":
            memory = method.join(offer.template, pool, weights)

            def together(i: Any, memory: Any) -> Any:
                step = method.local(received, memory, objective(i))
                return method.absorb(step.memory, method.pull(step.message, pool, weights), t + i)

            return received, lax.fori_loop(0, rounds, together, memory)
        if method.exchange != "star":
            train = lambda i, memory: method.local(received, memory, objective(i)).memory
            return received, lax.fori_loop(
                0, rounds if method.exchange == "none" else 0, train, offer.memory
            )
        heard = lambda sent: method.welcome(offer.hub, received, sent)
        memory = offer.memory
        shapes = jax.eval_shape(lambda: method.local(received, memory, objective(0)).message)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def alone(i: Any, state: Any) -> Any:
            memory, sent = state
            step = method.local(heard(sent), memory, objective(i))
            return step.memory, jax.tree.map(lambda a, b: a + b, sent, step.message)

        memory, sent = lax.fori_loop(0, rounds, alone, (memory, nothing))
        return heard(sent), memory

    def models(place: Any, weights: Any) -> dict[str, Vector]:
        received, memory = one(place, weights)
        return method.models(
            received,
            memory,
            objective_of(spec, data, seed, t + rounds, place, spec.clients + place),
        )

    return jax.vmap(models)(ids, weights)


compiled_join = jax.jit(_join, static_argnums=(0,))


def adapt(
    simulator: Simulator,
    newcomers: Federation,
    *,
    rounds: int = ROUNDS,
    weights: NDArray[Any] | None = None,
) -> Adapted:
    """Models for newcomers.

    `weights` (newcomers × members) ties them to members on a graph; nothing: `neighbour_weights`.
    """
    check_alike(simulator.federation, newcomers)
    sim, method, count = simulator, simulator.method, newcomers.clients
    with sim.precision():
        dtype = jnp.dtype(sim.training.precision)
        held = hold(newcomers.train, dtype)
        data = Data(held.x, held.y, held.start, held.size, sim.data.l2, sim.data.batch_schedule)
        pool: Any = ()
        if method.exchange == "graph":
            assert sim.graph is not None
            pool = last_messages(method, sim.channel, sim.store.gather(np.arange(sim.spec.clients)))
            weights = (
                neighbour_weights(sim.graph, sim.federation, newcomers)
                if weights is None
                else weights
            )
        tied = jnp.asarray(np.zeros((count, 0)) if weights is None else weights, dtype)
        method = method.for_newcomers(int(newcomers.train.sizes.max()))
        row = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), sim.store.gather(np.zeros(1, int)))
        said = speak(method, sim.channel, sim.seed, sim.t, sim.centre)
        received = hear(method, sim.channel, sim.seed, sim.t, sim.centre, said, 0, row).received
        offer = Offer(sim.hub, received, pool, sim.template, method.client_init(sim.template))
        models = compiled_join(
            sim.spec, method, data, sim.seed, sim.t, rounds, offer, jnp.arange(count), tied
        )
        scores = score_models(
            sim.spec, [models[view] for view in method.model_views], hold(newcomers.test, dtype)
        )
        return Adapted({view: v.map(np.asarray) for view, v in models.items()}, scores)
