"""Numbers of clients carry no meaning; seeds do; where states live does not matter; several runs at
once are the runs one by one.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation, Graph, Method, Result, Training
from coterie.data.federation import Split, pack
from coterie.engine.exchange import exchange_of
from coterie.engine.simulate import Simulator, drive
from tests.support.conformance_cases import (
    NAMES,
    SAMPLED,
    TRAINING,
    assert_alike,
    assert_same_bits,
    cohorts,
    daily,
    everything,
    flat_models,
    model_for,
    samples_cohorts,
    small,
    thinned,
    uneven_graph,
    variant,
)


def graph_of(method: Method) -> Graph | None:
    return uneven_graph() if exchange_of(method).kind == "graph" else None


def options_of(method: Method) -> dict[str, Any]:
    return SAMPLED if samples_cohorts(method) else TRAINING


def permuted(federation: Federation, order: np.ndarray) -> Federation:
    def turn(split: Split) -> Split:
        return pack([split.client(int(k)) for k in order])

    return dataclasses.replace(
        federation,
        train=turn(federation.train),
        validation=turn(federation.validation),
        test=turn(federation.test),
    )


@pytest.mark.parametrize("label", daily(NAMES))
def test_permuting_clients_permutes_results(label: str, ragged: Federation) -> None:
    # Batches and cohorts are keyed by client number, so take all samples of all clients: then
    # nothing is random but model and projection.
    method = variant(label)
    order = np.array([3, 0, 4, 2, 1])
    options = {**TRAINING, "sampling": "full"}
    del options["batch_size"]
    graph = graph_of(method)
    turned = (
        coterie.graph.from_matrix(graph.weights.toarray()[np.ix_(order, order)]) if graph else None
    )
    a = coterie.simulate(method, ragged, model_for(method), graph=graph, **options)
    b = coterie.simulate(
        method, permuted(ragged, order), model_for(method), graph=turned, **options
    )
    for view in method.model_views:
        np.testing.assert_allclose(
            flat_models(a, view)[order], flat_models(b, view), rtol=1e-9, atol=1e-12
        )
    np.testing.assert_allclose(
        a.snapshots[-1].scores["test"].loss[:, order],
        b.snapshots[-1].scores["test"].loss,
        rtol=1e-9,
    )
    if exchange_of(method).kind in ("alone", "graph"):
        assert not np.allclose(flat_models(a)[order], flat_models(a)), (
            "all clients are alike, so this test could not fail"
        )


@pytest.mark.parametrize("name", daily(NAMES))
def test_same_seed_gives_the_same_bits_and_another_seed_another_result(
    name: str, ragged: Federation
) -> None:
    method = small(name)
    options = options_of(method)
    run = lambda seed: coterie.simulate(
        method, ragged, model_for(method), graph=graph_of(method), seed=seed, **options
    )
    first, again, other = run(3), run(3), run(4)
    assert_same_bits(first, again)
    assert not np.allclose(flat_models(first), flat_models(other), rtol=1e-3)
    if "cohort" in options and not method.trains_all and exchange_of(method).kind != "pooled":
        assert not np.array_equal(first.ledger.rows()[:, 1], other.ledger.rows()[:, 1]), (
            "another seed must sample other cohorts"
        )


@pytest.mark.parametrize("name", ["pfedme", "fedu"])
def test_same_seed_gives_the_same_bits_in_single_precision_too(
    name: str, ragged: Federation
) -> None:
    method = small(name)
    first, again = (
        coterie.simulate(
            method, ragged, graph=graph_of(method), **{**SAMPLED, "precision": "float32"}
        )
        for _ in range(2)
    )
    assert first.personal(0).dtype == np.float32
    assert_same_bits(first, again)


def _with_store(
    kind: str, method: Method, federation: Federation, options: dict[str, Any], folder: Path
) -> Result:
    training = Training.from_config({**options, "store": kind})
    simulator = Simulator(
        method,
        federation,
        model_for(method),
        training,
        graph_of(method),
        folder=folder if kind == "file" else None,
    )
    return Result(
        method, federation, training, list(drive(simulator)), simulator.ledger, 0.0, 0.0, simulator
    )


@pytest.mark.parametrize(
    "label", thinned([*NAMES, "fedu, epochs, all neighbours", "pfedme, all options"])
)
def test_host_and_file_stores_give_what_the_device_gives(
    label: str, ragged: Federation, tmp_path: Path
) -> None:
    method = variant(label)
    options = options_of(method)
    device, host, file = (
        _with_store(kind, method, ragged, options, tmp_path) for kind in ("device", "host", "file")
    )
    assert_alike(device, host, rtol=1e-10, atol=1e-12)
    assert_same_bits(host, file)


@pytest.mark.parametrize(("name", "kind"), [("fedu", "table"), ("graph-proj", "dense")])
def test_stale_neighbours_count_once_when_states_live_on_the_host(
    name: str, kind: str, ragged: Federation, wide: Federation
) -> None:
    """Small cohorts on a ring: the clients that a host round needs are fewer than the shape it is
    compiled for, so it is padded.
    """
    method = small(name, neighbours="all", **({"dsub": 3} if name == "graph-proj" else {}))
    federation = ragged if kind == "dense" else wide
    graph = coterie.graph.ring(federation.clients)
    options = {**TRAINING, "rounds": 8, "cohort": 2}
    device = coterie.simulate(method, federation, graph=graph, **options)
    assert (device.simulator.setting.graph.dense is not None) == (kind == "dense")
    host = coterie.simulate(method, federation, graph=graph, **options, store="host")
    assert_alike(device, host, rtol=1e-10, atol=1e-12)


def _value(method: Method, i: int) -> Method:
    """The method with other floats: a smaller step (or, without steps, another weight of its
    penalty), another strength.
    """
    other = method.replace(**{"lr" if "lr" in method.public() else "lam": [0.1, 0.03][i]})
    return other.replace(**{method.strength: [0.4, 1.1][i]}) if method.strength else other


@pytest.mark.parametrize(
    ("name", "seeds", "values"),
    [
        *(
            pytest.param(
                name,
                [0, 7],
                [0, 1],
                marks=[] if name in ("fedavg", "pfedme", "fedu") else [pytest.mark.slow],
            )
            for name in NAMES
        ),
        pytest.param("pfedme", [0, 7], [0], marks=pytest.mark.slow),
        ("dfedu", [3], [0, 1]),
    ],
)
def test_several_seeds_or_values_at_once_equal_one_by_one(
    name: str, seeds: list[int], values: list[int], ragged: Federation
) -> None:
    methods = [_value(small(name), i) for i in values]
    model, graph, options = model_for(methods[0]), graph_of(methods[0]), options_of(methods[0])
    together = coterie.simulate_many(methods, ragged, model, seeds=seeds, graph=graph, **options)
    assert len(together) == 2
    for i, result in enumerate(together):
        method, seed = methods[i % len(methods)], seeds[i % len(seeds)]
        assert_alike(
            result,
            coterie.simulate(method, ragged, model, graph=graph, seed=seed, **options),
            rtol=1e-10,
            atol=1e-12,
        )
    view = f"models, {methods[0].model_views[0]}"
    assert not np.allclose(everything(together[0])[view], everything(together[1])[view])


@pytest.mark.parametrize(
    "name",
    daily(n for n in NAMES if samples_cohorts(small(n)) and exchange_of(small(n)).kind != "pooled"),
)
def test_every_method_sees_the_same_cohorts_and_takes_as_many_gradients_as_it_says(
    name: str, ragged: Federation
) -> None:
    method = small(name)
    rows = coterie.simulate(
        method, ragged, model_for(method), graph=graph_of(method), **SAMPLED
    ).ledger.rows()
    steps, epochs, *_ = method.work()
    said = (
        steps
        if steps is not None
        else epochs * -(-ragged.train.sizes[rows[:, 1]] // SAMPLED["batch_size"])
    )
    np.testing.assert_array_equal(rows[:, 4], np.broadcast_to(said, len(rows)))
    assert len(rows) == 4 * (5 if method.trains_all else 3)
    sent = rows[rows[:, 2] > 0] if method.trains_all else rows
    np.testing.assert_array_equal(sent[:, 1].reshape(4, 3), cohorts(0, 4, 5, 3))
