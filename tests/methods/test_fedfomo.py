"""FedFomo's rounds repeated in NumPy; what is held out is never trained on; who helps is chosen
again.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Simulator
from coterie.engine.adapt import adapt
from tests.support.conformance_cases import cohorts
from tests.support.groups import KIN, SAME, rows, two_groups
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat, kept, memories, trained

Array = NDArray[np.float64]


def choices(simulator: Simulator) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Whose models every client gets next, and which of them are to be had."""
    method: Any = simulator.method
    with simulator.precision():
        clients = np.arange(simulator.spec.clients)
        ids, real = jax.vmap(lambda k: method.choice(simulator.hub, k))(clients)
        return np.asarray(ids), np.asarray(real)


def test_rounds_with_sampled_clients_repeated_in_numpy() -> None:
    """F is the loss on all training rows, and everybody's model is offered."""
    fed, lr, rounds = linear(), 0.1, 6
    b, best = facts(fed)
    method = coterie.FedFomo(lr=lr, local_steps=2, validation=0.0)
    run = trained(method, fed, "linear", rounds=rounds, cohort=3, **EXACT)
    start = flat(run.template)
    before, x = np.tile(start, (N, 1)), np.tile(start, (N, 1))
    known, affinity = np.zeros(N, bool), np.zeros((N, N))
    f = lambda k, w: 0.5 * b[k, 0] * np.sum((w - best[k]) ** 2)
    moved = False
    for members in cohorts(0, rounds, N, 3):
        sent = x.copy()
        for k in members:
            others = [l for l in range(N) if l == k or known[l]]
            far = np.linalg.norm(x[others] - before[k], axis=1)
            drop = np.array([f(k, before[k]) - f(k, x[l]) for l in others])
            v = np.where(far > 0, np.maximum(drop, 0) / np.where(far > 0, far, 1), 0)
            w = v / v.sum() if v.sum() > 0 else v
            moved |= bool((w[np.array(others) != k] > 0.05).any())
            theta = before[k] + w @ (x[others] - before[k])
            before[k], sent[k] = theta, theta
            for _ in range(2):
                sent[k] = sent[k] - lr * b[k] * (sent[k] - best[k])
            for l, weight in zip(others, w, strict=True):
                affinity[k, l] += weight * (l != k)
        x, known[members] = sent, True
    assert moved, "somebody must take something of another's model"
    state = memories(run)
    np.testing.assert_allclose(rows(state.x), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rows(state.before), before, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(run.hub.affinity, affinity, rtol=1e-9, atol=1e-12)


def test_nothing_is_known_in_the_first_round_so_it_is_local_on_the_rows_that_are_left(
    ragged: Federation,
) -> None:
    train = ragged.train
    method = coterie.FedFomo(lr=0.3, local_steps=3, validation=0.4)
    run = trained(method, ragged, rounds=1, **EXACT)
    from coterie.data.federation import pack

    held = [max(1, int(0.4 * size)) for size in train.sizes]
    parts = [(a[h:], b[h:]) for h, (a, b) in zip(held, map(train.client, range(5)), strict=True)]
    less = dataclasses.replace(ragged, train=pack(parts))
    alone = trained(coterie.Local(lr=0.3, local_steps=3), less, rounds=1, **EXACT)
    np.testing.assert_allclose(rows(memories(run).x), kept(alone), rtol=1e-12)


def test_held_out_rows_move_no_step_but_the_choice(ragged: Federation) -> None:
    """Other labels on the first rows: the same first round, another second one."""
    y = ragged.train.y.copy()
    for k in range(5):
        first = ragged.train.offsets[k]
        y[first : first + max(1, int(0.4 * ragged.train.sizes[k]))] = 2
    other = dataclasses.replace(ragged, train=dataclasses.replace(ragged.train, y=y))
    method = coterie.FedFomo(lr=0.3, local_steps=3, validation=0.4)
    one, two = (
        [rows(memories(trained(method, fed, rounds=t, **EXACT)).x) for t in (1, 3)]
        for fed in (ragged, other)
    )
    np.testing.assert_array_equal(one[0], two[0])
    assert np.abs(one[1] - two[1]).max() > 1e-3


@pytest.fixture(scope="module")
def groups() -> Federation:
    return two_groups()


@pytest.fixture(scope="module")
def run(groups: Federation) -> Simulator:
    method = coterie.FedFomo(lr=0.1, local_steps=2, download=2, epsilon=0.5)
    return trained(method, groups, "linear", rounds=25, **EXACT)


def test_kin_count_more_than_strangers_and_are_chosen(run: Simulator) -> None:
    affinity = np.asarray(run.hub.affinity)
    np.testing.assert_array_equal(affinity[~KIN], 0)
    liked = np.flatnonzero(affinity.max(1) > 0)
    assert len(liked) >= 5, "one of them at most does best alone"
    greedy = run.method.replace(epsilon=0.0)
    with run.precision():
        chosen = [np.asarray(greedy.choice(run.hub, k)[0]) for k in range(6)]  # type: ignore[attr-defined]
    for k in liked:
        assert chosen[k][0] == affinity[k].argmax()


def test_a_choice_is_of_others_without_repetition_and_chance_reaches_all(run: Simulator) -> None:
    seen: set[tuple[int, int]] = set()
    chance = run.method.replace(epsilon=1.0)

    @jax.jit
    def choice(t: Any, k: Any) -> Any:
        hub = run.hub._replace(memory=run.hub.memory._replace(t=t))
        return chance.choice(hub, k)[0]  # type: ignore[attr-defined]

    for t in range(20):
        with run.precision():
            for k in range(6):
                ids = np.asarray(choice(t, k))
                assert len(set(ids)) == 2
                assert k not in ids
                seen |= {(k, int(l)) for l in ids}
    assert len(seen) == 30


@pytest.mark.slow
def test_who_was_never_sampled_is_not_offered(groups: Federation) -> None:
    method = coterie.FedFomo(lr=0.1, local_steps=2, download=4, epsilon=0.5)
    run = trained(method, groups, "linear", rounds=1, cohort=3, **EXACT)
    heard = set(cohorts(0, 1, 6, 3)[0])
    ids, real = choices(run)
    for k in range(6):
        assert set(ids[k][real[k]]) == heard - {k}
        assert real[k].sum() == len(heard - {k})
    model = 8 * 4
    assert run.ledger.totals()["down"] == 3 * (4 * model + 4 * 8), "M models and M marks each"
    assert run.ledger.totals()["up"] == 3 * (model + 4 * 8), "a model and M weights each"


@pytest.mark.slow
def test_a_newcomer_is_offered_what_members_like_and_finds_its_group(
    run: Simulator, groups: Federation
) -> None:
    method: Any = run.method.replace(download=5)
    with run.precision():
        offered = method.welcome(run.hub, method.broadcast(run.hub, 0), None)
    liked = np.argsort(-np.asarray(run.hub.affinity).sum(0))[:5]
    np.testing.assert_array_equal(rows(offered.models), rows(run.hub.memory.models)[liked])
    found = adapt(run, groups.subset(np.array([4])), rounds=10).models["personal"]
    models = rows(run.hub.memory.models)
    apart = np.linalg.norm(models - np.asarray(found.leaves[0]).reshape(1, D + 1), axis=1)
    assert apart[SAME[4]].max() < apart[~SAME[4]].min()
