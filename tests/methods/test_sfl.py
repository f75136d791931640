"""SFL's rounds repeated in NumPy; on a complete graph it is FedProx, and with a learnt one groups
find each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, InvalidInput, Simulator, Training
from coterie.engine.adapt import adapt
from tests.support.conformance_cases import cohorts, uneven_graph
from tests.support.groups import SAME, rows, two_groups
from tests.support.quadratics import EXACT, D, N, facts, linear
from tests.support.star_runs import flat


def trained(
    method: Any,
    fed: Federation,
    graph: Graph | None,
    model: Any = "linear",
    **training: Any,
) -> Simulator:
    options = Training.from_config({"rounds": 4, "precision": "float64", **training})
    simulator = Simulator(method, fed, model, options, graph)
    while simulator.t < options.rounds:
        simulator.advance(options.rounds - simulator.t)
    return simulator


def personal(run: Simulator) -> NDArray[Any]:
    return rows(run.all_models())


def learnt(v: NDArray[Any], count: int) -> NDArray[Any]:
    apart = ((v[:, None] - v[None]) ** 2).sum(2)
    alike = np.exp(-apart * (N * (N - 1)) / apart.sum())
    np.fill_diagonal(alike, 0)
    for k in range(N):
        alike[k, np.argsort(-alike[k])[count:]] = 0
    return alike / alike.sum(1, keepdims=True)


@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_rounds_with_sampled_clients_repeated_in_numpy(rho: float) -> None:
    fed, graph, lr, lam, alpha, layers, steps = linear(), uneven_graph(4), 0.2, 0.6, 0.7, 2, 3
    b, best = facts(fed)
    method = coterie.SFL(
        lr=lr, lam=lam, alpha=alpha, layers=layers, local_steps=steps, rho=rho, nearest=2
    )
    run = trained(method, fed, graph, rounds=5, cohort=3, seed=1, sampling="full")
    given = graph.weights.toarray() + np.eye(N)
    given /= given.sum(1, keepdims=True)
    v = np.zeros((N, D))

    def mixed() -> NDArray[Any]:
        tied = given if rho == 0 else (1 - rho) * given + rho * learnt(v, 2)
        return (1 - alpha) * v + alpha * np.linalg.matrix_power(tied, layers) @ v

    for t, members in enumerate(cohorts(1, 5, N, 3)):
        u = mixed() if t else v
        w = u.mean(0)
        for k in members:
            x = w
            for _ in range(steps):
                x = x - lr * (b[k] * (x - best[k]) + lam * (2 * x - u[k] - w))
            v[k] = x
    np.testing.assert_allclose(rows(run.hub.models), v, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(personal(run), mixed(), rtol=1e-10, atol=1e-13)
    assert (run.ledger.rows()[:, 2:] == [8 * D, 16 * D, steps]).all(), "d numbers up and 2d down"


@pytest.mark.parametrize("graph", [None, coterie.graph.complete(5)])
def test_on_a_complete_graph_it_is_fedprox(graph: Graph | None, ragged: Federation) -> None:
    """All u_k are then the mean w, and (λ/2)·2‖v − w‖² is FedProx's term with 2λ."""
    options: dict[str, Any] = {"lr": 0.2, "local_steps": 3, "optimizer": "momentum"}
    training: dict[str, Any] = {"batch_size": 4, "model": "mlr"}
    one = trained(coterie.SFL(lam=0.4, **options), ragged, graph, **training)
    prox = coterie.FedProx(prox=0.8, weighting="uniform", **options)
    other = trained(prox, ragged, None, **training)
    np.testing.assert_allclose(personal(one), np.tile(flat(other.hub), (5, 1)), rtol=1e-12)


def test_where_it_stands_still() -> None:
    """One step a round from w: v_k = w − μ(∇f_k(w) + λ(w − u_k)). With u = Âv and w = mean u this
    is a linear system, solved directly.
    """
    fed, graph, lr, lam = linear(), coterie.graph.ring(N), 0.3, 0.5
    b, best = facts(fed)
    run = trained(
        coterie.SFL(lr=lr, lam=lam, local_steps=1), fed, graph, rounds=600, sampling="full"
    )
    tied = graph.weights.toarray() + np.eye(N)
    tied /= tied.sum(1, keepdims=True)
    mean = np.full((N, N), 1 / N) @ tied
    # v = mean v − μ b(mean v − ŵ) − μ λ (mean v − Â v)
    system = np.eye(N) - (1 - lr * lam - lr * b) * mean - lr * lam * tied
    v = np.linalg.solve(system, lr * b * best)
    np.testing.assert_allclose(personal(run), tied @ v, atol=1e-10)
    assert np.abs(tied @ v - (mean @ v)).max() > 0.01, "else all would have the same model"


def test_a_learnt_structure_ties_kin() -> None:
    method = coterie.SFL(lr=0.1, local_steps=15, rho=1.0, nearest=2, lam=0.01)
    run = trained(method, two_groups(), None, rounds=20, sampling="full")
    bound: Any = run.method
    with run.precision():
        tied = np.asarray(bound.tied(run.hub))
    np.testing.assert_allclose(tied.sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(tied[~SAME], 0)
    apart = np.linalg.norm(personal(run)[:, None] - personal(run)[None], axis=2)
    assert apart[SAME].max() < 0.5 * apart[~SAME].min()
    found = adapt(run, two_groups().subset(np.array([0])), rounds=1).models["personal"]
    with run.precision():
        everybody = bound.everybody(run.hub).flat()
    np.testing.assert_allclose(np.asarray(found.leaves[0]).ravel(), everybody, rtol=1e-12)


def test_a_rule_that_learns_graphs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the method is sfl, which takes a graph as it is given"):
        coterie.simulate(
            coterie.SFL(), linear(), "linear", graph=coterie.learn_graph("kin"), rounds=2, **EXACT
        )
