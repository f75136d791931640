"""FedU and dFedU: multi-task learning over a client graph, with and without a hub."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.coupling import merges, penalty
from coterie.methods.base import Condition, Step, Work, method
from coterie.methods.conditions import rate
from coterie.methods.graph import GraphMethod
from coterie.methods.guard import Guarded, between, share_of
from coterie.methods.sgd import LocalSGD, Trained
from coterie.models.objective import Objective

PAPER = (
    "T. Dinh et al., A New Look and Convergence Rate of Federated Multitask Learning with Laplacian"
    " Regularization, IEEE TNNLS 2022"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laplacian(GraphMethod, LocalSGD):
    """Shared by methods over a client graph: local SGD, then a step towards (or along) the
    neighbours' messages.

    With an `optimizer`, μ̃ = μR is no longer the length of time that R local steps go along the
    gradient. Adam moves a coordinate by about μ in a step, whatever the gradient's size, so the
    pull's weight relative to the local steps depends on the gradients' scale. `mix_lr` sets μ̃ by
    itself.
    """

    strength: ClassVar[str] = "eta"

    eta: Number = option(
        0.01, "strength of the coupling", symbol="η", low=0, search=LogRange(1e-4, 0.3)
    )
    mix_lr: Number | None = option(
        None,
        "step of the mixing for a round's work; nothing: μR as in the paper, R as given in steps or"
        " epochs",
        symbol="μ̃",
        above=0,
    )

    edge_penalty: str = option(
        "squared",
        "what a difference v between neighbours costs: ½‖v‖², or its length ‖v‖ (Network Lasso),"
        " which makes some neighbours equal and lets others differ",
        choices=("squared", "norm"),
    )
    empty: int | None = option(
        None,
        "the number of a client without a loss (F = 0): it takes no steps and is only pulled, like"
        " the middle of a star; its data are not used",
        low=0,
    )
    implicit: bool = option(
        False,
        "mix by an implicit step, (x + s Σ a m)/(1 + s Σ a) with s = μ̃ η, which is stable however"
        " large s is: for few exchanges with much local work between (exchange_every)",
    )
    mixing: str = option(
        "sum",
        "how neighbours pull: all of them, or made robust against Byzantine ones among them",
        choices=("sum", "median", "trimmed", "clipping"),
    )
    trim: float = option(
        0.1, 'mixing "trimmed": the share of neighbours cut off at either end', low=0, high=0.5
    )
    clip: float = option(
        1.0, 'mixing "clipping": the length to which each difference is cut', above=0
    )
    guard: bool = option(
        False,
        "do no harm: every client also trains a model alone (twice the gradients, no more bytes),"
        " and uses the mixture of both that is best on its own validation rows",
    )

    def validate(self) -> None:
        super().validate()
        if self.edge_penalty == "norm" and (self.mixing != "sum" or self.exponent != 2):
            raise InvalidInput(
                f"{self.name}.edge_penalty is 'norm', but mixing is {self.mixing!r} and the"
                f" exponent {self.exponent:g}; it needs mixing 'sum' and the exponent 2."
            )
        if self.implicit and self.edge_penalty == "norm":
            raise InvalidInput(
                f"{self.name}.implicit is true, but edge_penalty is 'norm'; it needs 'squared'."
            )
        if self.implicit and not self.pulls_linearly:
            raise InvalidInput(
                f"{self.name}.implicit is true, but mixing is {self.mixing!r} and the exponent"
                f" {self.exponent:g}; it needs mixing 'sum' and the exponent 2."
            )

    def effective(self, weights: Any, t: Any) -> Any:
        """With an implicit step a/(1 + s Σ a): x − s Σ a′(x − m) is then a mean of x and all m."""
        if not self.implicit:
            return weights
        return weights / (1.0 + self.mixing_step(t) * weights.sum(-1, keepdims=True))

    def mixing_step(self, t: Any) -> Any:
        """μ̃ η."""
        step = at(self.lr, t) * self.R if self.mix_lr is None else at(self.mix_lr, t)
        return step * at(self.eta, t) * self.span(t)

    def client_init(self, template: Vector) -> Trained | Guarded:
        return self.begins(template, template)

    def begins(self, x: Vector, template: Vector) -> Trained | Guarded:
        """What a client keeps that begins with the model x."""
        if self.guard:
            return Guarded(x, self.opened(template), template, self.opened(template))
        return Trained(x, self.opened(template))

    def local(self, received: Any, state: Any, objective: Objective) -> Step:
        x, kept = self.descend(state.x, state.optimizer, objective)
        state, steps = state._replace(x=x, optimizer=kept), self.steps(objective)
        if self.guard:
            alone, kept = self.descend(state.alone, state.alone_optimizer, objective)
            state, steps = state._replace(alone=alone, alone_optimizer=kept), 2 * steps
        return Step(self.message(state), state, steps)

    def steps(self, objective: Objective) -> Any:
        """Of the empty client none."""
        steps = super().steps(objective)
        return steps if self.empty is None else jnp.where(objective.client == self.empty, 0, steps)

    def work(self) -> Work:
        work = super().work()
        if not self.guard:
            return work
        twice = lambda count: None if count is None else 2 * count
        return work._replace(steps=twice(work.steps), epochs=twice(work.epochs))

    @property
    def validates(self) -> bool:
        return self.guard

    def message(self, state: Any) -> Any:
        return state.x

    def pull(self, own: Any, messages: Any, weights: Any) -> Any:
        if self.edge_penalty == "norm":
            return penalty.unit_pull(own, messages, weights, self.size_behind)
        if self.mixing == "sum":
            return penalty.pull(own, messages, weights, self.exponent, self.size_behind)
        return merges.robust_pull(
            self.mixing,
            own,
            messages,
            weights,
            self.exponent,
            trim=self.trim,
            clip=self.clip,
            size=self.size_behind,
        )

    def size_behind(self, length: Any) -> Any:
        """The size of the numbers that a message of this length was computed from.

        For p < 2 what is within their rounding does not pull.
        """
        return length

    def own_pull(self, own: Any) -> Any:
        """Σ a (own − m) / Σ a = own − the neighbours' mean."""
        return own if self.pulls_linearly else super().own_pull(own)

    @property
    def exponent(self) -> float:
        """p of the penalty."""
        return 2.0

    @property
    def pulls_linearly(self) -> bool:
        squared = self.exponent == 2 and self.edge_penalty == "squared"
        return squared and self.mixing == "sum"

    def absorb(self, state: Any, pull: Any, t: Any) -> Any:
        return state._replace(x=state.x - self.mixing_step(t) * pull)

    def moved(self, message: Any, pull: Any, t: Any) -> Any:
        return message - self.mixing_step(t) * pull

    def join(self, template: Vector, messages: Any, weights: Any) -> Trained | Guarded:
        """The neighbours' mean."""
        return self.begins(merges.weighted_mean(messages, weights), template)

    def models(self, received: Any, state: Any, objective: Objective) -> dict[str, Vector]:
        if not self.guard:
            return {"personal": state.x}
        return {"personal": between(state.alone, state.x, share_of(state, objective))}

    def stiffness(self, template: Vector) -> float:
        """By how much the penalty's gradient can grow per unit of difference, relative to ½‖·‖²."""
        return 1.0

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        if self.edge_penalty == "norm":  # bounded pulls: they jitter, and stay where they are
            return []
        if self.implicit:
            text = "‖P‖² (stability of the implicit mixing step)"
            return [Condition(text, self.stiffness(template), 2.0)]
        step = rate(self.lr) * self.R if self.mix_lr is None else rate(self.mix_lr)
        value = step * rate(self.eta) * laplacian_norm * self.stiffness(template) * self.longest
        return [Condition("μ̃·η·‖L‖ (stability of the mixing step, μ̃ = lr·R)", value, 2.0)]


@method("fedu", title="FedU", paper=PAPER)
class FedU(Laplacian):
    """A model for every client, pulled towards its neighbours' on a weighted graph (Laplacian
    regularisation), with a hub.

    min_W Σ_k F_k(w_k) + (η/2) Σ_k Σ_l a_kl ‖w_k − w_l‖²

    Per round (Alg. 1), for the sampled clients: R SGD steps from w_k, then all at once

    w_k ← w_{k,R} − μ̃ η Σ_l a_kl (w_{k,R} − w_{l,R}),  μ̃ = μR

    The others keep w_k.

    ============  ================================================
    symbol        argument
    ============  ================================================
    μ, R          lr, local_steps (or local_epochs)
    η             eta
    μ̃             mix_lr (default μR)
    a_kl          the graph of the experiment
    S^(t)         cohort
    ============  ================================================

    Algorithm 1 sums over all neighbours, with their stale models (`neighbours = "all"`); the
    paper's text and the published code only over those that were sampled too, which is the default
    (`neighbours = "sampled"`). The update is simultaneous; the published code does it in place,
    client after client, takes β/2 times the step (β an option of its own), and counts R in epochs
    (`local_epochs`). The gradient of the paper's (3) is twice the step taken here: we follow the
    update. The mixing step is stable while μ̃ η ‖L‖ < 2. With an `optimizer` the pull stays
    μ̃ η with μ̃ = μR, but the local steps are no longer μ times a gradient: Adam moves a coordinate
    by about μ in a step whatever the gradient's size, so η means something else. `mix_lr` sets μ̃ by
    itself.

    `edge_penalty = "norm"` is Network Lasso (the paper's Remark 1): η Σ_{k<l} a_kl ‖w_k − w_l‖, by
    steps along its subgradient Σ_l a_kl (w_k − w_l)/‖w_k − w_l‖. It holds neighbours together
    exactly where η is large enough, to the jitter of such steps, μ̃ η: let `lr` fall. On a star
    whose middle has no loss (`empty`), FedU solves pFedMe's problem with λ = η a_k0.
    """

    neighbours: str = option(
        "sampled",
        "whose models count: neighbours sampled in the same round, or all with their last models",
        choices=("sampled", "all"),
    )

    @property
    def hears_all(self) -> bool:
        return self.neighbours == "all"


@method("dfedu", title="dFedU", paper=PAPER)
class DFedU(Laplacian):
    """FedU without a hub: every client sends its model to its neighbours and mixes by itself.

    Per round (Alg. 2), every client: R SGD steps, w_{k,R} to each neighbour, then

    w_k ← w_{k,R} − μ̃ η Σ_l a_kl (w_{k,R} − w_{l,R})

    ============  ================================================
    symbol        argument
    ============  ================================================
    μ, R          lr, local_steps (or local_epochs)
    η             eta
    μ̃             mix_lr (default μR)
    a_kl          the graph of the experiment
    ============  ================================================

    There is nobody to sample clients, so all take part: the same sequence as FedU with S = N. A
    client pays for d numbers to every neighbour. With `edges` (not in the paper) a round takes so
    many edges, drawn by the seed that all know: their ends train, exchange over them, and mix with
    the sums over these edges alone; the others rest. Where all edges are drawn, that is the paper's
    round for clients with neighbours.
    """

    edges: int | None = option(
        None,
        "edges drawn for a round, whose ends train and exchange over them (simulations only);"
        " nothing: all edges, and all clients train",
        low=1,
    )

    def takers(self, cohort: int, clients: int) -> int:
        return clients if self.edges is None else min(2 * self.edges, clients)

    def check_deployed(self) -> None:
        super().check_deployed()
        if self.edges is not None:
            raise InvalidInput(
                f"dfedu.edges is {self.edges}, but in deployments all edges are used; leave it out."
            )

    @property
    def hub_between(self) -> bool:
        return False
