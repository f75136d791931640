"""Step-size conditions: schedules count with the round in which they are worst, and the hub's gain
is among them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput, InverseTime, Linear, Method, Simulator, SquareRoot
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.methods.base import Condition
from coterie.methods.conditions import step_conditions

MODEL = Vector({"w": jnp.zeros((2, 3))})
WORSE = Linear(slope=0.01)
"""0 in the first round, 0.99 in the hundredth."""


def conditions(method: Method, rounds: int = 100) -> dict[str, Condition]:
    bound = method.bind(MODEL, jax.random.key(0), ProblemShape("classification", (3,), 2, 4, 5))
    found = step_conditions(bound, MODEL, 4.0, rounds)
    return {c.text.split(" ")[0]: c for c in found}


@pytest.mark.parametrize(
    ("method", "text", "value"),
    [
        (coterie.FedU(lr=0.1, local_steps=10, eta=WORSE), "μ̃·η·‖L‖", 0.99 * 4),
        (coterie.FedU(mix_lr=Linear(0.01, 1.0), eta=1.0), "μ̃·η·‖L‖", 1.0 * 4),
        (coterie.L2GD(lr=0.1, local_steps=30, lam=WORSE), "lr·R·λ", 0.99 * 3),
        (coterie.PFedMe(lr=0.1, personal_lr=0.5, lam=Linear(0.1)), "personal_lr·λ", 9.9 * 0.5),
        (coterie.Ditto(personal_lr=SquareRoot(0.2), lam=2.0), "personal_lr·λ", 4.0),
        (coterie.FedProx(lr=Linear(0.01, 1.0), prox=3.0), "lr·prox", 3.0),
        (coterie.LpProj2(lr=SquareRoot(0.3), lam=1.0, dsub=2), "lr·λ", 3.0),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_a_schedule_that_grows_is_checked_at_its_largest(
    method: Method, text: str, value: float
) -> None:
    grown = conditions(method)[text]
    assert grown.value == pytest.approx(value, rel=1e-5)
    assert not grown.holds
    assert conditions(method, rounds=2)[text].holds


def test_the_worst_round_need_not_be_that_of_any_single_schedule() -> None:
    """√(t + 1)/(10 + t) is largest in round 8, and the product of both largest values is never
    reached.
    """
    method = coterie.L2GD(lr=InverseTime(scale=6.0, shift=10.0), lam=SquareRoot(2.0), local_steps=1)
    (found,) = conditions(method).values()
    t = np.arange(100)
    assert found.value == pytest.approx((12 * np.sqrt(t + 1) / (10 + t)).max(), rel=1e-5)
    assert found.value == pytest.approx(12 * 3 / 18, rel=1e-5)
    assert not found.holds
    assert conditions(method, rounds=5)["lr·R·λ"].holds


def test_a_method_asked_by_itself_expects_the_worst() -> None:
    """It does not know how long a run is."""
    assert not coterie.L2GD(lam=Linear(1e-3)).conditions(MODEL, 0.0)[0].holds
    assert coterie.L2GD(lam=InverseTime(1e-3)).conditions(MODEL, 0.0)[0].holds


@pytest.mark.parametrize("name", ["pfedme", "lp-proj-2"])
@pytest.mark.parametrize(
    ("beta", "eta", "steps", "holds"),
    [(2.0, 0.01, 20, True), (2.1, 0.01, 20, False), (1.9, 0.11, 1, False), (1.9, 0.05, 1, True)],
)
def test_the_gain_of_the_hub(name: str, beta: float, eta: float, steps: int, holds: bool) -> None:
    """While the personal models stand still, w − θ is multiplied by 1 − β(1 − (1 − ηλ)^R) in a
    round: the paper's tuned β = 2, η = 0.01, λ = 15, R = 20 is just inside.
    """
    more = {"dsub": 2} if name == "lp-proj-2" else {}
    method = coterie.get_method(
        name, {"beta": beta, "lr": eta, "lam": 15.0, "local_rounds": steps, **more}
    )
    found = conditions(method)["β·(1−(1−lr·λ)^R)"]
    assert found.value == pytest.approx(beta * (1 - (1 - eta * 15.0) ** steps))
    w = 1.0
    for _ in range(2000):
        local = w
        for _ in range(steps):
            local -= eta * 15.0 * local
        w = (1 - beta) * w + beta * local
    assert found.holds == holds == (abs(w) < 1)


def test_the_gain_of_the_hub_of_epochs_is_that_of_any_number_of_steps() -> None:
    """How many batches an epoch has is the client's own: 1 or very many."""
    one = {"beta": 1.9, "lr": 0.11, "lam": 15.0, "local_epochs": 1}
    assert not conditions(coterie.get_method("pfedme", one))["β·(1−(1−lr·λ)^R)"].holds
    many = {"beta": 2.1, "lr": 1e-4, "lam": 15.0, "local_epochs": 1}
    found = conditions(coterie.get_method("pfedme", many))["β·(1−(1−lr·λ)^R)"]
    assert found.value == 2.1
    assert not found.holds


def test_a_run_says_which_condition_a_growing_schedule_breaks(ragged: Federation) -> None:
    method = coterie.FedU(lr=0.1, local_steps=1, eta=Linear(1.0))
    simulator = Simulator(method, ragged, "mlr", coterie.Training(rounds=30))
    (found,) = simulator.conditions()
    assert found.value == pytest.approx(0.1 * 29 * 5, rel=1e-5)


@pytest.mark.parametrize(
    ("alpha", "rounds", "says"),
    [
        (Linear(slope=0.01), 101, None),
        (Linear(slope=0.01), 102, r"which is 1.01 in round 101, but must be a number ≥ 0 and ≤ 1"),
        (SquareRoot(scale=0.5), 9, r"apfl.alpha is the schedule .* which is 1.11803 in round 4"),
    ],
)
def test_a_schedule_keeps_to_the_upper_end_of_its_option_for_the_whole_run(
    alpha: Any, rounds: int, says: str | None, ragged: Federation
) -> None:
    method = coterie.APFL(alpha=alpha, local_steps=1)
    make = lambda: Simulator(method, ragged, "mlr", coterie.Training(rounds=rounds))
    if says is None:
        make()
        return
    with pytest.raises(InvalidInput, match=says):
        make()


def test_a_schedule_that_begins_too_high_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput, match=r"which is 2 in round 0, but must be .* ≤ 1"):
        coterie.APFL(alpha=InverseTime(scale=2.0))
