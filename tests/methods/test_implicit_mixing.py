"""FedU's implicit mixing step: a mean of a client's model and its neighbours', for any step."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.core.errors import InvalidInput
from coterie.methods.base import get_method


def one_round(linear: Federation, **options: float | bool) -> np.ndarray:
    graph = coterie.graph.from_matrix(np.array(WEIGHTS))
    method = coterie.FedU(lr=0.01, local_steps=2, **options)  # type: ignore[arg-type]
    given = {"rounds": 1, "eval_every": 1, "batch_size": 5, "precision": "float64"}
    found = coterie.simulate(method, linear, "linear", graph=graph, **given)  # type: ignore[arg-type]
    return np.stack([np.asarray(found.simulator.models(k)["personal"].flat()) for k in range(4)])


WEIGHTS = [[0, 1, 0.5, 0], [1, 0, 0, 0], [0.5, 0, 0, 2], [0, 0, 2, 0]]


@pytest.fixture(scope="module")
def linear() -> Federation:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(4), 20)
    x = rng.normal(size=(80, 3))
    y = (x * rng.normal(size=(4, 3))[owner]).sum(1)
    return coterie.from_arrays("linear", x, y, owner, task="regression", test=0.2)


@pytest.mark.parametrize("eta", [0.1, 5.0, 1e6])
def test_it_is_the_mean_of_the_model_and_the_neighbours(linear: Federation, eta: float) -> None:
    before, after = one_round(linear, eta=0.0), one_round(linear, eta=eta, implicit=True)
    s, a = 0.01 * 2 * eta, np.array(WEIGHTS)
    wanted = (before + s * a @ before) / (1 + s * a.sum(1, keepdims=True))
    np.testing.assert_allclose(after, wanted, rtol=1e-10, atol=1e-12)


def test_a_small_step_is_the_papers(linear: Federation) -> None:
    explicit, implicit = (one_round(linear, eta=1e-4, implicit=i) for i in (False, True))
    still = one_round(linear, eta=0.0)
    np.testing.assert_allclose(implicit - still, explicit - still, rtol=1e-4, atol=1e-12)


def test_a_large_step_is_stable(linear: Federation) -> None:
    graph = coterie.graph.complete(4)
    method = coterie.FedU(lr=0.05, local_steps=50, eta=10.0, implicit=True)
    sim = coterie.simulate(
        method, linear, "linear", graph=graph, rounds=20, eval_every=20, batch_size=5
    ).simulator
    assert all(c.holds for c in sim.conditions())
    models = np.stack([np.asarray(sim.models(k)["personal"].flat()) for k in range(4)])
    assert np.abs(models).max() < 10


def test_it_needs_a_linear_pull() -> None:
    with pytest.raises(InvalidInput, match="implicit is true, but mixing is 'median'"):
        get_method("fedu", {"implicit": True, "mixing": "median"})
    with pytest.raises(InvalidInput, match=r"the exponent 1\.5"):
        get_method("graph-proj", {"implicit": True, "p": 1.5})
