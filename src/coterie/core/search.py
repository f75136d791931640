"""Where tuning looks for the value of an option: a range, or a list of values.

A search space is declared beside the option, as in `option(0.05, …, search=LogRange(0.003, 1))`,
shown by `coterie show METHOD`, and overridden by the section [tune] of an experiment.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from coterie.core.errors import InvalidInput, shown, unknown


@dataclasses.dataclass(frozen=True)
class LogRange:
    """Numbers from `low` to `high`, on a logarithmic scale."""

    low: float
    high: float
    decays: bool = False
    """A step size, which may go to 0 over a run (`tune.steps = "cosine"`)."""

    def __str__(self) -> str:
        return f"{self.low:g} … {self.high:g} (log)"

    def points(self, count: int) -> tuple[float, ...]:
        ratio = self.high / self.low
        return tuple(self.low * ratio ** (i / max(1, count - 1)) for i in range(count))


@dataclasses.dataclass(frozen=True)
class LinearRange:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    decays: bool = False

    def __str__(self) -> str:
        return f"{self.low:g} … {self.high:g}"

    def points(self, count: int) -> tuple[float, ...]:
        width = self.high - self.low
        return tuple(self.low + width * i / max(1, count - 1) for i in range(count))


@dataclasses.dataclass(frozen=True)
class Among:
    """One of these values."""

    values: tuple[Any, ...]
    decays: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in self.values)

    def points(self, count: int) -> tuple[Any, ...]:
        return self.values


Space = LogRange | LinearRange | Among
STEP = LogRange(0.003, 1.0, decays=True)
"""Of step sizes of plain gradient steps."""


def ends(space: Space) -> tuple[Any, ...]:
    """The values that must be allowed, for all between them to be."""
    return space.values if isinstance(space, Among) else (space.low, space.high)


def from_config(field: str, given: Any, declared: Space | None = None) -> Space:
    """A list of values, or `{low = 0.01, high = 1.0, scale = "log"}`, as a search space."""
    decays = declared is not None and declared.decays
    if isinstance(given, list):
        if not given:
            raise InvalidInput(f"{field} is empty, but must list at least 1 value.")
        return Among(tuple(given), decays)
    if not isinstance(given, dict):
        raise InvalidInput(
            f"{field} is {shown(given)}, but must be a list of values or a table with low and high."
        )
    for key in given:
        if key not in ("low", "high", "scale"):
            raise unknown(f"the key of {field},", key, ("low", "high", "scale"))
    low, high = (given.get(key) for key in ("low", "high"))
    for key, value in (("low", low), ("high", high)):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise InvalidInput(f"{field}.{key} is {value!r}, but must be a finite number.")
    scale = given.get("scale", "linear" if isinstance(declared, LinearRange) else "log")
    if scale not in ("log", "linear"):
        raise unknown(f"{field}.scale,", scale, ("log", "linear"))
    assert low is not None
    assert high is not None
    if not low < high or (scale == "log" and low <= 0):
        must = "0 < low < high on a logarithmic scale" if scale == "log" else "low < high"
        raise InvalidInput(f"{field} is from {low:g} to {high:g}, but must have {must}.")
    return (LogRange if scale == "log" else LinearRange)(float(low), float(high), decays)


def _not_a_number(value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return not plain or not math.isfinite(value)
