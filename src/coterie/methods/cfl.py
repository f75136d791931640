"""CFL: one model until its clients pull apart; then their cluster is split in two, and so on."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.schedule import Number, at
from coterie.core.search import Among, LinearRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.memory import cosines, mixed
from coterie.methods.several import merged_by_cluster, one_of
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging, Cohort
from coterie.models.objective import Objective


class CFLHub(NamedTuple):
    """What the hub keeps: the models of all clusters, stacked; the cluster of every client and the
    number of clusters so far; the last update of every client, and what that counts (0: none since
    the client's cluster began); and the longest update of the first round.
    """

    models: Any
    cluster: Any
    count: Any
    updates: Vector
    counts: Any
    unit: Any


def bipartition(alike: Any, members: Any) -> tuple[Any, Any]:
    """The two parts of a cluster with the least alike clients across: min over all cuts of the
    largest α_kl between the parts. Returns who leaves, and that largest α_kl.

    Prim's spanning tree: beginning with one member, always add the one that is most alike to any in
    the part so far. The parts so far, one before each addition, have among them a cut as good as
    any: every cut must cut the tree's weakest edge or a stronger one.

    >>> alike = jnp.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    >>> leaves, across = bipartition(alike, jnp.ones(3, bool))
    >>> leaves.tolist(), round(float(across), 3)
    ([False, False, True], 0.2)
    """
    n = len(members)

    def add(_: Any, now: Any) -> Any:
        inside, near, leaves, across = now
        outside = members & ~inside
        open_ = jnp.where(outside, near, -jnp.inf)
        weakest = jnp.any(outside) & (jnp.max(open_) < across)
        leaves = jnp.where(weakest, outside, leaves)
        across = jnp.where(weakest, jnp.max(open_), across)
        new = jnp.argmax(open_)
        inside = inside | (outside & (jnp.arange(n) == new))
        return inside, jnp.maximum(near, alike[new]), leaves, across

    start = jnp.argmax(members)
    infinite = jnp.asarray(jnp.inf, alike.dtype)
    begin = (jnp.arange(n) == start, alike[start], jnp.zeros(n, bool), infinite)
    _, _, leaves, across = jax.lax.fori_loop(0, n - 1, add, begin)
    return leaves, across


@method(
    "cfl",
    title="CFL",
    paper=(
        "Sattler, Müller, Samek, Clustered Federated Learning: Model-Agnostic Distributed Multitask"
        " Optimization Under Privacy Constraints, IEEE TNNLS 2021"
    ),
)
class CFL(Averaging, LocalSGD):
    """FedAvg in every cluster of clients; all begin in one. Where a cluster's model stands still
    while its clients still pull, each its own way, the cluster is split in two.

    Client i of cluster c: R SGD steps on f_i from w_c give x_i;  it sends Δ_i = x_i − w_c

    Hub, for every cluster c with the last updates of its clients, Δ̄_c = Σ_i n_i Δ_i / Σ_i n_i:

    1. if ‖Δ̄_c‖ < ε₁ and max_i ‖Δ_i‖ > ε₂, with α_ij = cos(Δ_i, Δ_j):
       c₁, c₂ = argmin over c₁ ∪ c₂ = c of α_× = max_{i∈c₁, j∈c₂} α_ij
       if γ < √((1 − α_×)/2), c₁ and c₂ take the place of c, each with the model w_c
    2. w_c ← w_c + β Σ_{i∈S∩c} n_i Δ_i / Σ_{i∈S∩c} n_i, for the clusters as they are now

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    ε₁, ε₂        eps1, eps2; times the longest update of the first round (unit = "first"), or as
                  they are (unit = "one", as in the paper)
    γ             gamma: how far updates are from what the client's distribution would give; 0
                  splits whatever the angle, as the authors' code does
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_i           weighting = "samples"; by default "uniform", 1 for all, as in Algorithm 2
    ============  ==============================================================================

    The paper has all clients take part in every round. Here the hub keeps the last update of every
    client, N × d numbers, and decides by these; a cluster is split only when all its clients have
    sent something since it began. There are at most `clusters` clusters, so that the hub has a
    fixed size; after that none is split. If too few are left, clusters go by their numbers, which
    say in which order they began.

    The bipartition is the optimal one, found through the spanning tree of the α_ij. The authors'
    code takes complete linkage instead, which does not minimise α_×. From the second split on it
    also mistakes places within a cluster for numbers of clients. It waits 20 rounds (`warmup`) and
    splits no cluster of two, which this one does.

    The message is Δ_i: d numbers up, d down. A newcomer first hears the mean model of all clients,
    then the model of the cluster whose difference to that mean is most alike to what it would have
    sent; the paper leads it down the tree of splits, whose models would have to be kept. Robust
    merges other than clipping look at all messages alike, so they are not here. "personal" is w_c.
    """

    addressed: ClassVar[bool] = True

    clusters: int = option(4, "the most clusters", low=1, search=Among((2, 4, 8)))
    eps1: Number = option(
        0.2,
        "a cluster's model stands still when the mean update is shorter than this",
        symbol="ε₁",
        low=0,
        search=LinearRange(0.05, 0.5),
    )
    eps2: Number = option(
        0.3,
        "its clients still pull when the longest update is longer than this",
        symbol="ε₂",
        low=0,
        search=LinearRange(0.05, 0.8),
    )
    unit: str = option(
        "first",
        "what ε₁ and ε₂ are counted in: the longest update of the first round, or one",
        choices=("first", "one"),
    )
    gamma: Number = option(
        0.0, "how unlike the two parts must be to be split", symbol="γ", low=0, high=1
    )
    warmup: int = option(0, "rounds before the first split", low=0)
    merging: str = option(
        "mean",
        "what the hub takes of a cluster's messages: their mean, or something that withstands"
        " Byzantine clients",
        choices=("mean", "clipping"),
    )
    clients: Any = hidden()

    def unused(self) -> dict[str, str]:
        reason = f"{self.name}.merging is {self.merging!r}, and has no other robust mean"
        return {**super().unused(), "trim": reason, "byzantine": reason}

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        return dataclasses.replace(self, clients=shape.clients)

    def hub_init(self, template: Vector) -> CFLHub:
        n, kept = int(self.clients), self.steered(template)
        several = lambda tree, count: jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), tree
        )
        nothing = several(template.map(jnp.zeros_like), n)
        number = lambda: jnp.zeros((), template.dtype)
        counts = jnp.zeros(n, template.dtype)
        models = several(kept, self.clusters)
        return CFLHub(models, jnp.zeros(n, jnp.int32), jnp.int32(1), nothing, counts, number())

    def broadcast(self, hub: CFLHub, client: Any) -> Vector:
        return one_of(self.current(hub.models), hub.cluster[client])

    def reference(self, received: Vector, message: Vector) -> Vector:
        """Nothing: a message is a difference already."""
        return message.map(jnp.zeros_like)

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        x, kept = self.descend(received, state, objective)
        return Step(x - received, kept, self.steps(objective))

    def merge(self, hub: CFLHub, messages: Vector, cohort: Cohort, t: Any) -> CFLHub:
        updates = hub.updates.map(lambda old, new: old.at[cohort.ids].set(new), messages)
        counts = hub.counts.at[cohort.ids].set(cohort.weights)
        lengths = jnp.sqrt(jax.vmap(lambda update: update.squared_norm())(messages))
        unit = jnp.where(hub.unit > 0, hub.unit, jnp.max(lengths))
        hub = self.split(hub._replace(updates=updates, counts=counts, unit=unit), t)
        mine = hub.cluster[cohort.ids]
        began = self.current(hub.models).map(lambda leaf: leaf[mine])
        models = merged_by_cluster(self, hub.models, (began + messages, mine), cohort, t)
        return hub._replace(models=models)

    def ripe(self, hub: CFLHub, cluster: Any, t: Any) -> tuple[Any, Any]:
        """The members of a cluster, and whether it stands still while they pull."""
        unit = hub.unit if self.unit == "first" else 1.0
        members = hub.cluster == cluster
        counted = jnp.where(members, hub.counts, 0)
        weights = counted / jnp.maximum(jnp.sum(counted), jnp.finfo(counted.dtype).tiny)
        mean = jnp.sqrt(mixed(weights, hub.updates).squared_norm())
        lengths = jnp.sqrt(jax.vmap(lambda update: update.squared_norm())(hub.updates))
        longest = jnp.max(jnp.where(members, lengths, 0))
        still = (mean < at(self.eps1, t) * unit) & (longest > at(self.eps2, t) * unit)
        heard = jnp.all(jnp.where(members, hub.counts > 0, True)) & (jnp.sum(members) > 1)
        room = (hub.count < self.clusters) & (cluster < hub.count)
        return members, still & heard & room & (jnp.asarray(t) >= self.warmup)

    def split(self, hub: CFLHub, t: Any) -> CFLHub:
        """The hub after this round's splits."""
        if self.clusters == 1:
            return hub
        found = jax.vmap(lambda j: self.ripe(hub, j, t)[1])(jnp.arange(self.clusters))

        def all_clusters(hub: CFLHub) -> CFLHub:
            alike = jax.vmap(lambda update: cosines(update, hub.updates))(hub.updates)
            one = lambda j, hub: self.halved(hub, j, alike, t)
            return jax.lax.fori_loop(0, self.clusters, one, hub)  # type: ignore[no-any-return]

        # The angles between all clients cost N × N × d: only when they are needed.
        return jax.lax.cond(jnp.any(found), all_clusters, lambda hub: hub, hub)  # type: ignore[no-any-return]

    def halved(self, hub: CFLHub, cluster: Any, alike: Any, t: Any) -> CFLHub:
        """The hub after this cluster was split, if it is to be."""
        members, ripe = self.ripe(hub, cluster, t)
        leaves, across = bipartition(alike, members)
        splits = ripe & (at(self.gamma, t) < jnp.sqrt(jnp.maximum(1 - across, 0) / 2))
        new = jnp.minimum(hub.count, self.clusters - 1)
        copied = jax.tree.map(
            lambda leaf: jnp.where(splits, leaf.at[new].set(leaf[cluster]), leaf), hub.models
        )
        return hub._replace(
            models=copied,
            cluster=jnp.where(splits & leaves, new, hub.cluster),
            count=hub.count + splits.astype(hub.count.dtype),
            counts=jnp.where(splits & members, 0, hub.counts),
        )

    def welcome(self, hub: CFLHub, received: Vector, sent: Vector) -> Vector:
        models = self.current(hub.models)
        members = jnp.sum(hub.cluster == jnp.arange(self.clusters)[:, None], 1)
        mean = mixed(members / jnp.sum(members), models)
        alike = cosines(sent, models - mean)
        best = one_of(models, jnp.argmax(jnp.where(members > 0, alike, -jnp.inf)))
        return jax.tree.map(lambda a, b: jnp.where(sent.squared_norm() > 0, a, b), best, mean)

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"personal": received}
