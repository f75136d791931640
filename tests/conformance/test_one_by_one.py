"""The compiled simulator gives what one client after the other gives, for every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import coterie
from coterie import Federation
from coterie.engine.exchange import exchange_of
from coterie.engine.reference import simulate_slowly
from tests.support.conformance_cases import (
    RIVALS,
    SAMPLED,
    TRAINING,
    VARIANTS,
    assert_alike,
    model_for,
    samples_cohorts,
    small,
    uneven_graph,
    variant,
)

# float64 rounding (1e-16) times a few dozen steps; anything algorithmic is off by 1e-3 or more.
TIGHT = {"rtol": 1e-10, "atol": 1e-12}
# Variants whose other path is one that methods above them take too.
ALIKE = (
    *(
        "local, epochs",
        "graph-proj, guarded",
        "ditto, epochs",
        "rsa, epochs",
        "afl, median",
        "fedavg, epochs, β",
        "scaffold, epochs, gradient",
        "fedrep, epochs, own head_lr",
    ),
    *("per-fedavg, epochs, Hessian", "apfl, adaptive", "fedbabu, epochs, head"),
    *("fedala, epochs, all layers", "ifca, three clusters, FedAdam"),
    *("local, clipped", "global, Adam kept", "scaffold, RMSProp kept, FedAdam"),
    *("afl, Adam at the hub", "apfl, Adam kept", "ditto, Adagrad kept"),
    *("fedrep, Yogi kept, FedAvgM", "fedper, AdamW kept", "lp-proj-2, FedAdagrad"),
)


def cases() -> list[Any]:
    """Every variant with all clients and with some; by default a variant only with some, a method
    at its defaults with both.
    """
    both = [(label, cohort) for label in VARIANTS for cohort in ("full", "sampled")]
    long = {
        (label, cohort)
        for label, cohort in both
        if label in ALIKE or label.split(",")[0] in RIVALS or ("," in label and cohort == "full")
    }
    return [pytest.param(*case, marks=pytest.mark.slow) if case in long else case for case in both]


@pytest.mark.parametrize(("label", "cohort"), cases())
def test_vectorised_equals_one_client_at_a_time(
    label: str, cohort: str, ragged: Federation
) -> None:
    method = variant(label)
    if cohort == "sampled" and not samples_cohorts(method):
        pytest.skip("has no hub that could sample clients")
    if cohort == "full" and label not in ("fedavg", "fedu") and samples_cohorts(method):
        pytest.skip("tested with a sampled cohort, which includes all that a full one does")
    options = SAMPLED if cohort == "sampled" else TRAINING
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    fast = coterie.simulate(method, ragged, model_for(method), graph=graph, **options)
    slow = simulate_slowly(method, ragged, model_for(method), graph=graph, **options)
    assert_alike(fast, slow, **TIGHT)


@pytest.mark.parametrize(
    ("name", "sampling"),
    [
        pytest.param("global", "replace", marks=pytest.mark.slow),
        ("fedu", "replace"),
        ("pfedme", "full"),
    ],
)
def test_other_batch_rules_agree_too(name: str, sampling: str, ragged: Federation) -> None:
    method = small(name)
    options = {**SAMPLED, "sampling": sampling, "train_metrics": True}
    if sampling == "full":
        del options["batch_size"]
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    assert_alike(
        coterie.simulate(method, ragged, graph=graph, **options),
        simulate_slowly(method, ragged, graph=graph, **options),
        **TIGHT,
    )


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("fedu", {}, marks=pytest.mark.slow),
        ("fedu", {"neighbours": "all"}),
        ("graph-proj", {"p": 3.0, "dsub": 3, "hub": False}),
    ],
)
def test_a_sparse_graph_kept_as_a_table_agrees(
    name: str, more: dict[str, object], wide: Federation
) -> None:
    method = small(name, **more)
    a = coterie.graph.ring(10).weights.toarray() * (1 + np.add.outer(np.arange(10), np.arange(10)))
    a[0, 1] = a[1, 0] = 0.0  # unequal weights and degrees
    options = {**TRAINING, **({"cohort": 6} if samples_cohorts(method) else {})}
    graph = coterie.graph.from_matrix(a / 10)
    fast = coterie.simulate(method, wide, graph=graph, **options)
    assert fast.simulator.setting.graph.dense is None, "this graph should be kept as a table"
    assert_alike(fast, simulate_slowly(method, wide, graph=graph, **options), **TIGHT)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("pfedme", {}, marks=pytest.mark.slow),
        ("fedu", {"local_epochs": 1, "neighbours": "all"}),
    ],
)
@pytest.mark.parametrize("at_once", [2])
def test_few_clients_at_once_gives_the_same_as_all_at_once(
    name: str, more: dict[str, object], at_once: int, ragged: Federation
) -> None:
    method = small(name, **more)
    graph = uneven_graph() if exchange_of(method).kind == "graph" else None
    whole = coterie.simulate(method, ragged, graph=graph, **SAMPLED)
    parts = coterie.simulate(
        method, ragged, graph=graph, **SAMPLED, clients_at_once=at_once, eval_at_once=at_once
    )
    assert_alike(whole, parts, **TIGHT)


def test_schedules_agree(ragged: Federation) -> None:
    method = small(
        "pfedme",
        lr={"kind": "inverse-sqrt", "scale": 0.2},
        lam={"kind": "linear", "slope": 0.5, "shift": 1.0},
        tolerance={"kind": "inverse-time", "scale": 1.0},
    )
    options = {**SAMPLED, "batch_schedule": {"kind": "sqrt", "scale": 1.5}}
    fast, slow = (
        coterie.simulate(method, ragged, **options),
        simulate_slowly(method, ragged, **options),
    )
    assert_alike(fast, slow, **TIGHT)
    plain = coterie.simulate(small("pfedme", lr=0.2, lam=0.5, tolerance=1.0), ragged, **SAMPLED)
    assert not np.allclose(plain.personal(3).flat(), fast.personal(3).flat()), (
        "the schedules did nothing"
    )
