"""Newcomers get a model in the method's own way, checked against closed forms; held-out clients are
scored; the command reads a newcomer's table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import coterie
from coterie import Federation, InvalidInput, Method, Training
from coterie.cli.main import app
from coterie.engine.adapt import adapt, neighbour_weights
from coterie.engine.exchange import exchange_of
from coterie.engine.simulate import Simulator

EXACT: dict[str, Any] = {"sampling": "full", "precision": "float64", "rounds": 20, "eval_every": 20}


@pytest.fixture(scope="module")
def linear() -> Federation:
    return coterie.load("linear", clients=5, samples=6, dimension=3, scale=1.0, scale_last=2.0)


def trained(method: Method, federation: Federation) -> Simulator:
    graph = coterie.graph.ring(4, 0.5) if exchange_of(method).kind == "graph" else None
    return coterie.simulate(
        method, federation.subset(np.arange(4)), "linear", graph=graph, **EXACT
    ).simulator


def new_model(
    method: Method, linear: Federation, view: str = "personal", rounds: int = 300
) -> tuple[np.ndarray, Simulator, float, np.ndarray]:
    sim = trained(method, linear)
    found = adapt(sim, linear.subset(np.array([4])), rounds=rounds)
    return (
        np.asarray(found.models[view].leaves[0]).reshape(-1),
        sim,
        linear.facts["b"][4],
        linear.facts["least_squares"][4],
    )


def test_pfedme_newcomer_reaches_the_prox_of_w(linear: Federation) -> None:
    lam = 2.0
    theta, sim, b, best = new_model(
        coterie.PFedMe(
            lam=lam, lr=0.1, personal_lr=0.2, local_rounds=1, inner_steps=30, inner_start="last"
        ),
        linear,
    )
    w = np.asarray(sim.hub.leaves[0]).reshape(-1)
    np.testing.assert_allclose(theta, (b * best + lam * w) / (b + lam), rtol=1e-8)


def test_a_newcomer_without_neighbours_trains_alone(linear: Federation) -> None:
    """On a graph without edges there is no mean of neighbours to begin from."""
    apart = coterie.graph.from_matrix(np.zeros((4, 4)))
    four = linear.subset(np.arange(4))
    sim = coterie.simulate(coterie.FedU(), four, "linear", graph=apart, **EXACT).simulator
    found = adapt(sim, linear.subset(np.array([4])), rounds=300)
    model = np.asarray(found.models["personal"].leaves[0]).reshape(-1)
    np.testing.assert_allclose(model, linear.facts["least_squares"][4], rtol=1e-6)


def test_a_newcomer_that_blows_up_is_told(linear: Federation) -> None:
    sim = trained(coterie.PFedMe(local_rounds=1, inner_steps=2), linear)
    wild = linear.subset(np.array([4])).astype(np.float64)
    wild.train.x[:] *= 1e200
    with pytest.raises(coterie.Diverged, match="for newcomers"):
        adapt(sim, wild, rounds=3)


def test_with_full_batches_a_large_newcomer_uses_all_its_rows() -> None:
    """A newcomer with more rows than every member: its least squares are over all of them."""
    rng = np.random.default_rng(3)
    sizes = [3, 3, 12]
    owner = np.repeat(np.arange(3), sizes)
    x = rng.standard_normal((18, 2))
    y = x @ np.array([1.0, -2.0]) + rng.standard_normal(18)
    fed = coterie.from_arrays("uneven", x, y, owner, task="regression", validation=0.0, test=0.0)
    members, newcomer = fed.subset(np.arange(2)), fed.subset(np.array([2]))
    method = coterie.Local(lr=0.3, local_steps=1)
    sim = coterie.simulate(method, members, "linear", **{**EXACT, "rounds": 1}).simulator
    found = adapt(sim, newcomer, rounds=400)
    flat = np.concatenate([np.asarray(a).reshape(-1) for a in found.models["personal"].leaves])
    rows = newcomer.train.x
    exact = np.linalg.lstsq(rows, newcomer.train.y, rcond=None)[0]
    np.testing.assert_allclose(flat[-2:], exact, rtol=1e-4)


def test_lp_proj_newcomer_is_held_in_the_subspace_only(linear: Federation) -> None:
    lam = 2.0
    method = coterie.LpProj2(
        lam=lam,
        lr=0.1,
        personal_lr=0.2,
        local_rounds=1,
        inner_steps=30,
        dsub=2,
        projection="orthogonal",
    )
    x, sim, b, best = new_model(method, linear)
    p = np.concatenate([np.asarray(part) for part in sim.method.drawn.parts], axis=1)  # type: ignore[attr-defined]
    inside = (b * (p @ best) + lam * np.asarray(sim.hub)) / (b + lam)
    np.testing.assert_allclose(x, p.T @ inside + best - p.T @ p @ best, rtol=1e-7)


def test_fedu_newcomer_begins_with_its_neighbours_mean_and_is_pulled_to_it(
    linear: Federation,
) -> None:
    lr, eta, steps = 0.05, 0.8, 2
    method = coterie.FedU(lr=lr, eta=eta, local_steps=steps)
    first, sim, b, best = new_model(method, linear, rounds=0)
    mean = np.asarray(sim.all_models().leaves[0]).reshape(4, -1).mean(0)
    np.testing.assert_allclose(first, mean, rtol=1e-12)
    x, *_ = new_model(method, linear)
    total = 1.0  # a ring with weight ½: every member's weights add up to 1
    # The fixed point of: R local steps, x⁺ = best + (1 − lr b)^R (x − best), then x = x⁺ − lr R η
    # total (x⁺ − mean).
    shrink, pull = (1 - lr * b) ** steps, lr * steps * eta * total
    np.testing.assert_allclose(
        x, ((1 - pull) * (1 - shrink) * best + pull * mean) / (1 - (1 - pull) * shrink), rtol=1e-8
    )


def test_mocha_newcomer_solves_its_problem_beside_the_fixed_mean(linear: Federation) -> None:
    lam, decay = 0.7, 0.1
    method = coterie.get_method("mocha", {"lam": lam, "decay": decay})
    w, sim, b, best = new_model(method, linear)
    mean = np.asarray(sim.all_models().leaves[0]).reshape(4, -1).mean(0)
    np.testing.assert_allclose(w, (b * best + lam * mean) / (b + lam + decay), rtol=1e-7)


def test_one_model_for_all_is_a_newcomers_too(linear: Federation) -> None:
    w, sim, *_ = new_model(coterie.FedAvg(lr=0.1, local_steps=2), linear, "global", rounds=3)
    np.testing.assert_array_equal(w, np.asarray(sim.hub.leaves[0]).reshape(-1))


def test_the_federation_stays_as_it_is(linear: Federation) -> None:
    sim = trained(coterie.FedU(local_steps=2), linear)
    before = sim.all_models().leaves[0].copy()
    adapt(sim, linear.subset(np.array([4])), rounds=5)
    np.testing.assert_array_equal(before, sim.all_models().leaves[0])


# By default some kinds that the closed forms above do not reach, all others as a long check.
KINDS = ("ditto", "fedrep", "graph-proj")


@pytest.mark.parametrize(
    "name",
    [n if n in KINDS else pytest.param(n, marks=pytest.mark.slow) for n in sorted(coterie.METHODS)],
)
def test_every_method_welcomes_newcomers(name: str, ragged: Federation) -> None:
    known = coterie.METHODS[name].public()
    small = {"local_steps": 2, "local_rounds": 1, "inner_steps": 2, "dsub": 4}
    method = coterie.get_method(name, {k: v for k, v in small.items() if k in known})
    result = coterie.simulate(
        method, ragged, "mlr", rounds=2, eval_every=2, batch_size=4, held_out=2, adapt_rounds=2
    )
    sim, last = result.simulator, result.snapshots[-1]
    assert sim.spec.clients == 3
    assert sorted([*sim.members, *sim.held_out]) == [0, 1, 2, 3, 4]
    scored = ~np.isnan(last.scores["newcomers"].score[0])
    assert set(np.flatnonzero(scored)) <= set(sim.held_out)
    assert np.isnan(last.scores["test"].score[0][sim.held_out]).all()
    assert not np.isin(result.ledger.rows()[:, 1], sim.held_out).any(), (
        "who is held out is never billed"
    )
    assert np.isfinite(last.scores["newcomers"].loss[0][scored]).all()


def test_held_out_clients_never_matter_to_training(ragged: Federation) -> None:
    """What they have changes nothing for the members."""
    import dataclasses

    run = lambda fed: coterie.simulate(
        coterie.FedAvg(local_steps=2), fed, rounds=3, eval_every=3, batch_size=4, held_out=2
    )
    a = run(ragged)
    y = ragged.train.y.copy()
    for k in a.simulator.held_out:
        y[ragged.train.offsets[k] : ragged.train.offsets[k + 1]] = 0
    b = run(dataclasses.replace(ragged, train=dataclasses.replace(ragged.train, y=y)))
    np.testing.assert_array_equal(
        a.simulator.all_models().leaves[0], b.simulator.all_models().leaves[0]
    )


def test_asking_for_a_held_out_clients_model_is_refused(ragged: Federation) -> None:
    sim = Simulator("fedavg", ragged, "mlr", Training(rounds=1, held_out=2))
    k = int(sim.held_out[0])
    with pytest.raises(InvalidInput, match=f"client {k} was held out"):
        sim.models(k)
    with pytest.raises(InvalidInput, match=r"training\.held_out is 5, but must be at most 4"):
        Simulator("fedavg", ragged, "mlr", Training(rounds=1, held_out=5))


def test_weights_of_a_newcomer_follow_common_labels() -> None:
    fed = coterie.load("digits", clients=6)
    members, newcomer = fed.subset(np.arange(5)), fed.subset(np.array([5]))
    weights = neighbour_weights(coterie.graph.build("similar", members), members, newcomer)
    shares = (members.label_counts() > 0) & (newcomer.label_counts() > 0)
    assert ((weights[0] > 0) == shares.any(1)).all()
    assert weights.sum() == pytest.approx(coterie.graph.build("similar", members).weights.sum() / 5)


def table(path: Path, sites: list[str], seed: int, extra: str = "") -> Path:
    rng = np.random.default_rng(seed)
    lines = ["site,heat,kind,label" + extra]
    for site in sites:
        for _ in range(24):
            heat = rng.normal()
            lines.append(
                f"{site},{heat:.4f},{rng.choice(['x', 'y'])},{'hot' if heat > 0 else 'cold'}"
                + ("," + "1" if extra else "")
            )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_command_adapts_to_a_newcomers_table(tmp_path: Path) -> None:
    readings = table(tmp_path / "readings.csv", ["a", "b", "c"], 0)
    new = table(tmp_path / "new.csv", ["d"], 1)
    config = tmp_path / "e.toml"
    config.write_text(
        f'method = "fedu"\n[data]\nname = "table"\npath = "{readings}"\nclient = "site"\ntarget ='
        ' "label"\n[training]\nrounds = 3\neval_every = 3\n'
    )
    from typer.testing import CliRunner

    runner = CliRunner()
    assert runner.invoke(app, ["run", str(config), "--out", str(tmp_path / "run")]).exit_code == 0
    done = runner.invoke(
        app,
        ["adapt", str(tmp_path / "run"), "--data", str(new), "--client", "site", "--rounds", "5"],
    )
    assert done.exit_code == 0, done.output
    assert "newcomers after 5 local rounds of FedU" in done.output
    path = tmp_path / "run" / "newcomers" / "d" / "model.safetensors"
    assert load_file(path)["w"].shape == (2, 3)
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("site,heat,label\nd,1.0,hot\nd,2.0,hot\n")
    with pytest.raises(InvalidInput, match="kind"):
        runner.invoke(
            app,
            ["adapt", str(tmp_path / "run"), "--data", str(lacking)],
            catch_exceptions=False,
            standalone_mode=False,
        )
    strange = tmp_path / "strange.csv"
    strange.write_text("site,heat,kind,label\nd,1.0,x,lukewarm\nd,2.0,x,hot\n")
    with pytest.raises(
        InvalidInput, match="the label 'lukewarm', which the run does not know; known: cold, hot"
    ):
        runner.invoke(
            app,
            ["adapt", str(tmp_path / "run"), "--data", str(strange)],
            catch_exceptions=False,
            standalone_mode=False,
        )
