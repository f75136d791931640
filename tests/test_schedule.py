"""Schedules are the formulas of Theorems 14 and 15, traced, and refused when malformed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Cosine, InvalidInput, InverseSqrt, InverseTime, Linear, Power, SquareRoot
from coterie.core.schedule import KINDS, at, from_config, to_config

CASES = [
    (InverseTime(scale=8.0, shift=4.0), lambda t: 8 / (4 + t)),
    (InverseSqrt(scale=0.5), lambda t: 0.5 / np.sqrt(t + 1)),
    (Linear(slope=0.25, shift=3.0), lambda t: 0.25 * (3 + t)),
    (SquareRoot(scale=2.0), lambda t: 2 * np.sqrt(t + 1)),
    (Power(scale=8.0, exponent=-2.0, shift=3.0), lambda t: 8 / (3 + t) ** 2),
    (Power(scale=0.1, exponent=2.0, shift=3.0), lambda t: 0.1 * (3 + t) ** 2),
    (Power(scale=0.5, exponent=-1 / 3), lambda t: 0.5 / np.cbrt(t + 1)),
    (Power(scale=0.5, exponent=-2 / 3), lambda t: 0.5 / np.cbrt(t + 1) ** 2),
    (Power(scale=2.0, exponent=2 / 3), lambda t: 2 * np.cbrt(t + 1) ** 2),
    (Cosine(value=0.4, rounds=20.0), lambda t: 0.4 * np.cos(np.pi * min(t, 20) / 40) ** 2),
]


@pytest.mark.parametrize(("schedule", "formula"), CASES, ids=lambda c: getattr(c, "kind", ""))
def test_values_round_by_round(schedule: Any, formula: Any) -> None:
    for t in (0, 1, 7, 100):
        np.testing.assert_allclose(at(schedule, t), formula(t), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(jax.jit(at)(schedule, t), formula(t), rtol=1e-6, atol=1e-7)
    assert at(0.3, 5) == 0.3


@pytest.mark.parametrize(("schedule", "formula"), CASES, ids=lambda c: getattr(c, "kind", ""))
def test_config_round_trip(schedule: Any, formula: Any) -> None:
    assert from_config("lr", to_config(schedule)) == schedule
    assert coterie.Local(lr=schedule).to_config()["lr"] == to_config(schedule)
    assert coterie.get_method("local", {"lr": to_config(schedule)}).lr == schedule


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"kind": "inverse-tim", "scale": 1.0}, "did you mean 'inverse-time'"),
        ({"scale": 1.0}, "kind of schedule"),
        ({"kind": "linear"}, "lacks slope"),
        ({"kind": "linear", "slop": 1.0}, "did you mean 'slope'"),
        ({"kind": "sqrt", "scale": -1.0}, "scale is -1.0"),
        ({"kind": "sqrt", "scale": float("nan")}, "scale is nan"),
        ({"kind": "sqrt", "scale": True}, "scale is True"),
        ({"kind": "sqrt", "scale": "1"}, "scale is '1'"),
        ({"kind": ["sqrt"], "scale": 1.0}, "kind of schedule"),
        ({"kind": "power", "scale": 1.0}, "lacks exponent"),
        ({"kind": "power", "scale": -1.0, "exponent": -2}, "scale is -1.0"),
        (
            {"kind": "power", "scale": 1.0, "exponent": float("inf")},
            "exponent is inf, but must be a finite number.",
        ),
    ],
)
def test_malformed_schedules_are_refused(value: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        coterie.Local(lr=value)


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "inverse-time", "scale": 0.0},
        {"kind": "inverse-sqrt", "scale": 0},
        {"kind": "inverse-time", "scale": 1.0, "shift": 0.0},
        InverseTime(scale=-1.0),
        {"kind": "power", "scale": 1.0, "exponent": -2.0, "shift": 0.0},
    ],
    ids=repr,
)
def test_a_rate_must_stay_above_zero_and_finite_as_a_schedule_too(value: Any) -> None:
    """lr = 0 is refused as a number; 8/(0 + t) is infinite in round 0."""
    with pytest.raises(InvalidInput):
        coterie.Local(lr=value)


def test_static_options_take_no_schedule() -> None:
    with pytest.raises(InvalidInput, match="local_steps"):
        coterie.Local(local_steps=InverseSqrt(scale=3.0))
    with pytest.raises(InvalidInput, match="local_steps"):
        coterie.Local(local_steps={"kind": "sqrt", "scale": 3.0})


def test_kinds_are_known_by_their_names() -> None:
    assert {k: c.kind for k, c in KINDS.items()} == {k: k for k in KINDS}


def test_a_cosine_serves_its_own_number_of_rounds() -> None:
    fed = coterie.load("digits", clients=3)
    lr = {"kind": "cosine", "value": 0.1, "rounds": 2}
    coterie.simulate(coterie.Local(lr=lr, local_steps=1), fed, rounds=2, eval_every=2)
    with pytest.raises(InvalidInput, match=r"local.lr is the schedule .* which is 0 in round 2"):
        coterie.simulate(coterie.Local(lr=lr, local_steps=1), fed, rounds=3)
