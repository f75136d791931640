"""`coterie check`: smoothness as it is known, and verdicts that come true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.errors import Diverged
from coterie.engine.smoothness import smoothness
from coterie.methods import theorems
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


@pytest.mark.parametrize(("times", "stable"), [(0.9, True), (1.1, False)])
def test_mixing_that_is_called_unstable_tears_clients_apart(
    times: float, stable: bool, linear: Federation
) -> None:
    """μ̃ηρ = 2 · times on a complete graph of three, ρ = 3: beyond 2 it grows by 1.2 a round."""
    lr = 0.01 / max(curvatures(linear))
    method = coterie.FedU(lr=lr, local_steps=1, eta=2 * times / (3 * lr))
    training = coterie.Training.from_config(FULL | {"rounds": 300, "eval_every": 300})
    sim = coterie.Simulator(method, linear, "linear", training, coterie.graph.complete(3))
    assert checked("fedu", sim, smoothness(sim)).stable == stable

    def apart() -> float:
        a, b = (sim.models(k)["personal"].flat() for k in (0, 1))
        return float(np.linalg.norm(a - b))

    sim.advance(100)
    early = apart()
    while sim.t < 300:
        sim.advance(300 - sim.t)
    assert apart() < 2 * early if stable else apart() > 1e10 * early


def test_the_value_that_is_suggested_is_stable(linear: Federation) -> None:
    beta = max(curvatures(linear))
    sim = simulator(coterie.Local(lr=100 / beta), linear)
    (verdict,) = checked("Local", sim, smoothness(sim)).verdicts
    assert verdict.advice == f"Take lr ≤ {1 / beta:.3g}."


@pytest.mark.parametrize("times", [0.95, 1.05])
def test_nesterovs_steps_are_checked_by_their_own_bound(times: float, linear: Federation) -> None:
    """(2 + 2m)/(1 + 2m) instead of 2: what plain steps bear, these do not."""
    beta, lam = max(curvatures(linear)), 1.0
    lr = times * (2 + 1.6) / (1 + 1.6) / (beta + lam)
    options = {"personal_lr": lr, "lam": lam, "inner_steps": 1500, "local_rounds": 2}
    plain = simulator(coterie.get_method("pfedme", options), linear)
    more = {"inner_solver": "nesterov", "inner_momentum": 0.8}
    fast = simulator(coterie.get_method("pfedme", {**options, **more}), linear)
    smooth = smoothness(plain)
    assert checked("plain", plain, smooth).stable
    assert checked("fast", fast, smooth).stable == (times < 1)
    if times < 1:
        finish(fast)
    else:
        with pytest.raises(Diverged):
            finish(fast)


def sentences(method: coterie.Method, fed: Federation) -> str:
    sim = simulator(method, fed)
    return "\n".join(checked(method.name, sim, smoothness(sim)).sentences())


@pytest.mark.parametrize(("name", "option"), [("pfedme", "local_rounds"), ("fedu", "local_steps")])
def test_epochs_count_as_the_steps_of_the_largest_client(
    name: str, option: str, ragged: Federation
) -> None:
    """FedU's lr·R and pFedMe's lr·β·R, which the theorems bound."""
    steps = int(-(-ragged.train.sizes.max() // 4))
    found = []
    for more in ({"local_epochs": 2}, {option: 2 * steps}):
        training = coterie.Training(rounds=2, batch_size=4)
        graph = coterie.graph.complete(5) if name == "fedu" else None
        sim = coterie.Simulator(coterie.get_method(name, more), ragged, "mlr", training, graph)
        verdicts = checked(name, sim, smoothness(sim)).verdicts
        found.append([v.condition for v in verdicts if "heorem" in v.condition.text])
    assert any("R" in c.text for c in found[0])
    assert found[0] == found[1]


def test_what_the_theorems_do_not_have_is_said(linear: Federation) -> None:
    lasso = sentences(coterie.FedU(edge_penalty="norm", eta=5.0), linear)
    assert "its pulls are bounded" in lasso
    assert "ηρ" not in lasso
    assert "Client 1 has no loss" in sentences(coterie.FedU(empty=1), linear)
    assert "sum of squared differences" in sentences(coterie.FedU(mixing="median"), linear)
    assert "p = 2" in sentences(coterie.LpProj1(dsub=2), linear)


def test_the_smoothness_of_a_client_without_a_loss_does_not_count() -> None:
    steep = coterie.load("linear", clients=3, scale=1.0, scale_last=4.0)
    found = smoothness(simulator(coterie.FedU(empty=2), steep))
    np.testing.assert_array_equal(found.clients, [0, 1])
    np.testing.assert_allclose(found.first, curvatures(steep)[:2], rtol=1e-3)


def test_the_steps_of_the_theorems_are_checked(linear: Federation) -> None:
    """With l2 = 1 the losses are 1-strongly convex: a step just below the bound of Theorem 1, and
    one just above.
    """
    beta, rho = max(curvatures(linear)) + 1.0, 3.0
    most = theorems.fedu_convex(beta, 1.0, 1.0 * rho)
    for times, holds in ((0.99, True), (1.01, False)):
        method = coterie.FedU(lr=times * most / 4, local_steps=4, eta=1.0, l2=1.0)
        sim = simulator(method, linear)
        named = {v.condition.text: v for v in checked("", sim, smoothness(sim)).verdicts}
        (found,) = [v for text, v in named.items() if "Theorem 1, strongly" in text]
        assert (found.holds, found.needed) == (holds, False)
    for method in (coterie.PFedMe(l2=0.1), coterie.LpProj2(l2=0.1, dsub=2)):
        said = sentences(method, linear)
        assert "strongly convex losses" in said
        assert "need not be convex" in said


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
