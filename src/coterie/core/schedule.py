"""Hyper-parameters that change with the round t, as in Theorems 14 and 15 of the lp-proj paper.

Wherever a method takes a float (a rate, a strength, a tolerance) it also takes a schedule. The
numbers inside are traced, so another value does not compile again.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from coterie.core.errors import InvalidInput, unknown
from coterie.core.pytree import tree


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A value per round: call it with t = 0, 1, 2, …"""

    kind: ClassVar[str]
    signed: ClassVar[tuple[str, ...]] = ()
    """The numbers in it that may be negative."""

    @property
    def last(self) -> Any:
        """The last round in which its value must be allowed: here one much later."""
        return 10**6

    def __call__(self, t: Any) -> Any:
        raise NotImplementedError


@tree
@dataclasses.dataclass(frozen=True)
class InverseTime(Schedule):
    """`scale / (shift + t)`: η_t and ν_t of Theorem 14 (scale = 8/(βRμ_F), shift = ζ)."""

    scale: Any
    shift: Any = 1.0
    kind: ClassVar[str] = "inverse-time"

    def __call__(self, t: Any) -> Any:
        return self.scale / (self.shift + t)


@tree
@dataclasses.dataclass(frozen=True)
class InverseSqrt(Schedule):
    """`scale / sqrt(t + 1)`: η_t and ν_t of Theorem 15."""

    scale: Any
    kind: ClassVar[str] = "inverse-sqrt"

    def __call__(self, t: Any) -> Any:
        return self.scale / jnp.sqrt(t + 1.0)


@tree
@dataclasses.dataclass(frozen=True)
class Linear(Schedule):
    """`slope · (shift + t)`: D_t of Theorem 14 (slope = μ_F/D, shift = ζ), rounded up where a count
    is needed.
    """

    slope: Any
    shift: Any = 0.0
    kind: ClassVar[str] = "linear"

    def __call__(self, t: Any) -> Any:
        return self.slope * (self.shift + t)


@tree
@dataclasses.dataclass(frozen=True)
class SquareRoot(Schedule):
    """`scale · sqrt(t + 1)`: D_t of Theorem 15, rounded up where a count is needed."""

    scale: Any
    kind: ClassVar[str] = "sqrt"

    def __call__(self, t: Any) -> Any:
        return self.scale * jnp.sqrt(t + 1.0)


@tree
@dataclasses.dataclass(frozen=True)
class Power(Schedule):
    """`scale · (shift + t)^exponent`: what Theorems 14 and 15 take where all clients are sampled.

    ν_t and D_t of Theorem 14 have the exponents −2 and 2 (shift = ζ); η_t, ν_t and D_t of Theorem
    15 have −1/3, −2/3 and 2/3 (shift = 1).
    """

    scale: Any
    exponent: Any
    shift: Any = 1.0
    kind: ClassVar[str] = "power"
    signed: ClassVar[tuple[str, ...]] = ("exponent",)

    def __call__(self, t: Any) -> Any:
        return self.scale * (self.shift + t) ** self.exponent


@tree
@dataclasses.dataclass(frozen=True)
class Cosine(Schedule):
    """`value · (1 + cos(π t/rounds))/2`: from `value` to 0 over a run of so many rounds.

    Step sizes that end at 0 leave no noise of the last mini-batches in a model.
    """

    value: Any
    rounds: Any
    kind: ClassVar[str] = "cosine"

    def __call__(self, t: Any) -> Any:
        return self.value * (0.5 + 0.5 * jnp.cos(jnp.pi * jnp.minimum(t / self.rounds, 1.0)))

    @property
    def last(self) -> Any:
        """Afterwards it is 0."""
        return self.rounds - 1


KINDS: dict[str, type[Schedule]] = {
    cls.kind: cls for cls in (InverseTime, InverseSqrt, Linear, SquareRoot, Power, Cosine)
}

Number = float | Schedule
"""The type of every traced hyper-parameter."""


def at(value: Any, t: Any) -> Any:
    """The value in round t of a number or a schedule.

    >>> at(0.1, 7), float(at(InverseTime(scale=8.0, shift=4.0), 4))
    (0.1, 1.0)
    """
    return value(t) if isinstance(value, Schedule) else value


def over(value: Any, rounds: int) -> Any:
    """The values of a schedule in rounds 0 … rounds − 1, as an array; a number as it is.

    >>> over(0.1, 3), over(Linear(slope=2.0, shift=1.0), 3).tolist()
    (0.1, [2.0, 4.0, 6.0])
    """
    if not isinstance(value, Schedule):
        return value
    with np.errstate(divide="ignore"):
        return np.asarray(value(np.arange(rounds, dtype=float)), float)


def from_config(field: str, value: dict[str, Any]) -> Schedule:
    """`{kind = "inverse-time", scale = 8.0, shift = 100.0}` as a schedule."""
    given = dict(value)
    kind = given.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise unknown(f"the kind of schedule in {field},", kind, KINDS)
    cls = KINDS[kind]
    names = [f.name for f in dataclasses.fields(cls)]
    for name, number in given.items():
        if name not in names:
            raise unknown(f"the key in {field} (a schedule of kind {kind!r}),", name, names)
        if (
            isinstance(number, bool)
            or not isinstance(number, (int, float))
            or not math.isfinite(number)
            or (number < 0 and name not in cls.signed)
        ):
            least = "" if name in cls.signed else " ≥ 0"
            raise InvalidInput(f"{field}.{name} is {number!r}, but must be a finite number{least}.")
    missing = [
        f.name
        for f in dataclasses.fields(cls)
        if f.default is dataclasses.MISSING and f.name not in given
    ]
    if missing:
        raise InvalidInput(
            f"{field} is a schedule of kind {kind!r} and lacks {', '.join(missing)}."
        )
    return cls(**{k: float(v) for k, v in given.items()})


def to_config(value: Any) -> Any:
    """The inverse of `from_config`; numbers pass through."""
    if isinstance(value, Schedule):
        return {"kind": value.kind} | {
            f.name: float(getattr(value, f.name)) for f in dataclasses.fields(value)
        }
    return value
