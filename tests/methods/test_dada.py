"""Dada's fixed point is that of its objective; with equal clients on a regular graph it is dFedU;
small clients listen more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, InvalidInput, Simulator, Training
from coterie.data.federation import pack
from coterie.deploy.plan import Plan
from coterie.deploy.problem import Problem
from tests.support.conformance_cases import uneven_graph
from tests.support.groups import SAME, rows, two_groups
from tests.support.quadratics import N, linear


def trained(method: Any, fed: Federation, graph: Any, rounds: int = 4) -> NDArray[Any]:
    options = Training.from_config({"rounds": rounds, "precision": "float64", "sampling": "full"})
    simulator = Simulator(method, fed, "linear", options, graph)
    while simulator.t < rounds:
        simulator.advance(rounds - simulator.t)
    return rows(simulator.all_models())


def uneven() -> tuple[Federation, NDArray[Any], NDArray[Any]]:
    """Clients with 2, 4, 6 and 10 rows of two inputs, f_k(w) = (b/2)‖w − ŵ_k‖²; b and ŵ_k."""
    best = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0], [0.5, -1.5]])
    parts = []
    for k, size in enumerate((1, 2, 3, 5)):
        x = np.tile(np.eye(2), (size, 1))
        parts.append((x, x @ best[k]))
    fed = Federation("uneven", pack(parts), pack(parts), pack(parts), task="regression")
    return fed, np.full((4, 1), 0.5), best


@pytest.mark.parametrize("full", [None, 5.0])
def test_where_it_stands_still(full: float | None) -> None:
    """x = (I − sη(I − P))(x − s c b (x − ŵ)) with P = D⁻¹A; for small s that is where the gradient
    of the objective is 0.
    """
    fed, b, best = uneven()
    graph, lr, eta = uneven_graph(4), 0.02, 3.0
    a = graph.weights.toarray()
    sizes = fed.train.sizes[:, None]
    c = np.minimum(1, sizes / (full or sizes.max()))
    assert c.min() < 0.5, "confidences must matter"
    found = trained(coterie.Dada(lr=lr, eta=eta, local_steps=1, full=full), fed, graph, 4000)
    smooth = np.eye(4) - a / a.sum(1, keepdims=True)
    mix = np.eye(4) - lr * eta * smooth
    system = np.eye(4) - mix @ (np.eye(4) - lr * np.diagflat(c * b))
    np.testing.assert_allclose(found, np.linalg.solve(system, lr * mix @ (c * b * best)), atol=1e-9)
    d = a.sum(1, keepdims=True)
    slope = d * c * b * (found - best) + eta * (np.diagflat(d) - a) @ found
    assert np.abs(slope).max() < 0.1 * np.abs(d * c * b * (found - best)).max()


def test_equal_clients_on_a_regular_graph_are_dfedus() -> None:
    graph: Graph = coterie.graph.from_matrix(coterie.graph.ring(N).weights.toarray() / 2)
    options: dict[str, Any] = {"lr": 0.2, "eta": 0.8, "local_steps": 3}
    one = trained(coterie.Dada(**options), linear(), graph)
    np.testing.assert_allclose(one, trained(coterie.DFedU(**options), linear(), graph), rtol=1e-12)
    other = coterie.graph.from_matrix(7 * graph.weights.toarray())
    np.testing.assert_allclose(one, trained(coterie.Dada(**options), linear(), other), rtol=1e-12)


def test_who_has_little_data_listens_more() -> None:
    """With all pairs tied: how far each is drawn from its own minimum, relative to how far the
    others' mean is.
    """
    fed, _, best = uneven()
    found = trained(coterie.Dada(lr=0.1, eta=1.0, local_steps=1), fed, None, 1000)
    plain = trained(coterie.DFedU(lr=0.1, eta=1 / 3, local_steps=1), fed, None, 1000)
    drawn = [
        np.linalg.norm(x - best, axis=1) / np.linalg.norm(best - best.mean(0), axis=1)
        for x in (found, plain)
    ]
    assert drawn[0][0] > drawn[1][0] + 0.05, "the smallest is drawn further than by dFedU"
    assert drawn[0][0] > drawn[0][3] + 0.1, "and further than the largest"


def test_it_learns_its_graph_where_that_is_asked_for() -> None:
    rule = coterie.learn_graph("dada", neighbours=2, after=3, every=3)
    options = Training.from_config({"rounds": 9, "precision": "float64", "sampling": "full"})
    run = Simulator(coterie.Dada(lr=0.1, local_steps=15), two_groups(), "linear", options, rule)
    while run.t < 9:
        run.advance(9 - run.t)
    assert run.graph is not None
    tied = run.graph.weights.toarray() > 0
    assert tied.any(1).all()
    assert not tied[~SAME].any()


def test_isolated_clients_train_alone() -> None:
    a = np.zeros((N, N))
    a[0, 1] = a[1, 0] = 1.0
    method = coterie.Dada(lr=0.2, eta=0.5, local_steps=2)
    found = trained(method, linear(), coterie.graph.from_matrix(a))
    alone = trained(coterie.Local(lr=0.2, local_steps=2), linear(), None)
    np.testing.assert_allclose(found[2:], alone[2:], rtol=1e-12)
    assert np.abs(found[:2] - alone[:2]).max() > 0.01


def test_a_plan_must_say_what_full_confidence_is() -> None:
    config: dict[str, Any] = {
        "name": "two",
        "clients": ["a", "b"],
        "problem": Problem.of(linear()).to_config(),
        "method": {"name": "dada"},
    }
    with pytest.raises(
        InvalidInput, match=r"dada.full is nothing, but in a real federation nobody"
    ):
        Plan.from_config(config)
    config["method"]["full"] = 50.0
    assert Plan.from_config(config).peers
