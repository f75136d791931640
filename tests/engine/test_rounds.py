"""One round: who trains, who is mixed with whom, who stays as he was."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel import PLAIN
from coterie.core.randomness import Role, cohort, role_key
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.engine.exchange import graph as exchange
from coterie.engine.setting import Coupled, Round, Setting

RUN: dict[str, Any] = {"rounds": 4, "eval_every": 4, "batch_size": 4, "precision": "float64"}


def flat(model: Any) -> np.ndarray:
    """All numbers of a model, in the precision it has.

    (`Vector.flat` goes through JAX, which is in single precision outside a run.)
    """
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in model.leaves])


def states(simulator: Any) -> np.ndarray:
    return np.concatenate(
        [leaf.reshape(len(leaf), -1) for leaf in simulator.all_models().leaves], axis=1
    )


@pytest.mark.parametrize(
    "method",
    [
        coterie.Local(local_steps=2),
        coterie.FedU(local_steps=2),
        coterie.FedU(local_steps=2, neighbours="all"),
    ],
    ids=["local", "fedu", "stale"],
)
def test_only_the_sampled_clients_change(method: coterie.Method, ragged: Federation) -> None:
    simulator = coterie.Simulator(method, ragged, "mlr", coterie.Training(**RUN, cohort=2, seed=5))
    for t in range(4):
        before = states(simulator)
        simulator.advance(1)
        changed = np.flatnonzero((states(simulator) != before).any(1))
        np.testing.assert_array_equal(
            changed, np.asarray(cohort(role_key(5, Role.COHORT), t, 5, 2))
        )
    assert set(simulator.ledger.rows()[:, 1]) == set(np.flatnonzero(simulator.dirty))


@pytest.mark.parametrize("trains", ["all", "sampled"])
def test_who_trains_in_pfedme(trains: str, ragged: Federation) -> None:
    method = coterie.PFedMe(local_rounds=1, inner_steps=1, trains=trains)
    simulator = coterie.Simulator(method, ragged, "mlr", coterie.Training(**RUN, cohort=2, seed=5))
    before = states(simulator)
    simulator.advance(1)
    changed = np.flatnonzero((states(simulator) != before).any(1))
    expected = (
        np.arange(5) if trains == "all" else np.asarray(cohort(role_key(5, Role.COHORT), 0, 5, 2))
    )
    np.testing.assert_array_equal(changed, expected)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_the_merge_counts_the_sampled_clients_as_asked(weighting: str, ragged: Federation) -> None:
    """One exact step each from w: the hub's mean of w − μ∇f_k(w) over the cohort, by hand."""
    options = {**RUN, "sampling": "full", "cohort": 3, "seed": 2}
    del options["batch_size"]
    lr, beta = 0.2, 0.7
    simulator = coterie.Simulator(
        coterie.FedAvg(lr=lr, local_steps=1, weighting=weighting, beta=beta),
        ragged,
        "mlr",
        coterie.Training(**options),
    )
    alone = coterie.Simulator(
        coterie.Local(lr=lr, local_steps=1), ragged, "mlr", coterie.Training(**options)
    )
    start = flat(simulator.template)
    simulator.advance(1)
    alone.advance(1)
    members = np.asarray(cohort(role_key(2, Role.COHORT), 0, 5, 3))
    w = ragged.train.sizes[members].astype(float) if weighting == "samples" else np.ones(3)
    each = np.stack([flat(alone.models(int(k))["personal"]) for k in members])
    mean = (w[:, None] * each).sum(0) / w.sum()
    np.testing.assert_allclose(flat(simulator.hub), (1 - beta) * start + beta * mean, rtol=1e-12)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("limit", [1, 40, 1 << 24])
@pytest.mark.parametrize("sparse", [False, True])
def test_pulls_do_not_depend_on_how_they_are_grouped(
    p: float, limit: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "PULL_NUMBERS", limit)
    rng = np.random.default_rng(0)
    a = np.triu(rng.uniform(0, 1, (6, 6)) * (rng.random((6, 6)) < 0.6), 1)
    graph = coterie.graph.from_matrix(a + a.T)
    messages = rng.standard_normal((6, 4)).astype(np.float32)
    index, weight = graph.table()
    coupled = (
        Coupled(near=jnp.asarray(index), weight=jnp.asarray(weight))
        if sparse
        else Coupled(dense=jnp.asarray(a + a.T))
    )
    ids = np.array([1, 3, 4, 5])  # 0 and 2 are not sampled: they must not count
    shape = ProblemShape("classification", (4,), 1, 6, 1)
    free = coterie.GraphProj(p=p, projection="identity")
    method = free.bind(Vector({"w": jnp.zeros(4)}), jax.random.key(0), shape)
    setting = Setting(method, PLAIN, None, None, coupled, 0)
    some, told = jnp.asarray(ids), jnp.asarray(messages[ids])
    mixing = exchange.Mixing(some, told, some, told, None)
    got, totals = exchange.neighbour_pull(Round(None, setting, 0), mixing)
    for i, k in enumerate(ids):
        difference = messages[k] - messages[ids]
        expected = (
            (a + a.T)[k, ids][:, None] * np.sign(difference) * np.abs(difference) ** (p - 1)
        ).sum(0)
        np.testing.assert_allclose(got[i], expected, atol=1e-5)
        assert totals[i] == pytest.approx((a + a.T)[k, ids].sum(), rel=1e-6)


def test_the_mixing_is_simultaneous_by_hand(ragged: Federation) -> None:
    """w_k ← w_{k,R} − μRη Σ_l a_kl (w_{k,R} − w_{l,R}) over the sampled neighbours, from what Local
    gives after the same steps.
    """
    options, lr, eta = {**RUN, "cohort": 3, "seed": 1}, 0.1, 0.4
    a = np.triu(np.random.default_rng(3).uniform(0.1, 1, (5, 5)), 1)
    a = a + a.T
    make = lambda method: coterie.Simulator(
        method, ragged, "mlr", coterie.Training(**options), coterie.graph.from_matrix(a)
    )
    fedu, alone = (
        make(coterie.FedU(lr=lr, local_steps=2, eta=eta)),
        make(coterie.Local(lr=lr, local_steps=2)),
    )
    fedu.advance(1)
    alone.advance(1)
    w = states(alone)
    members = np.asarray(cohort(role_key(1, Role.COHORT), 0, 5, 3))
    for k in members:
        pull = sum(a[k, l] * (w[k] - w[l]) for l in members)
        np.testing.assert_allclose(states(fedu)[k], w[k] - lr * 2 * eta * pull, rtol=1e-10)


def test_a_round_compiled_for_many_rounds_counts_only_those_asked_for(ragged: Federation) -> None:
    one, many = (
        coterie.Simulator(
            coterie.Local(local_steps=1), ragged, "mlr", coterie.Training(**{**RUN, "rounds": 6})
        )
        for _ in range(2)
    )
    for _ in range(5):
        one.advance(1)
    many.advance(1)
    while many.t < 5:
        many.advance(5 - many.t)
    np.testing.assert_array_equal(states(one), states(many))
    np.testing.assert_array_equal(one.ledger.rows(), many.ledger.rows())
    assert jax.tree.leaves(one.hub) == []
