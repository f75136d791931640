"""dFedU over edges that are drawn: who trains, what is mixed and billed, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.coupling import graph
from coterie.data.federation import Federation
from coterie.engine.edges import Edges
from coterie.engine.reference import simulate_slowly
from coterie.methods.local import equal_compute
from tests.support.federations import blobs

N = 12
OPTIONS: dict[str, Any] = {"rounds": 4, "batch_size": 3, "eval_every": 4}


@pytest.fixture(scope="module")
def town() -> Federation:
    rng = np.random.default_rng(2)
    splits = [blobs(rng, [each] * N, 3, 2) for each in (5, 0, 2)]
    return Federation("town", *splits, "classification", 2)


def models(result: Any) -> np.ndarray:
    stacked = result.simulator.all_models()
    return np.concatenate([np.asarray(a).reshape(N, -1) for a in stacked.leaves], axis=1)


def test_all_edges_are_the_paper(town: Federation) -> None:
    whole = coterie.simulate(coterie.DFedU(local_steps=2, eta=0.3), town, graph=ring(), **OPTIONS)
    drawn = coterie.simulate(
        coterie.DFedU(local_steps=2, eta=0.3, edges=N), town, graph=ring(), **OPTIONS
    )
    np.testing.assert_allclose(models(drawn), models(whole), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(drawn.ledger.rows(), whole.ledger.rows())


def ring() -> graph.Graph:
    return graph.ring(N)


def test_the_ends_of_drawn_edges_train_and_mix_and_pay(town: Federation) -> None:
    """A round of dFedU on the graph of the drawn edges alone, seen from every client."""
    method = coterie.DFedU(local_steps=2, eta=0.3, edges=2)
    runs = [
        coterie.simulate(method, town, graph=ring(), store=s, **{**OPTIONS, "rounds": 1})
        for s in ("device", "host", "file")
    ]
    low, high, weight = Edges(ring(), 2, 0).of(0)
    assert len(low) == 2
    assert (weight == 1).all()
    ends = np.unique(np.concatenate([low, high]))
    part = graph.from_edges(N, low, high, 1.0, "part")
    expected = coterie.simulate(
        coterie.DFedU(local_steps=2, eta=0.3), town, graph=part, **{**OPTIONS, "rounds": 1}
    )
    first = coterie.simulate(
        coterie.Local(lr=1e-9, local_steps=1), town, **{**OPTIONS, "rounds": 1}
    )
    for run in runs:
        np.testing.assert_allclose(models(run)[ends], models(expected)[ends], rtol=1e-5, atol=1e-6)
        rest = np.setdiff1d(np.arange(N), ends)
        np.testing.assert_allclose(models(run)[rest], models(first)[rest], atol=1e-6)
        rows, others = run.ledger.rows(), expected.ledger.rows()
        np.testing.assert_array_equal(rows, others[np.isin(others[:, 1], ends)])
    assert models(runs[0]).tobytes() == models(runs[1]).tobytes() == models(runs[2]).tobytes()


def test_rounds_draw_other_edges_and_ends_have_one_shape() -> None:
    edges = Edges(ring(), 3, 7)
    assert len({edges.of(t).low.tobytes() for t in range(10)}) > 5
    for t in range(10):
        ends = edges.ends(t)
        assert len(ends) == 6
        assert set(ends) == set(edges.of(t).low) | set(edges.of(t).high)
        assert (np.diff(ends) >= 0).all()


def test_what_does_not_go_with_drawn_edges_is_refused(town: Federation) -> None:
    method = coterie.DFedU(edges=3)
    with pytest.raises(InvalidInput, match=r"dfedu\.edges is 99, but must be at most 12"):
        coterie.simulate(coterie.DFedU(edges=99), town, graph=ring(), **OPTIONS)
    with pytest.raises(InvalidInput, match="the graph is learnt by a rule"):
        coterie.simulate(method, town, graph=coterie.learn_graph("kin"), **OPTIONS)
    with pytest.raises(InvalidInput, match="must be 'plain' at full"):
        coterie.simulate(method, town, graph=ring(), channel="delta", **OPTIONS)
    with pytest.raises(InvalidInput, match="simulate them one by one"):
        coterie.simulate_many([method], town, graph=ring(), **OPTIONS)
    with pytest.raises(InvalidInput, match="the slow reference takes all edges"):
        simulate_slowly(method, town, "mlr", graph=ring(), **OPTIONS)
    with pytest.raises(InvalidInput, match="in deployments all edges are used"):
        method.check_deployed()
    with pytest.raises(InvalidInput, match="nothing to compare with"):
        equal_compute(method)
