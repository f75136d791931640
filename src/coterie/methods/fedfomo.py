"""FedFomo: every client tries some others' models on rows that it held out, and takes what
helps.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import LinearRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.held import held_out
from coterie.methods.memory import Memory, Remembering, mixed
from coterie.methods.several import total_losses
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Cohort
from coterie.models.objective import Objective


class FomoHubState(NamedTuple):
    """The last model of every client, and P, what they made of each other's, a row each."""

    memory: Memory
    affinity: Any


class Offered(NamedTuple):
    """What the hub sends: M models stacked along axis 0, and 1 for each that is somebody's, 0 for
    padding.
    """

    models: Vector
    real: Any


class Message(NamedTuple):
    """A client's model, and the weight that it gave to each model it was offered."""

    model: Vector
    weights: Any


class FomoState(NamedTuple):
    """What a client keeps: its model before and after its last local steps, and its optimiser's
    state (() where that is fresh every round).
    """

    before: Vector
    x: Vector
    optimizer: Any = ()


def first_order_weights(gains: Any, distances: Any) -> Any:
    """max(gain/distance, 0), divided by their sum; all 0 where nothing gains.

    >>> first_order_weights(jnp.array([1.0, -2.0, 3.0]), jnp.array([1.0, 1.0, 1.0])).tolist()
    [0.25, 0.0, 0.75]
    """
    apart = distances > 0
    w = jnp.where(apart & (gains > 0), gains / jnp.where(apart, distances, 1.0), 0.0)
    total = jnp.sum(w)
    return w / jnp.where(total > 0, total, 1.0)


@method(
    "fedfomo",
    title="FedFomo",
    paper=(
        "Zhang, Sapra, Fidler, Yeung, Alvarez, Personalized Federated Learning with First Order"
        " Model Optimization, ICLR 2021"
    ),
)
class FedFomo(Remembering, LocalSGD):
    """Every client downloads M models of others, and moves towards each by how much it lowers the
    loss on held-out rows per distance: a first-order guess of the best mixture.

    Client, with θ its model before its last local steps, x after them, and θ_l the M models:

    v_l = max(0, (F(θ) − F(θ_l)) / ‖θ_l − θ‖) for x and the θ_l,  w = v / Σ v
    θ ← θ + Σ_l w_l (θ_l − θ);  x ← θ after R SGD steps on f_k

    Hub: P_kl ← P_kl + w_l; each of the M that client k gets next is the one with the largest P_kl
    of those left, or with probability ε any of them.

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    M             download: models per client and round, at most N − 1
    ε             epsilon (may be a schedule; the authors' code lets it fall linearly)
    F             validation: the share of the client's training rows that it holds out for F and
                  never trains on; 0: F is the loss on all its training rows
    μ, R          lr, local_steps (or local_epochs)
    ============  ================================================================================

    x is among the models that are weighed, as in the paper; without it a client would move to the
    others altogether, because the weights add up to 1. Where nothing lowers F, θ stays and what the
    local steps did is dropped. F is the mean loss without the penalty on parameters. Held-out rows
    are the first of the client's training rows, at least one; a client with a single row tries
    models on that. The federation's validation rows are for choosing between methods, and no method
    sees them. Gradients are counted, the M + 2 passes over held-out rows are not. With
    `local_epochs` as many steps are taken as all training rows would need, as Local takes.

    M models come down, and all M are billed, also in the first rounds, when fewer clients have been
    heard of: messages have a fixed form. The hub finds P_kl by drawing its choice once more, so no
    numbers of clients are sent. A newcomer is offered the M models that members gave most to in
    sum. Ties are broken at random. "personal" is x.
    """

    download: int = option(5, "models of others that a client gets per round", symbol="M", low=1)
    epsilon: Number = option(
        0.3,
        "probability that a model is chosen at random and not by affinity",
        symbol="ε",
        low=0,
        high=1,
        search=LinearRange(0.0, 0.6),
    )
    validation: float = option(
        0.2, "share of the training rows that models are tried on", low=0, high=0.9
    )
    key: Any = hidden()

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(super().bind(template, key, shape), key=key)

    def hub_init(self, template: Vector) -> FomoHubState:
        memory = super().hub_init(template)
        return FomoHubState(memory, jnp.zeros((int(self.clients),) * 2, template.dtype))

    def choice(self, hub: FomoHubState, client: Any) -> tuple[Any, Any]:
        """The M clients whose models this one gets, and whether each is to be had at all."""
        n = hub.affinity.shape[0]
        key = jax.random.fold_in(jax.random.fold_in(self.key, hub.memory.t), client)
        coins, chance, ties = jax.random.split(key, 3)
        count = min(self.download, max(1, n - 1))
        explore = jax.random.uniform(coins, (count,)) < at(self.epsilon, hub.memory.t)
        # Places instead of affinities: no two are the same, and what is left is easily put last.
        order = jnp.lexsort((jax.random.uniform(ties, (n,)), hub.affinity[client]))
        liked = jnp.zeros(n).at[order].set(jnp.arange(n) + 1.0)
        drawn = jax.random.uniform(chance, (n,), minval=0.5)
        free = hub.memory.known & (jnp.arange(n) != client)

        def one(free: Any, explore: Any) -> tuple[Any, tuple[Any, Any]]:
            best = jnp.argmax(jnp.where(free, jnp.where(explore, drawn, liked), 0.0))
            return free.at[best].set(False), (best, free[best])

        _, (ids, real) = jax.lax.scan(one, free, explore)
        return ids, real

    def offer(self, hub: FomoHubState, ids: Any, real: Any) -> Offered:
        models = hub.memory.row(ids)
        return Offered(models, real.astype(hub.affinity.dtype))

    def broadcast(self, hub: FomoHubState, client: Any) -> Offered:
        return self.offer(hub, *self.choice(hub, client))

    def merge(self, hub: FomoHubState, messages: Message, cohort: Cohort, t: Any) -> FomoHubState:
        ids, real = jax.vmap(lambda k: self.choice(hub, k))(cohort.ids)
        given = jnp.where(real, messages.weights, 0.0)
        affinity = hub.affinity.at[cohort.ids[:, None], ids].add(given)
        return FomoHubState(hub.memory.heard(messages.model, cohort, t), affinity)

    def welcome(self, hub: FomoHubState, received: Offered, sent: Message) -> Offered:
        known = hub.memory.known
        liked = jnp.where(known, jnp.sum(hub.affinity, 0), -1.0)
        _, ids = jax.lax.top_k(liked, len(received.real))
        return self.offer(hub, ids, known[ids])

    def reference(self, received: Offered, message: Message) -> Message:
        """The mean of what was offered: 0 while nothing was."""
        total = jnp.sum(received.real)
        mean = mixed(received.real / jnp.where(total > 0, total, 1.0), received.models)
        return Message(mean, jnp.zeros_like(message.weights))

    def client_init(self, template: Vector) -> FomoState:
        return FomoState(template, template, self.opened(template))

    def local(self, received: Offered, state: FomoState, objective: Objective) -> Step:
        rest, tried = held_out(objective, self.validation)
        candidates = state.x.map(
            lambda x, others: jnp.concatenate([x[None], others]), received.models
        )
        real = jnp.append(jnp.ones(1, bool), received.real > 0)
        everybody = state.before.map(lambda a, b: jnp.concatenate([a[None], b]), candidates)
        losses = total_losses(everybody, tried) / tried.size
        ways = candidates - state.before
        distances = jnp.sqrt(jax.vmap(lambda way: way.squared_norm())(ways))
        gains = jnp.where(real, losses[0] - losses[1:], 0.0)
        w = first_order_weights(gains, distances)
        theta = state.before + mixed(w, ways)
        steps = self.steps(objective)
        x, kept = self.descend(theta, state.optimizer, rest, last=steps)
        return Step(Message(x, w[1:].astype(received.real.dtype)), FomoState(theta, x, kept), steps)

    def models(
        self, received: Offered, state: FomoState, objective: Objective
    ) -> dict[str, Vector]:
        return {"personal": state.x}
