"""APFL: each client mixes a model of its own with the global one."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.search import LinearRange
from coterie.core.vector import Vector
from coterie.methods.base import Step, Work, method
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.objective import Objective


class APFLState(NamedTuple):
    """What a client keeps: v_k, its own α_k when that is learnt, and its optimiser's states (()
    where they are fresh every round) of w and of v_k.
    """

    v: Vector
    alpha: Any
    shared: Any = ()
    personal: Any = ()


def mix(alpha: Any, v: Vector, w: Vector) -> Vector:
    """α v + (1−α) w, exact for α = 0 and 1."""
    return alpha * v + (1.0 - alpha) * w


def inner_product(a: Vector, b: Vector) -> Any:
    return sum(jnp.vdot(x, y) for x, y in zip(a.leaves, b.leaves, strict=True))


@method(
    "apfl",
    title="APFL",
    paper="Deng, Kamani, Mahdavi, Adaptive Personalized Federated Learning, 2020",
)
class APFL(Averaging, LocalSGD):
    """Two models per client, FedAvg's w and an own v_k; predictions come from their mixture, whose
    weight can be learnt.

    min over w of Σ_k (n_k/n) f_k(w), and for every client min over v of f_k(α v + (1−α) w)

    Per round: w_{k,0} = w; R times, on one mini-batch and all from the old values, with
    v̄ = α v_k + (1−α) w_{k,r}:

    w_{k,r+1} = w_{k,r} − μ ∇f̃_k(w_{k,r})
    v_k ← v_k − μ α ∇f̃_k(v̄)
    if `adapt`: α_k ← α_k − μ ⟨v_k − w_{k,r}, ∇f̃_k(v̄)⟩, cut to [0, 1]

    Hub: w ← (1−β) w + β Σ_{k∈S} (n_k/n_S) w_{k,R}

    ============  ================================================================
    symbol        argument
    ============  ================================================================
    α             alpha: fixed (may be a schedule), or with `adapt` where α_k starts
    μ, R          lr, local_steps (or local_epochs)
    β             beta (1 in the paper)
    n_k/n_S       weighting = "samples"; "uniform" counts every client alike
    ============  ================================================================

    "personal" is α v_k + (1−α) w with the newest w, "global" is w. A local step takes two
    gradients, at w and at v̄, and both are counted. α = 0 predicts with FedAvg's model, α = 1 with
    Local's. While v_k = w the derivative of α is 0, so the first step of all never moves α. The
    published code (FedTorch) differs: it steps w first and takes v's gradient at the new w, and it
    moves α in the first step of a round only, with 0.02·α added to its derivative. An `optimizer`
    takes the steps of w and of v_k, each with a state of its own; α_k has gradient steps in any
    case.
    """

    views: ClassVar[tuple[str, ...]] = ("personal", "global")

    alpha: Number = option(
        0.5,
        "weight of the client's own model in the mixture; where it starts if it adapts",
        symbol="α",
        low=0,
        high=1,
        search=LinearRange(0.1, 0.9),
    )
    adapt: bool = option(False, "every client learns its own α by gradient steps")
    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    def hub_init(self, template: Vector) -> Any:
        return self.steered(template)

    def client_init(self, template: Vector) -> APFLState:
        return APFLState(
            template,
            jnp.asarray(at(self.alpha, 0), template.dtype) if self.adapt else None,
            self.opened(template),
            self.opened(template),
        )

    def local(self, received: Vector, state: APFLState, objective: Objective) -> Step:
        lr = at(self.lr, objective.t)
        steps = self.steps(objective)

        def step(i: Any, state: tuple[Vector, APFLState]) -> tuple[Vector, APFLState]:
            w, (v, own, shared, personal) = state
            alpha = self.weight(own, objective.t)
            batch = objective.batch(i)
            mixed = objective.gradient(mix(alpha, v, w), batch)
            if self.adapt:
                own = jnp.clip(alpha - lr * inner_product(v - w, mixed), 0.0, 1.0)
            if self.rule is None:
                v = v - lr * alpha * mixed
            else:
                v, personal = self.step(v, alpha * mixed, personal, lr)
            w, shared = self.step(w, objective.gradient(w, batch), shared, lr)
            return w, APFLState(v, own, shared, personal)

        begin = state._replace(
            shared=self.begun(state.shared, received), personal=self.begun(state.personal, state.v)
        )
        w, after = jax.lax.fori_loop(0, steps, step, (received, begin))
        kept = after._replace(shared=self.ended(after.shared), personal=self.ended(after.personal))
        return Step(w, kept, 2 * steps)

    def weight(self, own: Any, t: Any) -> Any:
        """α of this client in round t."""
        return own if self.adapt else at(self.alpha, t)

    def models(self, received: Vector, state: APFLState, objective: Objective) -> dict[str, Vector]:
        return {
            "personal": mix(self.weight(state.alpha, objective.t), state.v, received),
            "global": received,
        }

    def work(self) -> Work:
        work = super().work()
        return work._replace(
            steps=work.steps and 2 * work.steps, epochs=work.epochs and 2 * work.epochs
        )
