"""Step-size conditions: what methods share to say, before a run, whether their steps are stable."""

from __future__ import annotations

from typing import Any

import numpy as np

from coterie.core.schedule import Number, Schedule, at, over
from coterie.core.vector import Vector
from coterie.methods.base import Condition, Method


def rate(value: Number | None) -> Any:
    """A rate as `conditions` reckons with it: a number, or an array of its values round by round.

    `step_conditions` puts the rounds of the run in place of a schedule. A method that is asked by
    itself does not know them, and takes the larger of the first value and a very late one.
    """
    if isinstance(value, Schedule):
        return max(float(at(value, t)) for t in (0, 10**6))
    return 0.0 if value is None else value


def step_conditions(
    method: Method, template: Vector, laplacian_norm: float, rounds: int
) -> list[Condition]:
    """The step-size conditions of a bound method, each with its largest value in a run of so many
    rounds.
    """
    options = {name: getattr(method, name) for name in method.public()}
    values = {k: over(v, rounds) for k, v in options.items() if isinstance(v, Schedule)}
    found = method.replace(**values).conditions(template, laplacian_norm)
    return [Condition(c.text, float(np.max(c.value)), float(np.min(c.bound))) for c in found]


def hub_gain(beta: Number, step: Any, local_rounds: int, *, or_more: bool = False) -> Condition:
    """The condition on how far a hub goes whose clients take R steps of the size `step` = ηλ from w
    towards models of their own; `or_more`: or more steps than that.

    While those stand still, the distance of w to them is multiplied by 1 − β(1 − (1 − ηλ)^R) in a
    round.
    """
    gain = 1.0 - (1.0 - step) ** local_rounds
    value = rate(beta) * (np.maximum(gain, 1.0) if or_more else gain)
    return Condition("β·(1−(1−lr·λ)^R) (stability of the hub)", value, 2.0)
