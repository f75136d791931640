"""Methods that must coincide do, client by client, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import coterie
from coterie import Federation, Graph, Method

# Sums in another order, nothing else: 1e-16 times the number of steps.
SAME = {"rtol": 1e-12, "atol": 1e-14}
BASE: dict[str, Any] = {"rounds": 4, "eval_every": 4, "batch_size": 4, "precision": "float64"}
STEPS: dict[str, Any] = {"lr": 0.1, "local_steps": 3}


def flat(
    method: Method,
    federation: Federation,
    graph: Graph | None = None,
    view: str | None = None,
    **more: Any,
) -> NDArray[Any]:
    options = {**BASE, **more}
    if options.get("sampling") == "full":
        del options["batch_size"]
    result = coterie.simulate(method, federation, "mlr", graph=graph, **options)
    return np.concatenate(
        [leaf.reshape(len(leaf), -1) for leaf in result.simulator.all_models(view).leaves], axis=1
    )


def test_sharing_all_layers_is_fedavg_with_fine_tuning(ragged: Federation) -> None:
    tuned = coterie.FedBABU(**STEPS, shared="*", adapt_lr=0.1, adapt_steps=2)
    shared = flat(coterie.FedAvg(**STEPS), ragged)
    np.testing.assert_allclose(flat(tuned, ragged, view="global"), shared, **SAME)
    assert np.abs(flat(tuned, ragged, view="personal") - shared).max() > 1e-3


@pytest.fixture(scope="module")
def graph() -> Graph:
    a = np.triu(np.random.default_rng(1).uniform(0.2, 1.0, (5, 5)), 1)
    a[0, 3] = 0
    return coterie.graph.from_matrix(a + a.T)


@pytest.fixture(scope="module")
def fedu(ragged: Federation, graph: Graph) -> NDArray[Any]:
    return flat(coterie.FedU(**STEPS, eta=0.3), ragged, graph)


def test_the_reference_is_coupled(fedu: NDArray[Any], ragged: Federation, graph: Graph) -> None:
    alone = flat(coterie.Local(**STEPS), ragged)
    assert np.abs(fedu - alone).max() > 0.01


def test_dfedu_is_fedu_with_everybody(fedu: NDArray[Any], ragged: Federation, graph: Graph) -> None:
    np.testing.assert_allclose(flat(coterie.DFedU(**STEPS, eta=0.3), ragged, graph), fedu, **SAME)


def test_all_neighbours_are_the_sampled_ones_when_everybody_is_sampled(
    fedu: NDArray[Any], ragged: Federation, graph: Graph
) -> None:
    np.testing.assert_allclose(
        flat(coterie.FedU(**STEPS, eta=0.3, neighbours="all"), ragged, graph), fedu, **SAME
    )
    few = flat(coterie.FedU(**STEPS, eta=0.3, neighbours="all"), ragged, graph, cohort=2)
    assert not np.allclose(
        few, flat(coterie.FedU(**STEPS, eta=0.3), ragged, graph, cohort=2), rtol=1e-3
    ), "with S < N they must differ"


@pytest.mark.parametrize("hub", [True, False])
def test_graph_proj_with_identity_and_p_2_is_fedu(
    hub: bool, fedu: NDArray[Any], ragged: Federation, graph: Graph
) -> None:
    np.testing.assert_allclose(
        flat(coterie.GraphProj(**STEPS, eta=0.3, projection="identity", hub=hub), ragged, graph),
        fedu,
        **SAME,
    )


@pytest.mark.parametrize("p", [1.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_graph_proj_with_hub_is_graph_proj_between_peers(
    p: float, ragged: Federation, graph: Graph
) -> None:
    make = lambda hub: coterie.GraphProj(**STEPS, eta=0.3, dsub=4, p=p, hub=hub)
    np.testing.assert_allclose(
        flat(make(True), ragged, graph), flat(make(False), ragged, graph), **SAME
    )


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"cohort": 2}, {"sampling": "full"}],
    ids=["full cohort", "sampled", "exact gradients"],
)
def test_lp_proj_with_identity_and_p_2_is_pfedme(
    options: dict[str, Any], ragged: Federation
) -> None:
    shared: dict[str, Any] = {
        "lam": 1.2,
        "lr": 0.2,
        "personal_lr": 0.1,
        "local_rounds": 2,
        "inner_steps": 3,
        "beta": 0.9,
    }
    projected = flat(coterie.LpProj(**shared, p=2.0, projection="identity"), ragged, **options)
    envelope = flat(
        coterie.PFedMe(**shared, inner_start="last"), ragged, view="personal", **options
    )
    np.testing.assert_allclose(projected, envelope, **SAME)
    assert np.abs(envelope - envelope.mean(0)).max() > 1e-2


def test_the_named_cases_are_lp_proj_with_that_p(ragged: Federation) -> None:
    shared: dict[str, Any] = {"local_rounds": 2, "inner_steps": 3, "dsub": 4}
    for named, p in ((coterie.LpProj1, 1.0), (coterie.LpProj2, 2.0)):
        np.testing.assert_array_equal(
            flat(named(**shared), ragged), flat(coterie.LpProj(**shared, p=p), ragged)
        )


def test_local_epochs_of_full_batches_are_steps(ragged: Federation) -> None:
    epochs = flat(coterie.Local(lr=0.1, local_epochs=3), ragged, sampling="full")
    np.testing.assert_allclose(
        epochs, flat(coterie.Local(lr=0.1, local_steps=3), ragged, sampling="full"), **SAME
    )


def test_moreau_epochs_are_as_many_batches_as_each_client_has(ragged: Federation) -> None:
    """With full batches an epoch is one mini-batch; else clients with more rows take more."""
    given: dict[str, Any] = {"lam": 2.0, "inner_steps": 2, "trains": "all"}
    epochs = coterie.PFedMe(**given, local_epochs=3)
    rounds = coterie.PFedMe(**given, local_rounds=3)
    np.testing.assert_allclose(
        flat(epochs, ragged, sampling="full"), flat(rounds, ragged, sampling="full"), **SAME
    )
    result = coterie.simulate(epochs, ragged, "mlr", **BASE)
    batches = -(-ragged.train.sizes // BASE["batch_size"])
    assert len(set(batches)) > 1
    taken = sum(2 * 3 * int(n) for n in batches) * BASE["rounds"]
    assert result.ledger.gradients == taken


def test_a_graph_without_edges_is_local(ragged: Federation) -> None:
    empty = coterie.graph.from_matrix(np.zeros((5, 5)))
    np.testing.assert_array_equal(
        flat(coterie.FedU(**STEPS, eta=5.0), ragged, empty), flat(coterie.Local(**STEPS), ragged)
    )


def test_lp_proj_1_starts_at_its_kink_and_not_beside_it(ragged: Federation) -> None:
    """w̃₀ = P x₀, so the first subgradient is sign(0) = 0 and the first step is Local's, whatever
    λ. A rounding error in P x must not count.
    """
    first = coterie.LpProj1(
        lam=100.0, personal_lr=0.1, lr=1e-9, local_rounds=1, inner_steps=1, dsub=4
    )
    alone = flat(
        coterie.Local(lr=0.1, local_steps=1), ragged, rounds=1, eval_every=1, precision="float32"
    )
    np.testing.assert_allclose(
        flat(first, ragged, rounds=1, eval_every=1, precision="float32"),
        alone,
        rtol=1e-5,
        atol=1e-6,
    )
