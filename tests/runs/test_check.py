"""`coterie check`: smoothness as it is known, and verdicts that come true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.errors import Diverged
from coterie.engine.smoothness import smoothness
from coterie.runs.check import checked
from tests.conftest import Cli

FULL = {"rounds": 60, "eval_every": 60, "sampling": "full", "precision": "float64"}


@pytest.fixture(scope="module")
def linear() -> Federation:
    return coterie.load("linear", clients=3)


def simulator(method: coterie.Method, fed: Federation) -> coterie.Simulator:
    training = coterie.Training.from_config(FULL)
    return coterie.Simulator(method, fed, "linear", training)


def finish(sim: coterie.Simulator) -> None:
    while sim.t < 60:
        sim.advance(60)


def curvatures(fed: Federation) -> list[float]:
    found = []
    for k in range(fed.clients):
        rows = slice(*fed.train.offsets[k : k + 2])
        x = np.asarray(fed.train.x[rows], float)
        found.append(float(np.linalg.eigvalsh(x.T @ x / len(x))[-1]))
    return found


def test_smoothness_of_linear_regression_is_the_largest_eigenvalue(linear: Federation) -> None:
    found = smoothness(simulator(coterie.Local(), linear))
    np.testing.assert_allclose(found.first, curvatures(linear), rtol=1e-3)
    np.testing.assert_allclose(found.later, curvatures(linear), rtol=1e-3)


@pytest.mark.parametrize(("times", "stable"), [(0.9, True), (1.1, False)])
@pytest.mark.parametrize("name", ["local", "pfedme"])
def test_what_is_called_unstable_diverges(
    name: str, times: float, stable: bool, linear: Federation
) -> None:
    beta, lam = max(curvatures(linear)), 1.0
    options = {
        "local": {"lr": times * 2 / beta, "local_steps": 100},
        "pfedme": {
            "personal_lr": times * 2 / (beta + lam),
            "lam": lam,
            "inner_steps": 400,
            "local_rounds": 2,
        },
    }[name]
    sim = simulator(coterie.get_method(name, options), linear)
    assert checked(name, sim, smoothness(sim)).stable == stable
    if stable:
        finish(sim)
        assert np.isfinite(sim.evaluate().scores["test"].loss).all()
    else:
        with pytest.raises(Diverged):
            finish(sim)


def test_the_value_that_is_suggested_is_stable(linear: Federation) -> None:
    beta = max(curvatures(linear))
    sim = simulator(coterie.Local(lr=100 / beta), linear)
    (verdict,) = checked("Local", sim, smoothness(sim)).verdicts
    assert verdict.advice == f"Take lr ≤ {1 / beta:.3g}."


def test_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("check", "experiment.toml")
    assert code == 0
    assert "FedU: stable" in out
    assert "ρ = 5" in out
    code, out, _ = cli("check", "experiment.toml", "-s", "method.lr=50")
    assert code == 1
    assert "Unstable: lr·smoothness" in out
    code, _, said = cli("check", "nothing.toml")
    assert code == 2
    assert "nothing.toml" in said
