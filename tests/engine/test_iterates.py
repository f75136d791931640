"""Iterates are those of the simulator, seed by seed, and their means are the theorems'."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import Federation, InvalidInput
from coterie.core.errors import Diverged
from coterie.engine.iterates import client_models, follow, geometric, hub_model, shares

ROUNDS = 6
GIVEN = {"rounds": ROUNDS, "batch_size": 2, "sampling": "replace", "precision": "float64"}


@pytest.fixture(scope="module")
def linear() -> Federation:
    return coterie.load("linear", clients=4, samples=6, dimension=3)


def simulator(method: coterie.Method, fed: Federation, **more: object) -> coterie.Simulator:
    training = coterie.Training.from_config({**GIVEN, "cohort": 2, **more})
    return coterie.Simulator(method, fed, "linear", training)


def test_iterates_of_clients_are_those_of_the_simulator(linear: Federation) -> None:
    """The model starts at zero, whatever the seed."""
    method = coterie.FedU(lr=0.1, local_steps=2, eta=0.3, neighbours="all")
    found = follow(
        simulator(method, linear), client_models, seeds=(3, 5), shares=geometric(0.7, ROUNDS)
    )
    models = np.asarray(found.iterates.x.leaves[0]).reshape(2, ROUNDS + 1, 4, 3)
    for i, seed in enumerate((3, 5)):
        sim = simulator(method, linear, seed=seed)
        for t in range(ROUNDS + 1):
            now = np.asarray(sim.all_models().leaves[0]).reshape(4, 3)
            np.testing.assert_allclose(models[i, t], now, rtol=1e-12, atol=1e-14)
            if t < ROUNDS:
                sim.advance(1)
    assert np.abs(models[0] - models[1]).max() > 1e-3
    theta = 0.7 ** -np.arange(1.0, ROUNDS + 1)
    means = np.asarray(found.averages.x.leaves[0]).reshape(2, ROUNDS + 1, 4, 3)
    for t in range(1, ROUNDS + 1):
        wanted = np.average(models[:, :t], axis=1, weights=theta[:t])
        np.testing.assert_allclose(means[:, t], wanted, rtol=1e-12)


def test_some_rounds_of_a_hub(linear: Federation) -> None:
    method = coterie.PFedMe(lr=0.1, lam=1.0, local_rounds=2, inner_steps=3)
    all_ = follow(simulator(method, linear), hub_model, seeds=(0,))
    some = follow(simulator(method, linear), hub_model, seeds=(0,), every=3)
    assert some.rounds.tolist() == [0, 3, 6]
    for a, b in ((some.iterates, all_.iterates), (some.averages, all_.averages)):
        whole = np.asarray(b.leaves[0])
        np.testing.assert_allclose(np.asarray(a.leaves[0]), whole[:, ::3], rtol=1e-12)
    plain = np.asarray(all_.iterates.leaves[0])[:, :ROUNDS].mean(1)
    np.testing.assert_allclose(np.asarray(all_.averages.leaves[0])[:, -1], plain, rtol=1e-12)


def test_weights_may_grow_beyond_all_floats() -> None:
    found = shares(10.0 * np.arange(1000))
    np.testing.assert_allclose(found[1:], 1 / (1 + np.exp(-10.0)), rtol=1e-4)
    np.testing.assert_allclose(geometric(0.5, 3), [1, 2 / 3, 4 / 7])


def test_runs_that_diverge_are_told(linear: Federation) -> None:
    sim = simulator(coterie.FedU(lr=50.0, local_steps=100), linear, rounds=4)
    with pytest.raises(Diverged, match="μ̃·η·‖L‖"):
        follow(sim, client_models, seeds=(0, 1), every=2)


def test_what_it_cannot_do_is_refused(linear: Federation) -> None:
    sim = simulator(coterie.FedU(), linear)
    with pytest.raises(InvalidInput, match="every 4th of 6 rounds"):
        follow(sim, client_models, seeds=(0,), every=4)
    with pytest.raises(InvalidInput, match="got 2 shares, but must have 6"):
        follow(sim, client_models, seeds=(0,), shares=[1.0, 0.5])
    with pytest.raises(InvalidInput, match="no exchange_every"):
        follow(simulator(coterie.FedU(exchange_every=2), linear), client_models, seeds=(0,))
    sim.advance(1)
    with pytest.raises(InvalidInput, match="has not run yet"):
        follow(sim, client_models, seeds=(0,))
