"""Optimisers: what turns a gradient into a step.

A method's local steps go along the gradient unless `optimizer` says otherwise, and a hub takes the
mean of the messages unless `server_optimizer` says otherwise. Both take a name, a table of a name
and options, or, in Python, any `optax.GradientTransformation`. The step size stays the method's own
(`lr`, `server_lr`): x ← x − lr·u, where u is what the optimiser makes of the gradient.

optax has the rules. It is imported when an optimiser is used, since it takes a while.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, dataclass_transform, runtime_checkable

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput, shown
from coterie.core.options import Options, by_name, option, registered
from coterie.core.pytree import tree
from coterie.core.vector import Vector

if TYPE_CHECKING:
    import optax

OPTIMIZERS: dict[str, type[NamedOptimizer]] = {}
"""For clients and hubs; methods/server.py has rules for hubs alone."""


@runtime_checkable
class GradientTransformation(Protocol):
    """An `optax.GradientTransformation`."""

    @property
    def init(self) -> Any: ...
    @property
    def update(self) -> Any: ...


class Optimizer:
    """A rule with a state. `x` and gradients are vectors (`core/vector.py`) or arrays."""

    def transform(self) -> optax.GradientTransformation:
        """The rule as optax has it; its updates are directions, to be subtracted."""
        raise NotImplementedError

    def init(self, x: Any) -> Any:
        """The state before the first step."""
        return self.transform().init(_bare(x))

    def direction(self, gradient: Any, state: Any, x: Any) -> tuple[Any, Any]:
        """u of x ← x − lr·u, and the state afterwards."""
        u, state = self.transform().update(_bare(gradient), state, _bare(x))
        return (Vector(u) if isinstance(x, Vector) else u), state

    def check(self, x: Any) -> None:
        """Refuse a rule that does not fit a model; called before the first round."""


def _bare(x: Any) -> Any:
    """The pytree as the model has it, which is what optax's masks and labels refer to."""
    return x.tree if isinstance(x, Vector) else x


@tree
@dataclasses.dataclass(frozen=True)
class Given(Optimizer):
    """An optax transformation that somebody made in Python.

    Static: runs share their compiled programs when they share the object. Its updates are added, as
    optax's are, times the method's step size; so its own step size should be 1.
    """

    rule: Any = dataclasses.field(metadata={"static": True})
    name: ClassVar[str] = "optax"

    def transform(self) -> optax.GradientTransformation:
        import optax

        return optax.chain(self.rule, optax.scale(-1.0))

    def check(self, x: Any) -> None:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x)):
            return
        gradient, begun = jax.tree.map(jnp.ones_like, x), jax.tree.map(jnp.zeros_like, x)
        try:
            u = self.direction(gradient, self.init(begun), begun)[0]
            downhill = sum(float(jnp.sum(leaf)) for leaf in jax.tree.leaves(u))
        except Exception as error:
            text = str(error).strip().splitlines() or [type(error).__name__]
            raise InvalidInput(
                "the optax transformation that is given as an optimizer fails on this model's"
                f" parameters ({text[0].rstrip('.')})."
            ) from error
        if downhill < 0:
            raise InvalidInput(
                "the optax transformation that is given as an optimizer goes up the gradient, but"
                " must go down, as optax.adam(1.0) does and optax.scale_by_adam() does not."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedOptimizer(Options, Optimizer):
    """A rule of optax by its name, with options that are traced."""

    summary: ClassVar[str] = ""
    decays: ClassVar[tuple[str, ...]] = ("b1", "b2", "momentum", "decay")
    """Options that must be below 1."""

    clip: float | None = option(
        None, "cut the gradient to this length first (the norm over all parameters)", above=0
    )
    weight_decay: float = option(
        0.0, "adds weight_decay·x to the direction, after the rule (decoupled decay)", low=0
    )

    def validate(self) -> None:
        for name in self.decays:
            value = getattr(self, name, 0.0)
            if isinstance(value, float) and value >= 1:
                raise InvalidInput(f"{self.name}.{name} is {value:g}, but must be below 1.")

    def rule(self) -> optax.GradientTransformation:
        """The rule without clipping and decay."""
        raise NotImplementedError

    @property
    def plain(self) -> bool:
        """True when the direction is the gradient itself."""
        return False

    def transform(self) -> optax.GradientTransformation:
        import optax

        parts = [self.rule(), optax.add_decayed_weights(self.weight_decay)]
        if self.clip is not None:
            parts.insert(0, optax.clip_by_global_norm(self.clip))
        return optax.chain(*parts)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def optimizer(name: str) -> Callable[[type[Any]], type[Any]]:
    """Register a rule under a name."""
    return registered(OPTIMIZERS, name)


@optimizer("sgd")
class Sgd(NamedOptimizer):
    """u = the gradient: plain steps, as without an optimiser."""

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.identity()

    @property
    def plain(self) -> bool:
        return self.clip is None and isinstance(self.weight_decay, float) and not self.weight_decay


@optimizer("momentum")
class Momentum(NamedOptimizer):
    """Heavy ball, or Nesterov's: m ← momentum·m + g, u = m (or g + momentum·m)."""

    momentum: float = option(0.9, "what is left of m in each step", low=0, high=1)
    nesterov: bool = option(False, "Nesterov's variant")

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.trace(self.momentum, self.nesterov)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Moments(NamedOptimizer):
    b1: float = option(0.9, "decay of the mean of the gradients", symbol="β₁", low=0, high=1)
    b2: float = option(0.999, "decay of the mean of their squares", symbol="β₂", low=0, high=1)
    eps: float = option(1e-8, "added to the root of the squares", symbol="ε", above=0)


@optimizer("adam")
class Adam(_Moments):
    """Adam (Kingma and Ba 2015): u = m̂/(√v̂ + ε), with bias-corrected means m̂ of the gradients and v̂
    of their squares.
    """

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_adam(self.b1, self.b2, self.eps)


@optimizer("adamw")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = option(1e-4, "adds weight_decay·x to the direction", low=0)


@optimizer("amsgrad")
class Amsgrad(_Moments):
    """AMSGrad (Reddi et al. 2018): Adam whose v̂ never gets smaller."""

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_amsgrad(self.b1, self.b2, self.eps)


@optimizer("yogi")
class Yogi(_Moments):
    """Yogi (Zaheer et al. 2018): Adam whose v moves by signs, so that it changes slowly."""

    eps: float = option(1e-3, "added to the root of the squares", symbol="ε", above=0)

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_yogi(self.b1, self.b2, self.eps)


@optimizer("adagrad")
class Adagrad(NamedOptimizer):
    """Adagrad (Duchi et al. 2011): u = g/√(v + ε), v the sum of all squares so far."""

    begin: float = option(0.1, "v before the first step", low=0)
    eps: float = option(1e-7, "added to v", symbol="ε", above=0)

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_rss(self.begin, self.eps)


@optimizer("rmsprop")
class Rmsprop(NamedOptimizer):
    """RMSProp (Hinton 2012): u = g/√(v + ε), v the decaying mean of the squares."""

    decay: float = option(0.9, "decay of the mean of the squares", low=0, high=1)
    eps: float = option(1e-8, "added to v", symbol="ε", above=0)

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_rms(self.decay, self.eps)


@optimizer("lion")
class Lion(NamedOptimizer):
    """Lion (Chen et al. 2023): u = the sign of a mean of m and g."""

    b1: float = option(0.9, "weight of m in the sign", symbol="β₁", low=0, high=1)
    b2: float = option(0.99, "decay of m", symbol="β₂", low=0, high=1)

    def rule(self) -> optax.GradientTransformation:
        import optax

        return optax.scale_by_lion(self.b1, self.b2)


def read_optimizer(field: str, value: Any) -> Optimizer | None:
    """An option `optimizer` from what was given; None: plain steps."""
    found = read(OPTIMIZERS, field, value)
    return None if isinstance(found, Sgd) and found.plain else found


def read(registry: dict[str, type[NamedOptimizer]], field: str, value: Any) -> Optimizer:
    """An optimiser by its name, from a table of a name and options, or from optax."""
    value = by_name(registry, field, value)
    if isinstance(value, GradientTransformation) and isinstance(value, tuple):
        value = Given(value)
    if not isinstance(value, Optimizer):
        raise InvalidInput(
            f"{field} is {shown(value)}, but must be a name, a table of a name and options, or an"
            " optax.GradientTransformation."
        )
    return value
