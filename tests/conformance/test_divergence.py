"""NaN and infinity from one client never spread silently: the run stops at that round and names the
client.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from coterie import Diverged, Federation, Method
from coterie.engine.exchange import exchange_of
from coterie.engine.reference import simulate_slowly
from tests.support.conformance_cases import NAMES, cohorts, small, thinned, uneven_graph

EXACT: dict[str, Any] = {"rounds": 50, "eval_every": 10, "sampling": "full", "precision": "float64"}
BAD = 2


@pytest.fixture(scope="module")
def linear() -> Federation:
    return coterie.load("linear", clients=4, samples=6, dimension=3, scale=1.0, scale_last=2.0)


def scaled(linear: Federation, factor: float) -> Federation:
    """One client's inputs multiplied: its curvature grows by factor², everybody else's stays."""
    x = linear.train.x.copy()
    x[linear.train.offsets[BAD] : linear.train.offsets[BAD + 1]] *= factor
    return dataclasses.replace(linear, train=dataclasses.replace(linear.train, x=x))


def run(method: Method, federation: Federation, **options: Any) -> Any:
    graph = uneven_graph(4) if exchange_of(method).kind == "graph" else None
    return coterie.simulate(method, federation, "linear", graph=graph, **{**EXACT, **options})


def method_of(name: str) -> Method:
    return small(name, **({"dsub": 2} if "dsub" in coterie.METHODS[name].public() else {}))


@pytest.mark.parametrize("name", thinned(NAMES))
def test_a_client_that_overflows_is_named_in_the_first_bad_round(
    name: str, linear: Federation
) -> None:
    method = method_of(name)
    with pytest.raises(Diverged) as caught:
        run(method, scaled(linear, 1e160))
    error = caught.value
    assert (error.method, error.round) == (method.title, 1)
    # Where all data is in one place, nobody knows whose it was.
    pooled = exchange_of(method).kind == "pooled"
    assert error.clients == ([] if pooled else [BAD])
    where = "in the shared model" if pooled else f"from client {BAD}"
    assert str(error).startswith(f"{method.title} diverged in round 1: NaN or infinity {where}")


@pytest.mark.parametrize("name", ["local", "fedavg", "fedu"])
def test_the_round_is_the_first_in_which_the_bad_client_trains(
    name: str, linear: Federation
) -> None:
    first = {}
    for seed in range(8):
        first[seed] = int(np.argmax((cohorts(seed, 50, 4, 2) == BAD).any(1))) + 1
        with pytest.raises(Diverged) as caught:
            run(method_of(name), scaled(linear, 1e160), cohort=2, seed=seed)
        assert (caught.value.round, caught.value.clients) == (first[seed], [BAD])
    assert len(set(first.values())) > 1


def test_slow_divergence_is_dated_by_the_round_in_which_the_numbers_overflow(
    linear: Federation,
) -> None:
    """With lr·b = 2.6 one client's error grows by 1.6 a step until float32 ends; everybody else
    converges meanwhile.
    """
    lr, steps = 0.1, 10
    federation = scaled(linear, np.sqrt(2.6 / lr / linear.facts["b"][BAD]))
    x, y = (a.astype(np.float32) for a in federation.train.client(BAD))
    w, expected = np.zeros(3, np.float32), 0
    with np.errstate(over="ignore", invalid="ignore"):
        while np.isfinite(w).all():
            expected += 1
            for _ in range(steps):
                w = w - np.float32(lr) * (x.T @ (x @ w - y) / np.float32(len(x)))
    assert 10 < expected < 40
    with pytest.raises(Diverged) as caught:
        run(coterie.Local(lr=lr, local_steps=steps), federation, precision="float32")
    assert caught.value.clients == [BAD]
    assert caught.value.round == expected


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("name", thinned(["fedu", "dfedu", "graph-proj"]))
def test_an_overflow_in_the_mixing_is_reported_in_its_own_round_even_if_it_is_the_last(
    name: str, rounds: int, linear: Federation
) -> None:
    method = method_of(name).replace(eta=1e308, mix_lr=1e10)
    for back_end in (simulate_slowly, coterie.simulate):
        with pytest.raises(Diverged) as caught:
            back_end(method, linear, "linear", graph=uneven_graph(4), **{**EXACT, "rounds": rounds})
        assert caught.value.round == 1
        assert caught.value.broken, "μ̃·η·‖L‖ < 2 is broken and must be named"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pfedme", {"lam": 100.0, "personal_lr": 0.5}),
        ("lp-proj-2", {"lam": 100.0, "personal_lr": 0.5}),
        ("fedu", {"eta": 50.0}),
    ],
)
def test_the_broken_step_size_condition_is_named(
    name: str, change: dict[str, float], linear: Federation
) -> None:
    with pytest.raises(Diverged, match="must be < 2 but is") as caught:
        run(method_of(name).replace(**change), linear, rounds=400, eval_every=400)
    assert caught.value.broken


def test_both_back_ends_report_the_same(linear: Federation) -> None:
    reports = []
    for back_end in (coterie.simulate, simulate_slowly):
        with pytest.raises(Diverged) as caught:
            back_end(
                method_of("fedu"), scaled(linear, 1e30), "linear", graph=uneven_graph(4), **EXACT
            )
        reports.append((caught.value.round, caught.value.clients))
    assert reports[0] == reports[1]
    assert BAD in reports[0][1]


def test_other_clients_of_local_are_untouched_by_the_bad_one(linear: Federation) -> None:
    """What the good clients had by then is what they would have had without the bad one."""
    simulator = coterie.Simulator(
        method_of("local"), scaled(linear, 1e160), "linear", coterie.Training(**EXACT)
    )
    with pytest.raises(Diverged):
        simulator.advance(1)
    good = run(method_of("local"), linear, rounds=50)
    assert jax.tree.leaves(good.simulator.hub) == []
    first = coterie.Simulator(method_of("local"), linear, "linear", coterie.Training(**EXACT))
    first.advance(1)
    keep = [k for k in range(4) if k != BAD]
    np.testing.assert_array_equal(
        simulator.all_models().leaves[0][keep], first.all_models().leaves[0][keep]
    )
