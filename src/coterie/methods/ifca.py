"""IFCA: a few models at the hub; every client trains the one that fits its data best."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.search import Among, LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.several import merged_by_cluster, one_of, scattered, total_losses
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging, Cohort
from coterie.models.objective import Objective


class Message(NamedTuple):
    """A client's model, and the number of the cluster that it was trained for."""

    model: Vector
    cluster: Any


@method(
    "ifca",
    title="IFCA",
    paper=(
        "Ghosh, Chung, Yin, Ramchandran, An Efficient Framework for Clustered Federated Learning,"
        " NeurIPS 2020"
    ),
)
class IFCA(Averaging, LocalSGD):
    """k models at the hub: every client picks the one with the least loss on its own training data,
    trains it, and says which it was.

    min over w_1 … w_k of Σ_i min_j f_i(w_j)

    Client i: j = argmin_j f_i(w_j);  R SGD steps on f_i from w_j give x_i;  it sends (x_i, j)

    Hub, for every j that somebody in S picked, over those who did:
    w_j ← (1−β) w_j + β Σ_i n_i x_i / Σ_i n_i

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    k             clusters
    μ, R          lr (γ in the paper), local_steps or local_epochs (τ)
    β             beta (1 in the paper)
    n_i           weighting = "samples"; by default "uniform", 1 for all, as in the paper
    σ             spread
    ============  ==============================================================================

    This is the paper's model averaging; its gradient averaging, which divides by all of S, is not
    here. The loss is taken over an epoch of the round's mini-batches, at most `look` of them. It
    needs no gradients, and none are counted: k forward passes over the data come on top of `work`.
    "personal" is the model that the client picks now, by its training data.

    w_1 begins as the run's model, the others as the same with noise of strength σ: models that
    begin alike would stay alike. The paper draws all at random and takes the best of several starts
    on small problems; here other seeds are other starts. A model that nobody picks stays as it is.

    The hub sends all k models, which is billed: k·d numbers down, d + 1 up. What a client sends is
    near the model it picked, which the hub knows only after it has read j; and a wrong j would mix
    clusters. So messages must arrive as they are: no channel that cuts anything off. j is sent as a
    number like the others; what a malicious client makes of it counts as the nearest cluster.
    Robust merges other than clipping look at all messages alike, whatever the cluster, so they are
    not here.
    """

    needs_exact: ClassVar[bool] = True

    clusters: int = option(2, "models at the hub", symbol="k", low=1, search=Among((2, 3, 5)))
    spread: float = option(
        1.0,
        "how far apart the models begin: the noise of an array, relative to its entries",
        symbol="σ",
        above=0,
        search=LogRange(0.1, 10),
    )
    look: int = option(
        50, "the most mini-batches of training data on which clusters are compared", low=1
    )
    merging: str = option(
        "mean",
        "what the hub takes of a cluster's messages: their mean, or something that withstands"
        " Byzantine clients",
        choices=("mean", "clipping"),
    )
    start: Any = hidden()

    def unused(self) -> dict[str, str]:
        reason = f"{self.name}.merging is {self.merging!r}, and has no other robust mean"
        return {**super().unused(), "trim": reason, "byzantine": reason}

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        start = scattered(template, key, self.clusters, self.spread)
        return dataclasses.replace(self, start=start)

    def hub_init(self, template: Vector) -> Any:
        return jax.vmap(self.steered)(self.start)

    def client_init(self, template: Vector) -> Any:
        return self.opened(template)

    def pick(self, received: Vector, objective: Objective) -> Any:
        """The number of the model with the least loss."""
        return jnp.argmin(total_losses(received, objective, self.look))

    def local(self, received: Vector, state: Any, objective: Objective) -> Step:
        cluster = self.pick(received, objective)
        x, kept = self.descend(one_of(received, cluster), state, objective)
        return Step(Message(x, cluster.astype(received.dtype)), kept, self.steps(objective))

    def merge(self, hub: Any, messages: Message, cohort: Cohort, t: Any) -> Any:
        said = jnp.clip(jnp.round(messages.cluster), 0, self.clusters - 1)
        return merged_by_cluster(self, hub, (messages.model, said), cohort, t)

    def models(self, received: Vector, state: Any, objective: Objective) -> dict[str, Vector]:
        return {"personal": one_of(received, self.pick(received, objective))}
