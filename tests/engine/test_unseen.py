"""Clients that train without sending work when somebody looks at them: no result, bill or bit knows
the difference.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import coterie
from bench.hlo import Program, block_of
from coterie import METHODS, Diverged, Federation, Linear, PFedMe
from coterie.adversary import get_attack
from coterie.channel import get_channel
from coterie.core.compilation import Compilations
from coterie.engine import simulator as engine
from coterie.engine import unseen
from coterie.engine.many import Many, simulate_many
from coterie.engine.setting import State
from coterie.runs.checkpoint import Checkpoints
from tests.support.conformance_cases import assert_alike, small

PLAIN: dict[str, Any] = {"rounds": 6, "batch_size": 4, "cohort": 2, "seed": 3}
METHOD = PFedMe(lr=0.1, lam=1.5, local_rounds=2, inner_steps=3)
TIGHT = {"rtol": 1e-10, "atol": 1e-12}


def simulator(federation: Federation, method: Any = METHOD, **more: Any) -> coterie.Simulator:
    made = {k: more.pop(k) for k in ("channel", "attack", "absent", "folder") if k in more}
    return coterie.Simulator(
        method, federation, "mlr", coterie.Training(**{**PLAIN, **more}), **made
    )


def run_to(sim: coterie.Simulator, t: int) -> coterie.Simulator:
    while sim.t < t:
        sim.advance(t - sim.t)
    return sim


def bits(sim: coterie.Simulator) -> tuple[bytes, bytes]:
    hub = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(sim.hub_state))
    return hub, sim.store.packed(np.arange(sim.spec.clients)).tobytes()


def seen(sim: coterie.Simulator, *looks: int) -> dict[int, Any]:
    """What is there after these rounds."""
    return {t: bits(run_to(sim, t)) for t in looks}


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds whose work was done later."""
    rounds: list[int] = []
    for name in ("_on_device", "_from_store"):
        inner = getattr(unseen, name)

        def noted(*given: Any, inner: Any = inner) -> Any:
            rounds.append(given[-1])
            return inner(*given)

        monkeypatch.setattr(unseen, name, noted)
    return rounds


@pytest.mark.parametrize("name", sorted(METHODS))
def test_who_says_that_clients_forget(name: str) -> None:
    """The others that may train all clients (Local, Ditto, lp-proj) go on from what these keep."""
    method = METHODS[name]()
    if "trains" in method.public():
        method = method.replace(trains="all")
    assert method.forgets == (name == "pfedme")


@pytest.mark.parametrize(("name", "forgets"), [("pfedme", True), ("lp-proj-2", False)])
def test_what_clients_kept_matters_to_those_that_do_not_forget(
    name: str, forgets: bool, ragged: Federation
) -> None:
    method = small(name, trains="all")
    whole, other = (run_to(simulator(ragged, method), 2) for _ in range(2))
    everyone = np.arange(5)
    nothing = jax.tree.map(lambda leaf: 0 * leaf, other.store.gather(everyone))
    other.store.scatter(everyone, nothing)
    assert bits(whole) != bits(other)
    assert (bits(run_to(whole, 3)) == bits(run_to(other, 3))) == forgets == method.forgets


@pytest.mark.parametrize(
    "change",
    [{"trains": "sampled"}, {"inner_start": "last"}, {"tolerance": 0.1}],
    ids=lambda change: next(iter(change)),
)
def test_what_depends_on_earlier_rounds_or_on_data_is_not_put_off(
    change: dict[str, Any], ragged: Federation
) -> None:
    assert simulator(ragged).spec.unseen
    assert not simulator(ragged, METHOD.replace(**change)).spec.unseen


def test_nothing_is_put_off_where_all_send_or_some_may_drop_out(ragged: Federation) -> None:
    absent = lambda seed, t, cohort: np.zeros(5, bool)
    assert not simulator(ragged, cohort=5).spec.unseen
    assert not simulator(ragged, absent=absent).spec.unseen


@pytest.mark.parametrize(
    ("more", "channel"),
    [
        ({}, None),
        ({"store": "host"}, None),
        pytest.param({"store": "file", "devices": 2}, None, marks=pytest.mark.slow),
        ({"devices": 2}, None),
        ({}, ("delta", {"share": 0.2, "down": True})),
        pytest.param({}, ("qsgd", {}), marks=pytest.mark.slow),
    ],
    ids=["device", "host", "file, 2 devices", "2 devices", "copies both ways", "qsgd"],
)
def test_no_bit_depends_on_who_looks_and_when(
    more: dict[str, Any], channel: Any, wide: Federation
) -> None:
    if channel is not None:
        more = {**more, "channel": get_channel(*channel)}
    make = lambda: simulator(wide, METHOD.replace(keep_local=True), cohort=3, **more)
    always = seen(make(), 1, 2, 3, 4, 5, 6)
    assert len(set(always.values())) == 6
    for looks in ((2, 4, 6), (5, 6), (6,)):
        assert seen(make(), *looks) == {t: always[t] for t in looks}


@pytest.mark.parametrize("store", ["device", "file"])
def test_resumed_between_two_looks(store: str, ragged: Federation, tmp_path: Path) -> None:
    for part in ("a", "b", "c", "run"):
        (tmp_path / part).mkdir()
    whole = run_to(simulator(ragged, store=store, folder=tmp_path / "a"), 6)
    first = run_to(simulator(ragged, store=store, folder=tmp_path / "b"), 3)
    Checkpoints(tmp_path / "run", "same", {}).write(first)
    second = simulator(ragged, store=store, folder=tmp_path / "c")
    assert Checkpoints(tmp_path / "run", "same", {}).restore(second, pytest.fail)
    assert bits(second) == bits(first)
    assert bits(run_to(second, 6)) == bits(whole)
    assert second.ledger.totals() == whole.ledger.totals()


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "what the code calls personal": ({"keep_local": True, "weighting": "samples"}, {}),
    "rarely": ({"exchange_every": 3}, {"rounds": 7, "eval_every": 2}),
    "steered": ({"server_optimizer": "fedadam", "merging": "median"}, {}),
    "errors": ({}, {"channel": get_channel("top-k", {"share": 0.2, "memory": "errors"})}),
    "copies": ({}, {"channel": get_channel("delta", {"share": 0.2, "down": True})}),
    "lies": ({}, {"attack": get_attack("sign-flip", {"fraction": 0.4})}),
    "labels": ({}, {"attack": get_attack("label-flip", {"fraction": 0.4})}),
    "infinite lies": (
        {"merging": "median"},
        {"attack": get_attack("scaled", {"fraction": 0.4, "factor": 1e300}), "cohort": 3},
    ),
    "best": ({}, {"keep": "best"}),
    "held out": ({}, {"held_out": 1}),
    "host": ({}, {"store": "host"}),
    "epochs": ({"local_epochs": 2}, {}),
    "epochs, host, batches that grow": (
        {"local_epochs": 1},
        {"store": "host", "batch_schedule": Linear(1.0, 1.0)},
    ),
    "epochs of all rows": ({"local_epochs": 2}, {"sampling": "full"}),
}
DAILY = ("copies", "infinite lies")


@pytest.mark.parametrize(
    "case",
    [c if c in DAILY else pytest.param(c, marks=pytest.mark.slow) for c in CASES],
)
def test_results_and_bills_are_those_of_training_everybody(
    case: str, ragged: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, more = CASES[case]
    # In float64 nothing is infinite.
    single = case == "infinite lies"
    options = {**PLAIN, "eval_every": 3, "precision": "float32" if single else "float64", **more}
    if options.get("sampling") == "full":
        del options["batch_size"]
    run = lambda: coterie.simulate(METHOD.replace(**change), ragged, **options)
    ours = run()
    assert ours.simulator.spec.unseen
    monkeypatch.setattr(engine, "puts_off", lambda *given: False)
    everybody = run()
    assert not everybody.simulator.spec.unseen
    assert_alike(ours, everybody, **({"rtol": 1e-4, "atol": 1e-6} if single else TIGHT))
    assert (ours.simulator.unsent > 0) == single
    assert ours.simulator.unsent == everybody.simulator.unsent
    np.testing.assert_array_equal(ours.simulator.dirty, everybody.simulator.dirty)


def test_work_is_done_once_for_every_look(ragged: Federation, worked: list[int]) -> None:
    coterie.simulate(METHOD, ragged, **PLAIN, eval_every=3)
    assert worked == [2, 5]
    coterie.simulate(METHOD, ragged, **PLAIN, eval_every=6, store="host")
    assert worked == [2, 5, 5]
    sim = run_to(simulator(ragged), 4)
    for _ in range(2):
        sim.models(0)
    assert worked == [2, 5, 5, 3]


def test_a_round_computes_the_cohort_alone(wide: Federation) -> None:
    """Of 10 clients 2 are sampled: the program of a round has about a fifth of the work."""

    def work(method: PFedMe) -> float:
        sim = simulator(wide, method)
        return Program(block_of(sim).compile().as_text()).total().flops

    assert work(METHOD) < 1.02 * work(METHOD.replace(trains="sampled"))
    assert work(METHOD) < 0.3 * work(METHOD.replace(inner_start="last"))


def test_states_are_updated_in_place(wide: Federation) -> None:
    sim = simulator(wide)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(State(sim.hub_state, sim.store.rows)))
    assert block_of(sim).compile().memory_analysis().alias_size_in_bytes == held


def test_looking_in_every_round_takes_two_programs_and_no_more(wide: Federation) -> None:
    """One for a round, one for the others: none for rounds that are looked at."""
    sim = simulator(wide)
    run_to(sim, 1).store  # noqa: B018 - reading it is looking
    with Compilations() as compilations:
        seen(sim, 2, 3, 6)
    assert compilations.count == 0


def scaled(federation: Federation, client: int) -> Federation:
    """One client overflows at once, everybody else is as before."""
    train = federation.train
    x = train.x.copy()
    x[train.offsets[client] : train.offsets[client + 1]] *= 1e160
    return dataclasses.replace(federation, train=dataclasses.replace(train, x=x))


def test_nan_of_a_sampled_client_is_seen_in_its_round_and_another_ones_at_the_next_look() -> None:
    linear = coterie.load("linear", clients=4, samples=6, dimension=3, scale=1.0, scale_last=2.0)
    options = {"rounds": 6, "sampling": "full", "precision": "float64", "cohort": 2}
    found = set()
    for seed in range(6):
        sampled = [2 in simulator_of_cohorts(linear, seed).cohort(t) for t in range(6)]
        first = sampled.index(True) + 1 if any(sampled) else 7
        with pytest.raises(Diverged) as caught:
            coterie.simulate(
                METHOD, scaled(linear, 2), "linear", **options, eval_every=2, seed=seed
            )
        assert (caught.value.round, caught.value.clients) == (min(first, 2), [2])
        found.add(min(first, 2) == first)
        methods = [METHOD, METHOD.replace(lr=0.05)]
        runs = simulate_many(
            methods,
            scaled(linear, 2),
            "linear",
            **options,
            eval_every=2,
            seeds=[seed],
            keep_collapsed=True,
        )
        assert [run.collapsed_at for run in runs] == [min(first, 2)] * 2
        assert [run.rounds for run in runs] == [[0]] * 2
    assert found == {True, False}


def simulator_of_cohorts(federation: Federation, seed: int) -> coterie.Simulator:
    options = coterie.Training(rounds=6, cohort=2, seed=seed)
    return coterie.Simulator("fedavg", federation, "linear", options)


def test_side_by_side_each_is_what_it_is_alone(wide: Federation, worked: list[int]) -> None:
    methods = [METHOD.replace(lr=lr) for lr in (0.05, 0.1, 0.2)]
    options = {**PLAIN, "eval_every": 3, "precision": "float64"}
    runs = simulate_many(methods, wide, **{**options, "seeds": [3]})
    for many, method in zip(runs, methods, strict=True):
        assert_alike(many, coterie.simulate(method, wide, **options), **TIGHT)
    assert sorted(worked) == [2] * 6 + [5] * 6
    some = Many(methods, wide, seeds=[3] * 3, training={**options, "rounds": 4}, alike=True)
    some.advance(3)
    some.keep([1])
    some.advance(1)
    some.give_states()
    alone = simulator(wide, methods[1], precision="float64", rounds=4)
    np.testing.assert_allclose(
        some.sims[1].all_models().leaves[0], run_to(alone, 4).all_models().leaves[0], **TIGHT
    )
