"""FedEM: a few models that all share; every client predicts by its own mixture of them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp

from coterie.core.options import hidden, option
from coterie.core.search import Among, LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Step, method
from coterie.methods.several import one_of, scattered
from coterie.methods.sgd import LocalSGD
from coterie.methods.star import Averaging
from coterie.models.base import Model
from coterie.models.mixture import COMPONENTS, WEIGHTS, Mixed, mixture
from coterie.models.objective import Batch, Objective


class EMState(NamedTuple):
    """What a client keeps: the weights of its mixture, and its optimiser's state."""

    weights: Any
    optimizer: Any = ()


def losses(components: Vector, objective: Objective, batch: Batch) -> Any:
    """The loss of each component on each sample: (M, samples)."""
    learner = objective.learner
    assert isinstance(learner.apply, Mixed)
    outputs = learner.apply.each(components.tree, batch.x)
    return jax.vmap(lambda one: learner.sample_losses(one, batch.y))(outputs)


def responsibilities(weights: Any, losses: Any) -> Any:
    """q_im ∝ π_m exp(−ℓ_im), which add up to 1 over the components (axis 0).

    >>> found = responsibilities(jnp.array([0.75, 0.25]), jnp.zeros((2, 1)))
    >>> [round(q, 3) for q in found.ravel().tolist()]
    [0.75, 0.25]
    """
    shares = jnp.log(jnp.maximum(weights, jnp.finfo(weights.dtype).tiny))
    return jax.nn.softmax(shares[:, None] - losses, axis=0)


@method(
    "fedem",
    title="FedEM",
    paper=(
        "Marfoq, Neglia, Bellet, Kameni, Vidal, Federated Multi-Task Learning under a Mixture of"
        " Distributions, NeurIPS 2021"
    ),
)
class FedEM(Averaging, LocalSGD):
    """M models at the hub, the components, are trained by all; a client's data are taken for a
    mixture of what they describe, in shares of its own.

    max over θ_1 … θ_M and π_1 … π_N of Σ_k Σ_i log Σ_m π_km exp(−ℓ(θ_m; x_i, y_i))

    Client k, with the components θ and its π_k:

    q_im = π_km exp(−ℓ(θ_m; x_i, y_i)), divided by their sum over m;  π_km ← mean_i q_im
    θ_m by R SGD steps on mean_i q_im ℓ(θ_m; x_i, y_i), all m at once, q as it was

    It sends all θ_m and keeps π_k. Hub, for every m: θ_m ← (1−β)θ_m + β Σ_k n_k θ_km / Σ_k n_k

    ============  ==============================================================================
    symbol        argument
    ============  ==============================================================================
    M             components
    μ, R          lr, local_steps (or local_epochs)
    n_k           weighting = "samples", as in the paper
    β             beta (1 in the paper)
    σ             spread
    ============  ==============================================================================

    "personal" is a mixture (`coterie.models.mixture`): p(y|x) = Σ_m π_km p(y|x, θ_m) for classes,
    Σ_m π_km θ_m(x) for numbers, whose errors are taken for standard normal: targets should have
    about unit noise. θ_1 begins as the run's model and the others as the same with noise, as in
    IFCA: alike components would stay alike. The paper draws all at random.

    π_k is taken over an epoch of the round's mini-batches, at most `look` of them. A step is one
    mini-batch gradient, though it is of M models; q needs M forward passes more. Md numbers go up
    and down. Who was never sampled has π = 1/M; a newcomer finds its own by its rounds. A mixture
    has no ONNX file, and its parts must have the usual loss and no batch normalisation.
    """

    components: int = option(
        3, "models that clients mix", symbol="M", low=1, search=Among((2, 3, 5))
    )
    spread: float = option(
        1.0,
        "how far apart the models begin: the noise of an array, relative to its entries",
        symbol="σ",
        above=0,
        search=LogRange(0.1, 10),
    )
    look: int = option(50, "the most mini-batches of training data that π_k is taken from", low=1)
    weighting: str = option(
        "samples",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )
    start: Any = hidden()

    def modelled(self, model: Model, shape: ProblemShape) -> Model:
        return mixture(model, self.components, shape.task)

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        first = one_of(Vector(template.tree[COMPONENTS]), 0)
        start = scattered(first, key, self.components, self.spread)
        return dataclasses.replace(self, start=start)

    def hub_init(self, template: Vector) -> Any:
        return self.steered(self.start)

    def client_init(self, template: Vector) -> EMState:
        return EMState(template.tree[WEIGHTS], self.opened(self.start))

    def mixed(self, received: Vector, weights: Any, objective: Objective) -> Any:
        """π_k after an E-step."""

        def add(i: Any, sums: tuple[Any, Any]) -> tuple[Any, Any]:
            total, count = sums
            batch = objective.batch(i)
            q = responsibilities(weights, losses(received, objective, batch))
            return total + q @ batch.weight, count + jnp.sum(batch.weight)

        begin = jnp.zeros_like(weights), jnp.zeros((), weights.dtype)
        last = jnp.minimum(objective.steps_per_epoch, self.look)
        total, count = jax.lax.fori_loop(0, last, add, begin)
        return total / count

    def local(self, received: Vector, state: EMState, objective: Objective) -> Step:
        def gradient(x: Vector, i: Any) -> Vector:
            batch = objective.batch(i)
            q = responsibilities(state.weights, losses(received, objective, batch)) * batch.weight

            def loss(x: Vector) -> Any:
                mean = jnp.sum(q * losses(x, objective, batch)) / jnp.sum(batch.weight)
                return mean + 0.5 * objective.l2 * x.squared_norm()

            return jax.grad(loss)(x)

        weights = self.mixed(received, state.weights, objective)
        x, kept = self.descend(received, state.optimizer, objective, gradient)
        return Step(x, EMState(weights, kept), self.steps(objective))

    def models(self, received: Vector, state: EMState, objective: Objective) -> dict[str, Vector]:
        return {"personal": Vector({COMPONENTS: received.tree, WEIGHTS: state.weights})}
