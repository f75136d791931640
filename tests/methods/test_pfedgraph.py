"""pFedGraph without likeness is FedAvg; its graph finds the groups; its newcomers find their
own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Simulator
from coterie.core.vector import Vector
from coterie.coupling.learnt import simplex
from coterie.engine.adapt import adapt
from coterie.methods.pfedgraph import towards
from tests.support.conformance_cases import cohorts
from tests.support.groups import KIN, SAME, for_all, rows, two_groups
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, kept, trained


def received(simulator: Simulator) -> NDArray[np.float64]:
    """u_k of all clients."""
    method: Any = simulator.method
    return for_all(simulator, lambda k: method.broadcast(simulator.hub, k).flat())


def graph(simulator: Simulator) -> NDArray[np.float64]:
    method: Any = simulator.method
    return for_all(simulator, lambda k: method.weights(simulator.hub, simulator.hub.row(k)))


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_without_likeness_everybody_gets_fedavgs_model(weighting: str, ragged: Federation) -> None:
    options = {"lr": 0.3, "local_steps": 3, "weighting": weighting}
    one = trained(coterie.PFedGraph(alpha=0.0, lam=0.0, **options), ragged)
    other = trained(coterie.FedAvg(**options), ragged)
    model = Vector(other.hub.tree).flat()
    np.testing.assert_allclose(received(one), np.broadcast_to(model, (5, 15)), rtol=1e-12)
    assert one.ledger.totals() == other.ledger.totals(), "d numbers up and d down"


def test_likeness_alone_is_local() -> None:
    """α → ∞ takes the client's own model: nobody else's is as like it."""
    options = {"lr": 0.3, "local_steps": 3}
    one = trained(coterie.PFedGraph(alpha=1e6, lam=0.0, **options), linear(), "linear", **EXACT)
    alone = trained(coterie.Local(**options), linear(), "linear", **EXACT)
    np.testing.assert_allclose(kept(one), kept(alone), rtol=1e-12)


def test_rounds_with_sampled_clients_repeated_in_numpy() -> None:
    """Who was never sampled counts nothing, and gets the mean of the others by their samples."""
    fed, alpha, lr, lam = linear(), 0.3, 0.1, 0.2
    b, best = facts(fed)
    method = coterie.PFedGraph(alpha=alpha, lam=lam, lr=lr, local_steps=2)
    run = trained(method, fed, "linear", rounds=3, cohort=2, seed=3, **EXACT)
    start = flat(run.template)
    x, ways, known = np.tile(start, (N, 1)), np.zeros((N, D)), np.zeros(N, bool)
    sizes = fed.train.sizes.astype(float)

    def mixture(k: int) -> NDArray[np.float64]:
        if not known.any():
            return start
        norms = np.linalg.norm(ways[k]) * np.linalg.norm(ways, axis=1)
        cos = np.where(norms > 0, ways @ ways[k] / np.where(norms > 0, norms, 1), 0)
        with jax.enable_x64(True):
            w = simplex.onto_simplex(
                jnp.asarray(sizes / sizes[known].sum() + 0.5 * alpha * cos)[known]
            )
        return np.asarray(start + np.asarray(w) @ ways[known])

    for members in cohorts(3, 3, N, 2):
        u = np.array([mixture(k) for k in range(N)])
        for k in members:
            y = u[k]
            for _ in range(2):
                size = np.linalg.norm(y) * np.linalg.norm(u[k])
                turn = np.zeros(D)
                if size > 0:
                    turn = u[k] / size - (y @ u[k]) / size * y / (y @ y)
                y = y - lr * (b[k] * (y - best[k]) - lam * turn)
            x[k] = y
        ways[members], known[members] = x[members] - start, True
    assert 2 < known.sum() < N, "somebody must be new in a later round, and somebody unknown"
    np.testing.assert_allclose(kept(run), x, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        received(run), [mixture(k) for k in range(N)], rtol=1e-10, atol=1e-13
    )
    unknown = np.flatnonzero(~known)
    np.testing.assert_allclose(
        graph(run)[unknown], [np.where(known, sizes, 0) / sizes[known].sum()] * len(unknown)
    )


def test_the_regulariser_turns_towards_the_mixture_and_leaves_the_length() -> None:
    """The published sign would turn away."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, u = (Vector({"w": jnp.asarray(rng.standard_normal((2, 3)))}) for _ in range(2))
        cosine = lambda x: (
            jnp.vdot(x.flat(), u.flat()) / jnp.sqrt(x.squared_norm() * u.squared_norm())
        )
        found = towards(x, u)
        np.testing.assert_allclose(found.flat(), jax.grad(cosine)(x).flat(), rtol=1e-12)
        assert abs(float(jnp.vdot(found.flat(), x.flat()))) < 1e-12
        assert float(cosine(x + 0.01 * found)) > float(cosine(x))
        zero = 0.0 * u
        np.testing.assert_array_equal(towards(zero, u).flat(), 0)
        np.testing.assert_array_equal(towards(x, zero).flat(), 0)


@pytest.fixture(scope="module")
def run() -> Simulator:
    method = coterie.PFedGraph(alpha=1.0, lr=0.1, local_steps=3)
    return trained(method, two_groups(), "linear", rounds=20, **EXACT)


def test_kin_count_more_than_strangers(run: Simulator) -> None:
    w = graph(run)
    np.testing.assert_allclose(w.sum(1), 1, rtol=1e-12)
    assert w[KIN].min() > 0.1
    np.testing.assert_array_equal(w[~SAME], 0)


@pytest.mark.slow
def test_a_newcomer_finds_its_group(run: Simulator) -> None:
    """After one round of its own the hub knows its way: only its kin count, each by its samples and
    the likeness of its way.
    """
    groups = two_groups()
    mean = groups.train.sizes / groups.train.sizes.sum() @ rows(run.hub.models)
    method: Any = run.method
    with run.precision():
        first = method.welcome(run.hub, None, 0.0 * run.hub.row(0)).flat()
    np.testing.assert_allclose(first, flat(run.template) + mean, rtol=1e-12)
    for k in (1, 4):
        found = adapt(run, groups.subset(np.array([k])), rounds=10).models["personal"]
        apart = np.linalg.norm(kept(run) - np.asarray(found.leaves[0]).ravel(), axis=1)
        assert apart[SAME[k]].max() < 0.3 * apart[~SAME[k]].min()
