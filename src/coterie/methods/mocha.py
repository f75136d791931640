"""MOCHA: federated multi-task learning of linear models by dual ascent, with stragglers and
drop-outs.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.files import read_arrays
from coterie.core.options import hidden, option
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods import dual
from coterie.methods.base import Step, Work, method
from coterie.methods.star import Cohort, StarMethod
from coterie.models.objective import Objective


class MochaHubState(NamedTuple):
    """V (a row per client), A⁻¹ and Ω."""

    v: Vector
    inverse: Any
    omega: Any


class Received(NamedTuple):
    """What the hub tells client k: its model w_k, and q_k."""

    w: Vector
    q: Any


class MochaState(NamedTuple):
    """What a client keeps: α_i of every sample, and r, the dual variable of the model's own L2 term
    (0 without one).
    """

    alpha: Any
    shrink: Vector


def matrix(p: Vector) -> Any:
    """{"w", "b"} as (outputs, inputs + 1), {"w"} as it is."""
    return jnp.concatenate([p.tree["w"], p.tree["b"][:, None]], 1) if "b" in p.tree else p.tree["w"]


def parameters(m: Any, like: Vector) -> Vector:
    """The inverse of `matrix`."""
    return Vector({"w": m[:, :-1], "b": m[:, -1]} if "b" in like.tree else {"w": m})


@method(
    "mocha",
    title="MOCHA",
    paper="Smith, Chiang, Sanjabi, Talwalkar, Federated Multi-Task Learning, NeurIPS 2017",
)
class Mocha(StarMethod):
    """A linear model for every client, coupled by a matrix Ω of relations; solved in the dual,
    where any client may do little or drop out.

    min over W of Σ_k f_k(w_k) + (λ/2) tr(WΩWᵀ) + (decay/2)‖W‖²_F

    f_k is the mean loss of client k: half the squared error, or the cross-entropy. With
    A = λΩ + decay·I and dual variables α_i per sample:

    v_k = (1/n_k) Σ_i α_i ⊗ x_i,   w_k = Σ_l (A⁻¹)_kl v_l

    Per round the hub tells client k its w_k and q_k = Σ_l |(A⁻¹)_kl|. As

    tr(ΔV A⁻¹ ΔVᵀ) ≤ Σ_k q_k‖Δv_k‖²

    every client may raise its own part of the dual, with q_k in the place of A⁻¹, without knowing
    of the others, and all Δv_k can be added (γ = 1): V ← V + ΔV. dual.py has the coordinate steps.

    ============  ================================================================================
    symbol        argument
    ============  ================================================================================
    λ             lam
    Ω             omega: "mean" (I − 11ᵀ/N)², "identity", "learn", or "file" with omega_file
    H_i           local_epochs: passes over the client's samples per round, each one epoch of SGD
    θ_i^h         slowest: a client does a random share from `slowest` to 1 of its steps, each round
    θ_i^h = 1     drop: the probability that a client drops out of a round and keeps all it has
    ============  ================================================================================

    "learn" starts from Ω = N·I and sets Ω⁻¹ = (WᵀW)^½ / tr (WᵀW)^½ (Zhang and Yeung) every
    `omega_every` rounds, after the merge. As tr Ω⁻¹ = 1 then, Ω is about N times as large as the
    others: take λ that much smaller. The paper sums losses over samples; its published code takes
    means, as here. The code knows the hinge loss, one output and no intercept only; its bound is
    the same for all clients, max_k Σ_l |σ_kl| / σ_kk times σ_kk, ours is each client's own. The
    intercept is the weight of a constant feature and regularised like all others. The model's own
    `l2` joins the problem as one more dual variable per client. Models start from 0, for α = 0.
    Only linear models can be trained: parameters w (outputs, inputs), with or without b (outputs).
    A lossy channel would break the bond between α and V, so it is refused.
    """

    addressed: ClassVar[bool] = True
    needs_exact: ClassVar[bool] = True

    lam: float = option(
        0.1, "how strongly the models are coupled", symbol="λ", low=0, search=LogRange(0.001, 10)
    )
    decay: float = option(
        0.01,
        "weight of (decay/2)‖W‖²; λΩ + decay·I must be positive definite",
        low=0,
        search=LogRange(1e-4, 0.1),
    )
    omega: str = option(
        "mean",
        "Ω, the relations between clients: to their mean, none, learnt, or from a file",
        choices=("mean", "identity", "learn", "file"),
    )
    omega_file: str | None = option(
        None, 'omega "file": a .npy file with a symmetric matrix, clients × clients'
    )
    omega_every: int = option(10, 'omega "learn": rounds between two updates of Ω', low=1)
    omega_floor: float = option(
        1e-3,
        'omega "learn": eigenvalues of Ω⁻¹ are at least this share of the largest',
        above=0,
        high=1,
    )
    local_epochs: int = option(1, "passes over the client's samples per round", symbol="H", low=1)
    slowest: float = option(
        1.0,
        "the smallest share of its steps that a client does in a round",
        symbol="θ",
        above=0,
        high=1,
    )
    drop: float = option(0.0, "probability that a client drops out of a round", low=0, high=1)
    sizes: Any = hidden()
    given: Any = hidden()

    def validate(self) -> None:
        super().validate()
        if self.exchange_growth > 1:
            raise InvalidInput(
                f"mocha.exchange_growth is {self.exchange_growth}, but must be 1: how many passes"
                " a round can have is part of the program."
            )

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Self:
        tree = template.tree
        shapes = {k: np.shape(v) for k, v in tree.items()} if isinstance(tree, dict) else {}
        w = shapes.get("w", ())
        if len(w) != 2 or w[0] != shape.outputs or shapes not in ({"w": w}, {"w": w, "b": w[:1]}):
            raise InvalidInput(
                'mocha needs a linear model such as "mlr" or "linear", whose parameters are w'
                f" ({shape.outputs} × inputs) and perhaps b ({shape.outputs}), but this model has"
                f" {template.size} parameters of another form."
            )
        bound = dataclasses.replace(
            self, sizes=(shape.clients, shape.largest), given=self._read(shape.clients)
        )
        least = self.lam * np.linalg.eigvalsh(bound.relations())[0] + self.decay
        if not least > 1e-12:
            raise InvalidInput(
                f"mocha.decay is {self.decay:g}, but lam·Ω + decay·I must be positive definite, and"
                f" its smallest eigenvalue is {least:.3g}."
            )
        return bound

    def _read(self, clients: int) -> NDArray[np.float64] | None:
        if self.omega != "file":
            return None
        if self.omega_file is None or not Path(self.omega_file).is_file():
            raise InvalidInput(
                f'mocha.omega_file is {self.omega_file!r}, but omega = "file" needs the path of a'
                " .npy file that exists."
            )
        read = read_arrays(Path(self.omega_file), "mocha.omega_file").get("", np.zeros(0))
        read = read.astype(np.float64) if np.issubdtype(read.dtype, np.number) else np.zeros(0)
        if (
            read.shape != (clients, clients)
            or not np.isfinite(read).all()
            or not np.allclose(read, read.T)
        ):
            raise InvalidInput(
                f"mocha.omega_file {self.omega_file!r} must hold a symmetric matrix of finite"
                f" numbers, {clients} × {clients}."
            )
        return read

    def relations(self) -> NDArray[np.float64]:
        """Ω before the first round, N × N; on a bound method."""
        if self.given is not None:
            return np.asarray(self.given)
        n = int(self.sizes[0])
        return (
            np.eye(n) - 1.0 / n
            if self.omega == "mean"
            else np.eye(n) * (n if self.omega == "learn" else 1)
        )

    def hub_init(self, template: Vector) -> MochaHubState:
        n, omega = int(self.sizes[0]), self.relations()
        inverse = np.linalg.inv(self.lam * omega + self.decay * np.eye(n))
        dtype = template.dtype
        return MochaHubState(
            template.map(lambda leaf: jnp.zeros((n, *leaf.shape), dtype)),
            jnp.asarray(inverse, dtype),
            jnp.asarray(omega, dtype),
        )

    def client_init(self, template: Vector) -> MochaState:
        outputs = template.tree["w"].shape[0]
        return MochaState(
            jnp.zeros((int(self.sizes[1]), outputs), template.dtype), template.map(jnp.zeros_like)
        )

    def broadcast(self, hub: MochaHubState, client: Any) -> Received:
        row = hub.inverse[client]
        return Received(hub.v.map(lambda v: jnp.tensordot(row, v, 1)), jnp.sum(jnp.abs(row)))

    def local(self, received: Received, state: MochaState, objective: Objective) -> Step:
        if objective.learner.statistics is not None:
            raise InvalidInput("mocha needs a linear model, but this one normalises by batches.")
        share, absent, order = jax.random.split(objective.private_key, 3)
        planned = self.local_epochs * self.span(objective.t) * objective.size
        done = jnp.ceil(
            planned * (self.slowest + (1.0 - self.slowest) * jax.random.uniform(share)) - 1e-3
        ).astype(jnp.int32)
        present = jax.random.uniform(absent) >= self.drop
        steps = jnp.where(present, done, 0)
        w, q = matrix(received.w), received.q
        alpha, moved = dual.ascend(
            objective,
            state.alpha,
            w,
            q,
            passes=self.local_epochs * self.exchange_every,
            steps=steps,
            key=order,
            bias="b" in received.w.tree,
        )
        # The L2 term of the model is one more block of dual coordinates, r with −r/l2 = w at the
        # optimum: its exact maximiser.
        r = matrix(state.shrink)
        more = jnp.where(
            present, -(objective.l2 * (w + q * moved) + r) / (1.0 + objective.l2 * q), 0.0
        )
        per_epoch = objective.steps_per_epoch
        gradients = jnp.ceil(steps * per_epoch / objective.size - 1e-3).astype(jnp.int32)
        return Step(
            parameters(moved + more, received.w),
            MochaState(alpha, parameters(r + more, received.w)),
            gradients,
            present,
        )

    def merge(self, hub: MochaHubState, messages: Vector, cohort: Cohort, t: Any) -> MochaHubState:
        hub = hub._replace(v=hub.v.map(lambda v, m: v.at[cohort.ids].add(m), messages))
        if self.omega != "learn":
            return hub
        return jax.lax.cond((t + 1) % self.omega_every == 0, self.learn, lambda h: h, hub)

    def learn(self, hub: MochaHubState) -> MochaHubState:
        """Ω for the models that V and the old Ω give; A and Ω have the same eigenvectors."""
        v = jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in hub.v.leaves], 1)
        w = hub.inverse @ v
        values, vectors = jnp.linalg.eigh(w @ w.T)
        root = jnp.sqrt(jnp.maximum(values, 0.0))
        root = jnp.maximum(root, self.omega_floor * root[-1])
        sigma = jnp.where(root[-1] > 0, root / jnp.sum(root), 1.0 / len(root))
        build = lambda d: (vectors * d) @ vectors.T
        return MochaHubState(
            hub.v, build(sigma / (self.lam + self.decay * sigma)), build(1.0 / sigma)
        )

    def for_newcomers(self, largest: int) -> Self:
        return dataclasses.replace(self, sizes=(self.sizes[0], largest))

    def welcome(self, hub: MochaHubState, received: Received, sent: Vector) -> Received:
        """A newcomer k solves min f_k(w) + (λ/2)‖w − w̄‖² + (decay/2)‖w‖² with the members' mean w̄
        fixed: w = (λ w̄ + v_k)/(λ + decay).
        """
        mean = hub.v.map(lambda v: jnp.tensordot(hub.inverse.mean(0), v, 1))
        q = 1.0 / (self.lam + self.decay)
        return Received(q * (self.lam * mean + sent), q)

    def models(
        self, received: Received, state: MochaState, objective: Objective
    ) -> dict[str, Vector]:
        return {"personal": received.w}

    def work(self) -> Work:
        return Work(None, self.local_epochs, None, "sampled")
