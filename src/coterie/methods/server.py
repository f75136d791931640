"""Server optimisers: rules by which a hub takes w − mean of the messages as a gradient.

Adaptive Federated Optimization (Reddi et al., ICLR 2021) has FedAdagrad, FedYogi and FedAdam:

Δ = mean_{k∈S} w_k − w;  m ← β₁ m + (1−β₁) Δ;  v ← …;  w ← w + η_s m/(√v + τ)

m begins with 0 and v with τ², and neither is corrected for it; that is what tells them from `adam`,
`yogi` and `adagrad`, which are optax's and work at hubs too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, dataclass_transform

import jax
import jax.numpy as jnp

from coterie.core.options import option, registered
from coterie.methods.optimizers import OPTIMIZERS, NamedOptimizer, Optimizer, read

if TYPE_CHECKING:
    import optax

SERVER_OPTIMIZERS: dict[str, type[NamedOptimizer]] = {}
"""Rules for hubs: those here, and all that clients have."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def server_optimizer(name: str) -> Callable[[type[Any]], type[Any]]:
    """Register a rule for hubs under a name."""
    return registered(SERVER_OPTIMIZERS, name)


class Moments(NamedTuple):
    """m and v, in the shape of the model."""

    m: Any
    v: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FedOpt(NamedOptimizer):
    b1: float = option(0.9, "decay of m", symbol="β₁", low=0, high=1)
    tau: float = option(1e-3, "added to √v; v begins with its square", symbol="τ", above=0)

    def grown(self, v: Any, square: Any) -> Any:
        """v after a step, from v and Δ²."""
        raise NotImplementedError

    def rule(self) -> optax.GradientTransformation:
        import optax

        def init(x: Any) -> Moments:
            tau2 = lambda leaf: jnp.full_like(leaf, self.tau**2)
            return Moments(jax.tree.map(jnp.zeros_like, x), jax.tree.map(tau2, x))

        def update(g: Any, state: Moments, x: Any = None) -> tuple[Any, Moments]:
            m = jax.tree.map(lambda a, b: self.b1 * a + (1 - self.b1) * b, state.m, g)
            v = jax.tree.map(lambda a, b: self.grown(a, jnp.square(b)), state.v, g)
            u = jax.tree.map(lambda a, b: a / (jnp.sqrt(b) + self.tau), m, v)
            return u, Moments(m, v)

        return optax.GradientTransformation(init, update)


@server_optimizer("fedadam")
class FedAdam(_FedOpt):
    """FedAdam (Reddi et al. 2021): v ← β₂ v + (1−β₂) Δ²."""

    b2: float = option(0.99, "decay of v", symbol="β₂", low=0, high=1)

    def grown(self, v: Any, square: Any) -> Any:
        return self.b2 * v + (1 - self.b2) * square


@server_optimizer("fedyogi")
class FedYogi(FedAdam):
    """FedYogi (Reddi et al. 2021): v ← v − (1−β₂) Δ² sign(v − Δ²)."""

    def grown(self, v: Any, square: Any) -> Any:
        return v - (1 - self.b2) * square * jnp.sign(v - square)


@server_optimizer("fedadagrad")
class FedAdagrad(_FedOpt):
    """FedAdagrad (Reddi et al. 2021): v ← v + Δ²; without momentum in the paper's experiments."""

    b1: float = option(0.0, "decay of m", symbol="β₁", low=0, high=1)

    def grown(self, v: Any, square: Any) -> Any:
        return v + square


@server_optimizer("fedavgm")
class FedAvgM(NamedOptimizer):
    """FedAvgM (Hsu, Qi and Brown 2019): m ← momentum·m − Δ, w ← w − η_s m."""

    momentum: float = option(0.9, "what is left of m in each round", low=0, high=1)
    nesterov: bool = option(False, "Nesterov's variant")

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.trace(self.momentum, self.nesterov)


SERVER_OPTIMIZERS.update(OPTIMIZERS)


def read_server_optimizer(field: str, value: Any) -> Optimizer:
    """An option `server_optimizer` from what was given."""
    return read(SERVER_OPTIMIZERS, field, value)
