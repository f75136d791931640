"""The byte bill equals the encoded sizes of real messages, by one rule for every method."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.channel import PlainCodec
from coterie.engine.exchange import exchange_of
from tests.support.conformance_cases import (
    SAMPLED,
    TRAINING,
    VARIANTS,
    cohorts,
    model_for,
    samples_cohorts,
    thinned,
    uneven_graph,
    variant,
)


@pytest.mark.parametrize("label", thinned(VARIANTS))
def test_the_bill_is_the_sum_of_encoded_messages(label: str, ragged: Federation) -> None:
    method = variant(label)
    hub = samples_cohorts(method)
    options = SAMPLED if hub else TRAINING
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    result = coterie.simulate(method, ragged, model_for(method), graph=graph, **options)
    simulator, n, rounds = result.simulator, ragged.clients, options["rounds"]
    up, down = np.zeros((rounds, n), int), np.zeros((rounds, n), int)

    with simulator.precision():
        star = exchange_of(method).kind == "star"
        received = simulator.method.broadcast(simulator.hub, 0) if star else simulator.hub
        state = simulator.method.client_init(simulator.template)
        step = simulator.method.local(received, state, simulator.now().objective(0))
        size = len(PlainCodec().encode(step.message))
        broadcast = len(PlainCodec().encode(received))
    neighbours = [len(graph.neighbours(k)[0]) for k in range(n)] if graph else []
    for t in range(rounds):
        members = cohorts(0, rounds, n, 3)[t] if hub else np.arange(n)
        if star:
            up[t, members] = size
            down[t, np.arange(n) if method.trains_all else members] = broadcast
        elif exchange_of(method).kind == "graph" and method.hub_between:
            up[t, members] = down[t, members] = size
        elif exchange_of(method).kind == "graph":
            up[t] = down[t] = np.array(neighbours) * size
        elif exchange_of(method).kind == "pooled" and t == 0:
            for k in range(n):
                x, y = ragged.train.client(k)
                up[t, k] = len(PlainCodec().encode((x.astype(options["precision"]), y)))

    billed_up, billed_down = np.zeros_like(up), np.zeros_like(down)
    rows = result.ledger.rows()
    np.add.at(billed_up, (rows[:, 0], rows[:, 1]), rows[:, 2])
    np.add.at(billed_down, (rows[:, 0], rows[:, 1]), rows[:, 3])
    np.testing.assert_array_equal(billed_up, up)
    np.testing.assert_array_equal(billed_down, down)
    assert len(np.unique(rows[:, :2], axis=0)) == len(rows), "a client is billed once a round"
    assert result.ledger.totals() == {
        "up": up.sum(),
        "down": down.sum(),
        "gradients": rows[:, 4].sum(),
    }
    assert result.snapshots[-1].up == up.sum()
    assert (up.sum() > 0) == (exchange_of(method).kind != "alone")


@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("fedavg", 15),
        ("pfedme", 15),
        ("fedu", 15),
        ("lp-proj-1", 4),
        ("lp-proj-2", 4),
        ("graph-proj", 4),
    ],
)
def test_messages_have_d_or_dsub_numbers(label: str, numbers: int, ragged: Federation) -> None:
    method = variant(label)
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    result = coterie.simulate(method, ragged, model_for(method), graph=graph, **SAMPLED)
    rows = result.ledger.rows()
    assert set(rows[:, 2]) - {0} == {numbers * 8}
    assert set(rows[:, 3]) == {numbers * 8}
