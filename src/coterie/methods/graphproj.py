"""graph-proj: FedU's graph with lp-proj's penalty (ours)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.vector import Vector
from coterie.coupling import merges
from coterie.methods.base import method
from coterie.methods.fedu import Laplacian
from coterie.methods.guard import Guarded
from coterie.methods.sgd import Trained
from coterie.methods.subspace import Subspace


@method(
    "graph-proj", title="graph-proj", paper="(ours: the graph of FedU with the penalty of lp-proj)"
)
class GraphProj(Subspace, Laplacian):
    """A model for every client, pulled towards its neighbours' inside a shared random subspace:
    dsub numbers per message.

    min_X Σ_k f_k(x_k) + η Σ_{(k,l)} a_kl (1/p)‖P(x_k − x_l)‖_p^p

    Per round: R SGD steps as in FedU; the client sends only P x_{k,R}; then

    x_k ← x_{k,R} − μ̃ η Σ_l a_kl Pᵀ ψ_p(P x_{k,R} − P x_{l,R}),  ψ_p(v) = sign(v)|v|^{p−1}

    ============  ================================================
    symbol        argument
    ============  ================================================
    μ, R          lr, local_steps (or local_epochs)
    η, p          eta, p
    P, dsub       projection, dsub, blocks, projection_seed
    μ̃             mix_lr (default μR)
    a_kl          the graph of the experiment
    ============  ================================================

    With P = I and p = 2 it is FedU. With `hub` a hub carries the messages (dsub numbers up, the
    summed pull of dsub numbers down); without, each client sends to its neighbours and all take
    part in every round. For p < 2 differences within rounding do not pull (as in lp-proj), so that
    clients which are alike stay so.
    """

    p: float = option(2.0, "exponent of the penalty", symbol="p", low=1, static=True)
    hub: bool = option(True, "a hub carries the messages; false: neighbours exchange directly")
    neighbours: str = option(
        "sampled",
        "whose models count: neighbours sampled in the same round, or all with their last models",
        choices=("sampled", "all"),
    )

    @property
    def hears_all(self) -> bool:
        return self.neighbours == "all"

    @property
    def hub_between(self) -> bool:
        return self.hub

    def message(self, state: Any) -> Any:
        return self.drawn(state.x)

    @property
    def exponent(self) -> float:
        return self.p

    def size_behind(self, length: Any) -> Any:
        """‖x‖, as far as it can be told from ‖P x‖: rows of P are random and of length 1, so that
        ‖P x‖² is about ‖x‖² dsub/d; with few rows it may be much less, but x began from a model
        that all know.
        """
        ratio = (self.shape.size / self.drawn.dsub) ** 0.5
        return jnp.maximum(ratio * length, jnp.sqrt(self.shape.squared_norm()))

    def absorb(self, state: Any, pull: Any, t: Any) -> Any:
        x = state.x - self.mixing_step(t) * self.drawn.back(pull, state.x)
        return state._replace(x=x)

    def moved(self, message: Any, pull: Any, t: Any) -> Any:
        return message - self.mixing_step(t) * self.drawn(self.drawn.back(pull, self.shape))

    def join(self, template: Vector, messages: Any, weights: Any) -> Trained | Guarded:
        """The common start, moved to the neighbours' mean inside the subspace."""
        away = merges.weighted_mean(messages, weights) - self.drawn(template)
        return self.begins(template + self.drawn.back(away, template), template)

    def stiffness(self, template: Vector) -> float:
        return self.squared_norm_of_p(template) if self.p == 2 else 0.0
