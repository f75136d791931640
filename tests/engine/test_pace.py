"""Talking rarely: the work of several rounds at once, in every kind of exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie
from coterie import METHODS, Federation, InvalidInput
from coterie.channel import get_channel
from coterie.engine.exchange import exchange_of
from coterie.engine.many import simulate_many
from coterie.engine.pace import pace_of, ready
from coterie.engine.reference import simulate_slowly
from coterie.methods.local import equal_compute
from tests.support.conformance_cases import (
    TRAINING,
    assert_alike,
    model_for,
    small,
    uneven_graph,
)

TALKING = [name for name in sorted(METHODS) if METHODS[name].talks]
ROUNDS = {**TRAINING, "rounds": 5}


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 4), st.integers(0, 9))
def test_all_work_is_done_and_the_last_round_talks(
    rounds: int, every: int, growth: int, alone: int
) -> None:
    pace = pace_of(small("fedu", exchange_every=every, exchange_growth=growth), rounds, alone)
    if pace is None:
        assert every == growth == 1
        return
    assert pace.spans[pace.rounds].sum() == rounds
    assert pace.rounds[-1] == rounds - 1
    gaps = np.diff(pace.rounds[min(alone, rounds) :])
    assert (gaps[:-1] >= every).all()
    assert (np.diff(gaps[:-1]) >= 0).all(), "rarely later, not rarely first"
    t, seen = 0, []
    while t < rounds:
        idle, busy = ready(pace, t, rounds - t)
        seen += list(range(t, t + busy))
        t += idle + busy
    assert seen == pace.rounds.tolist()


DAILY = ("fedavg", "fedu", "pfedme", "mocha")


@pytest.mark.parametrize(
    "name", [n if n in DAILY else pytest.param(n, marks=pytest.mark.slow) for n in TALKING]
)
def test_rounds_at_once_are_the_slow_reference_s_too(name: str, ragged: Federation) -> None:
    method = small(name, exchange_every=2)
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    fast = coterie.simulate(method, ragged, model_for(method), graph=graph, **ROUNDS)
    slow = simulate_slowly(method, ragged, model_for(method), graph=graph, **ROUNDS)
    assert_alike(fast, slow, rtol=1e-10, atol=1e-12)
    often = coterie.simulate(small(name), ragged, model_for(method), graph=graph, **ROUNDS)
    rare, usual = fast.ledger.totals(), often.ledger.totals()
    assert rare["gradients"] == usual["gradients"]
    assert rare["up"] * 5 == usual["up"] * 3, "rounds 2, 4 and 5 of 5"


def test_fedu_with_whole_batches_is_fedu_with_as_many_steps(ragged: Federation) -> None:
    whole = {"sampling": "full", "precision": "float64"}
    rare = coterie.simulate(
        coterie.FedU(local_steps=2, eta=0.05, lr=0.1, exchange_every=3),
        *(ragged, "mlr"),
        **{**whole, "rounds": 6, "eval_every": 6},
    )
    long = coterie.simulate(
        coterie.FedU(local_steps=6, eta=0.05, lr=0.1),
        *(ragged, "mlr"),
        **{**whole, "rounds": 2, "eval_every": 2},
    )
    for k in range(5):
        np.testing.assert_allclose(rare.personal(k).flat(), long.personal(k).flat(), rtol=1e-12)


def test_growing_gaps_with_a_learnt_graph(ragged: Federation) -> None:
    method = coterie.FedU(local_steps=2, exchange_growth=2, implicit=True)
    rule = coterie.learn_graph("kin", neighbours=2, after=2, sketch=4)
    options = {**TRAINING, "rounds": 9}
    fast = coterie.simulate(method, ragged, "mlr", graph=rule, **options)
    slow = simulate_slowly(method, ragged, "mlr", graph=rule, **options)
    assert_alike(fast, slow, rtol=1e-10, atol=1e-12)
    rounds = fast.ledger.rows()
    assert sorted({int(t) for t, _, up, *_ in rounds if up}) == [2, 4, 8]  # 2: sketches, models


def test_turns_are_taken_by_exchanges(ragged: Federation) -> None:
    """With as many rounds between exchanges as a cycle has, all coordinates are sent all the
    same.
    """
    method = coterie.FedU(local_steps=2, eta=0.5, exchange_every=3)
    through = get_channel("delta", {"k": 5, "pick": "cyclic"})  # 15 numbers: three rounds
    options = {**TRAINING, "rounds": 9}
    fast = coterie.simulate(method, ragged, "mlr", channel=through, **options)
    slow = simulate_slowly(method, ragged, "mlr", channel=through, **options)
    assert_alike(fast, slow, rtol=1e-10, atol=1e-12)
    copies = fast.simulator.store.gather(np.arange(5)).up.public.copy
    start = fast.simulator.template.flat()
    assert (np.abs(np.asarray(copies) - np.asarray(start)).max(0) > 0).all()


def test_side_by_side(ragged: Federation) -> None:
    methods = [coterie.FedU(local_steps=2, eta=eta, exchange_every=3) for eta in (0.01, 0.1)]
    many = simulate_many(methods, ragged, "mlr", **ROUNDS)
    for method, found in zip(methods, many, strict=True):
        alone = coterie.simulate(method, ragged, "mlr", **ROUNDS)
        assert_alike(found, alone, rtol=1e-10, atol=1e-12)


def test_going_on_from_a_round_without_work(ragged: Federation) -> None:
    make = lambda: coterie.Simulator(
        coterie.FedU(local_steps=2, exchange_every=3), ragged, "mlr", coterie.Training(**ROUNDS)
    )
    whole, half = make(), make()
    while whole.t < 5:
        whole.advance(5 - whole.t)
    while half.t < 4:
        half.advance(4 - half.t)
    again = make()
    again.restore(half.state(np.arange(5)))
    while again.t < 5:
        again.advance(5 - again.t)
    np.testing.assert_array_equal(whole.all_models().flat(), again.all_models().flat())
    assert whole.ledger.totals() == again.ledger.totals()


def test_local_takes_as_many_steps_in_every_round() -> None:
    alone = equal_compute(small("fedu", exchange_every=10))
    assert (alone.exchange_every, alone.local_steps) == (1, 3)


def test_what_cannot_be() -> None:
    with pytest.raises(InvalidInput, match=r"fedu\.exchange_every is 0, but must be .* ≥ 1"):
        coterie.FedU(exchange_every=0)
    with pytest.raises(InvalidInput, match="local sends nothing, so it would be ignored"):
        coterie.Local(exchange_every=2)
    with pytest.raises(InvalidInput, match=r"mocha\.exchange_growth is 2, but must be 1"):
        coterie.get_method("mocha", {"exchange_growth": 2})
