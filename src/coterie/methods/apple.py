"""APPLE: every client learns how much of each client's core model goes into its own model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.methods.base import Step, method
from coterie.methods.memory import Memory, Remembering, inner, mixed
from coterie.methods.sgd import LocalSGD
from coterie.models.objective import Objective


class Cores(NamedTuple):
    """What the hub sends: the core models of all clients, stacked along axis 0; what each client
    counts (0: not heard of yet); and 1 for the client that it is sent to, 0 for the others.
    """

    models: Vector
    counts: Any
    mine: Any


class AppleState(NamedTuple):
    """What a client keeps: its core model, how far p_i has gone from p_0 (for itself, and for the
    core models of all), and its optimiser's state.
    """

    core: Vector
    own: Any
    others: Any
    optimizer: Any = ()


@method(
    "apple",
    title="APPLE",
    paper=(
        "Luo, Wu, Adapt to Adaptation: Learning Personalization for Cross-Silo Federated Learning,"
        " IJCAI 2022"
    ),
)
class APPLE(Remembering, LocalSGD):
    """Every client has a core model w_j, which all download; its own model is a sum of them with
    weights that it learns, the directed relationships p_i.

    x_i = Σ_j p_ij w_j,  min over w_i and p_i of f_i(x_i) + (λ(t)/2)‖p_i − p_0‖²,  p_0j = n_j/n

    Client i, R times, all other w_j as they came, with g = ∇f̃_i(x_i):

    w_i ← w_i − μ p_ii g;  p_ij ← p_ij − η (⟨g, w_j⟩ + λ(t)(p_ij − p_0j)) for all j

    It sends w_i and keeps p_i. The hub passes on the last core model of every client.

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    μ, R          lr (η₁ in the paper), local_steps (or local_epochs)
    η             weight_lr (η₂)
    λ(t)          lam; the paper's λ(r)μ, which falls to 0 in L rounds, is the schedule
                  lam = { kind = "cosine", value = μ, rounds = L }
    n_j           weighting = "samples"; "uniform" counts every client alike
    ============  ================================================================================

    p_i may be negative and need not add up to 1. All begin with p_0 and the run's model as core
    model, also those not heard of yet; the authors' code begins with another random model for each.
    Nobody knows n_j before client j has sent something: until then it counts as much as the client
    itself. So in the first round p_0 is 1/N. The authors' code penalises ‖p − p_0‖² without the ½,
    also has a schedule that falls exponentially, and takes its optimiser to p_i; here `optimizer`
    makes the steps of w_i, and those of p_i are plain. Where the rounds stand still, ∇f_i(x_i) = 0
    or p_ii = 0: λ and the length of training decide how far a client goes from the others.

    Everybody downloads N core models, its own among them, and N weights twice: N(d + 2) numbers
    down, d up. The paper's way to download only M of them, and to go on with old ones for the rest,
    needs N × d numbers of memory at every client, and is left out. A newcomer's core model is one
    more among the others'. "personal" is x_i with the core models as they are now.
    """

    lam: Number = option(
        0.1,
        "how strongly p_i is held to p_0",
        symbol="λ",
        low=0,
        search=LogRange(0.001, 10),
    )
    weight_lr: Number = option(
        0.001, "step size of p_i", symbol="η", low=0, search=LogRange(1e-4, 0.1)
    )
    weighting: str = option(
        "samples",
        "what a client counts in p_0: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    @property
    def by_samples(self) -> bool:
        return self.weighting == "samples"

    def broadcast(self, hub: Memory, client: Any) -> Cores:
        mine = jnp.arange(len(hub.counts)) == client
        return Cores(hub.models, hub.counts, mine.astype(hub.counts.dtype))

    def welcome(self, hub: Memory, received: Cores, sent: Vector) -> Cores:
        return received._replace(mine=jnp.zeros_like(received.mine))

    def reference(self, received: Cores, message: Vector) -> Vector:
        """The client's core model as the hub has it."""
        return mixed(received.mine, received.models)

    def client_init(self, template: Vector) -> AppleState:
        n, none = int(self.clients), jnp.zeros((), template.dtype)
        return AppleState(template, none, jnp.zeros(n, template.dtype), self.opened(template))

    def start(self, received: Cores, objective: Objective) -> tuple[Any, Any]:
        """p_0: for the client itself, and for the others' core models."""
        counts = received.counts
        own = jnp.asarray(objective.size if self.by_samples else 1, counts.dtype)
        others = jnp.where(received.mine > 0.5, 0, jnp.where(counts > 0, counts, own))
        total = own + jnp.sum(others)
        return own / total, others / total

    def model(self, received: Cores, state: AppleState, objective: Objective) -> Vector:
        """x_i."""
        own, others = self.start(received, objective)
        summed = mixed(others + state.others, received.models)
        return (own + state.own) * state.core + summed  # type: ignore[no-any-return]

    def local(self, received: Cores, state: AppleState, objective: Objective) -> Step:
        t, steps = objective.t, self.steps(objective)
        lr, eta, lam = at(self.lr, t), at(self.weight_lr, t), at(self.lam, t)
        own = self.start(received, objective)[0]
        elsewhere = received.mine <= 0.5

        def one(i: Any, now: AppleState) -> AppleState:
            g = objective.gradient(self.model(received, now, objective), objective.batch(i))
            along = jax.vmap(lambda w: inner(g, w))(received.models)
            others = now.others - eta * jnp.where(elsewhere, along + lam * now.others, 0)
            self_ = now.own - eta * (inner(g, now.core) + lam * now.own)
            core, kept = self.step(now.core, (own + now.own) * g, now.optimizer, lr)
            return AppleState(core, self_, others, kept)

        begin = state._replace(optimizer=self.begun(state.optimizer, state.core))
        after = jax.lax.fori_loop(0, steps, one, begin)
        return Step(after.core, after._replace(optimizer=self.ended(after.optimizer)), steps)

    def models(self, received: Cores, state: AppleState, objective: Objective) -> dict[str, Vector]:
        return {"personal": self.model(received, state, objective)}
