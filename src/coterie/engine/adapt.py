"""Newcomers: a model for a client that was not in training, from what the federation has learnt and
from its own data. The federation stays as it is.

Each method does it its own way, by the functions it trains with. In a star the newcomer receives
what the hub sends now and does its local rounds against it: for pFedMe steps towards prox(w), for
lp-proj steps pulled to w̃ in the subspace; where there is one model for all it takes that model. On
a graph it begins with its neighbours' mean (for graph-proj inside the subspace) and is pulled to
their last messages while it trains.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import Diverged, InvalidInput
from coterie.core.typing import Array, PyTree, Scalar
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.evaluate import Scores, score_models, to_device
from coterie.engine.exchange import exchange_of
from coterie.engine.exchange.base import Offer
from coterie.engine.in_turn import in_turn
from coterie.engine.kinship import as_sent
from coterie.engine.prepare import data_of
from coterie.engine.setting import Round, Setting, Spec
from coterie.engine.simulator import Simulator
from coterie.models.objective import Held

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


def _join(
    now: Round, offer: Offer, client: Scalar, weights: Array, rounds: Scalar
) -> dict[str, Vector]:
    """The models of one newcomer."""
    exchange = exchange_of(now.method)
    received, own = exchange.newcomer(now, offer, client, weights, rounds)
    later = now._replace(t=now.t + rounds)
    models: dict[str, Vector] = now.method.predictors(received, own, later.objective(client))
    return models


def _join_all(
    spec: Spec, setting: Setting, offer: Offer, tied: tuple[Array, Array], t: Any, rounds: Any
) -> PyTree:
    """`_join` for all newcomers; `tied` are their numbers and their weights to the members."""
    now = Round(spec, setting, t)
    return jax.vmap(lambda client, weights: _join(now, offer, client, weights, rounds))(*tied)


compiled_join = in_turn(_join_all, static_argnames="spec")


def adapt(
    simulator: Simulator,
    newcomers: Federation,
    *,
    rounds: int = ROUNDS,
    weights: NDArray[Any] | None = None,
) -> Adapted:
    """Models for newcomers.

    `weights` (newcomers × members) ties them to members on a graph; nothing: `neighbour_weights`.
    Raises Diverged when a newcomer's model is not finite.
    """
    check_alike(simulator.federation, newcomers)
    sim, count = simulator, newcomers.clients
    with sim.precision():
        dtype = jnp.dtype(sim.training.precision)
        old, first = sim.setting.data, sim.spec.clients
        data = data_of(to_device(newcomers.train, dtype), old.l2, old.batch_schedule)
        method = sim.method.for_newcomers(newcomers.shape.largest)
        own = Held(*to_device(newcomers.validation, dtype)) if method.validates else None
        data = data._replace(first=first, held=own)
        setting = sim.setting._replace(method=method, data=data)
        spec, offer = _spec(sim, newcomers), _offer(sim, method)
        numbers = first + jnp.arange(count)
        if sim.kinship is not None and weights is None:
            weights = _kin_weights(sim, Round(spec, setting, sim.t), offer, numbers)
        elif sim.graph is not None and weights is None:
            weights = neighbour_weights(sim.graph, sim.federation, newcomers)
        tied = jnp.asarray(np.zeros((count, 0)) if weights is None else weights, dtype)
        models = compiled_join(spec, setting, offer, (numbers, tied), sim.t, rounds)
        models = {view: v.map(np.asarray) for view, v in models.items()}
        _check_finite(sim, models, rounds)
        views = [models[view] for view in method.model_views]
        scores = score_models(spec, views, to_device(newcomers.test, dtype), sim.metric)
        return Adapted(models, scores)


def _alone(spec: Spec, setting: Setting, offer: Offer, numbers: Array, t: Any, rounds: Any) -> Any:
    """The states of newcomers that train by themselves."""
    now = Round(spec, setting, t)
    exchange = exchange_of(now.method)

    def one(client: Scalar) -> PyTree:
        local = lambda i, state: exchange.alone(now, offer.received, client, state, i).state
        return jax.lax.fori_loop(0, rounds, local, offer.method_state)

    return jax.vmap(one)(numbers)


compiled_alone = in_turn(_alone, static_argnames="spec")


def _kin_weights(sim: Simulator, now: Round, offer: Offer, numbers: Array) -> NDArray[np.float64]:
    """Newcomers find their kin as the members did: they train alone for as many rounds, and send a
    sketch, which is compared with the members'.
    """
    assert sim.kinship is not None
    kinship, rule = sim.kinship, sim.kinship.rule
    states = compiled_alone(now.spec, now.setting, offer, numbers, now.t, rule.after)
    sketches = as_sent(rule, kinship.sketched(now.method, states))
    cosines = np.where(kinship.known, kinship.evidence.cosines(sketches), -np.inf)
    return np.stack([rule.newcomer(row) for row in cosines])


def _spec(sim: Simulator, newcomers: Federation) -> Spec:
    """The members' spec; with full batches a newcomer may need a larger one."""
    if sim.training.sampling != "full" or sim.pooled:
        return sim.spec
    largest = max(sim.spec.learner.batch_size, newcomers.shape.largest)
    learner = dataclasses.replace(sim.spec.learner, batch_size=largest)
    return dataclasses.replace(sim.spec, learner=learner)


def _offer(sim: Simulator, method: Any) -> Offer:
    """What the federation gives a newcomer now."""
    now, exchange = sim.now(), exchange_of(sim.method)
    row = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), sim.store.gather(np.zeros(1, int)))
    broadcast = exchange.speak(now, sim.hub_state)
    received = exchange.hear(now, sim.hub_state, broadcast, 0, row).received
    pool: Any = ()
    if sim.graph is not None:
        everyone = sim.store.gather(np.arange(sim.spec.clients))
        pool = exchange.last_messages(now, everyone)
    return Offer(sim.hub, received, pool, sim.template, method.client_init(sim.template))


def _check_finite(sim: Simulator, models: dict[str, Vector], rounds: int) -> None:
    count = len(next(iter(models.values())).leaves[0])
    finite = np.ones(count, bool)
    for model in models.values():
        for leaf in model.leaves:
            finite &= np.isfinite(np.asarray(leaf).reshape(count, -1)).all(1)
    if not finite.all():
        bad = np.flatnonzero(~finite).tolist()
        raise Diverged(f"{sim.method.title}, for newcomers,", rounds, bad)
