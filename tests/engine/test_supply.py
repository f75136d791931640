"""Rounds that are given their own clients' rows compute what rounds with all data on the device do,
to the last bit; and what they are given follows the cohort.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.coupling import graph
from coterie.data.federation import Federation, Split
from coterie.engine.supply import FromHost, Shelf, Supply, table_of
from coterie.methods.base import get_method
from tests.support.federations import blobs

CLIENTS = 24
OPTIONS: dict[str, Any] = {
    "rounds": 5,
    "cohort": 4,
    "batch_size": 3,
    "eval_every": 3,
    "eval_at_once": 7,
}


@pytest.fixture(scope="module")
def many() -> Federation:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 9, CLIENTS).tolist()
    held = rng.integers(0, 4, CLIENTS).tolist()
    splits = [blobs(rng, s, 4, 3) for s in (sizes, held, held)]
    return Federation("many", *splits, "classification", 3)


def mapped(federation: Federation, folder: Path) -> Federation:
    """The same data in files."""

    def on_disk(name: str, split: Split) -> Split:
        found = []
        for part in ("x", "y"):
            path = folder / f"{name}.{part}.npy"
            np.save(path, getattr(split, part))
            found.append(np.load(path, mmap_mode="r"))
        return Split(*found, split.offsets)

    parts = {s: on_disk(s, getattr(federation, s)) for s in ("train", "validation", "test")}
    return dataclasses.replace(federation, **parts)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "fedavg": (coterie.FedAvg(local_steps=3), {}),
    "fedavg by samples, in epochs": (
        coterie.FedAvg(local_epochs=2, weighting="samples"),
        {"clients_at_once": 2},
    ),
    "fedu": (coterie.FedU(local_steps=3, eta=0.3), {"graph": graph.ring(CLIENTS)}),
    "fedu, all neighbours": (
        coterie.FedU(local_steps=3, eta=0.3, neighbours="all"),
        {"graph": graph.ring(CLIENTS)},
    ),
    "fedu, guarded": (
        coterie.FedU(local_steps=2, eta=0.3, guard=True),
        {"graph": graph.complete(CLIENTS)},
    ),
    "pfedme": (coterie.PFedMe(local_rounds=3, trains="sampled"), {}),
    "lp-proj-1": (get_method("lp-proj-1", {"dsub": 5, "trains": "sampled"}), {}),
    "per-fedavg": ("per-fedavg", {}),
    "labels flipped": (coterie.FedAvg(local_steps=3), {"attack": "label-flip"}),
    "full batches": (coterie.FedAvg(local_steps=2), {"sampling": "full", "batch_size": None}),
    "by a metric of all rows": (coterie.FedAvg(local_steps=2), {"metric": "f1"}),
}
SHORT = ("fedavg by samples, in epochs", "fedu, all neighbours", "per-fedavg", "labels flipped")


def all_bits(result: Any) -> bytes:
    sim = result.simulator
    scores = [a.tobytes() for s in result.snapshots for found in s.scores.values() for a in found]
    rows = sim.store.packed(np.arange(sim.spec.clients)).tobytes()
    views = [leaf.tobytes() for leaf in sim.all_models().leaves]
    return b"".join([rows, *scores, *views, result.ledger.to_bytes()])


@pytest.mark.parametrize(
    "case", [c if c in SHORT else pytest.param(c, marks=pytest.mark.slow) for c in CASES]
)
def test_the_bits_are_those_of_the_device(case: str, many: Federation, tmp_path: Path) -> None:
    method, changes = CASES[case]
    given = {k: v for k, v in {**OPTIONS, **changes}.items() if v is not None}
    there = coterie.simulate(method, many, store="device", **given)
    assert type(there.simulator.supply) is Supply
    for store, federation in (("host", many), ("file", mapped(many, tmp_path))):
        here = coterie.simulate(method, federation, store=store, **given)
        assert isinstance(here.simulator.supply, FromHost)
        assert all_bits(here) == all_bits(there), store


def test_a_prefetched_client_that_trains_meanwhile_is_as_new_as_the_store(
    many: Federation,
) -> None:
    """With 6 of 24 the cohorts of two rounds often overlap; the local models would differ."""
    options = {**OPTIONS, "cohort": 6, "rounds": 12}
    runs = [
        coterie.simulate(coterie.Local(local_steps=2), many, store=s, **options)
        for s in ("device", "host", "file")
    ]
    cohort = runs[0].simulator.cohort
    assert any(len(np.intersect1d(cohort(t), cohort(t + 1))) for t in range(11))
    assert all_bits(runs[0]) == all_bits(runs[1]) == all_bits(runs[2])


def test_rounds_that_take_many_of_the_clients_have_their_data_on_the_device(
    many: Federation,
) -> None:
    options = coterie.Training(**{**OPTIONS, "store": "host"})
    for cohort, method, kind in (
        (6, coterie.FedAvg(), FromHost),
        (7, coterie.FedAvg(), Supply),
        (6, coterie.PFedMe(), Supply),
        (6, coterie.PFedMe(trains="sampled"), FromHost),
    ):
        sim = coterie.Simulator(method, many, "mlr", options.replace(cohort=cohort))
        assert type(sim.supply) is kind, (cohort, method)


def test_what_a_round_is_given_follows_the_cohort(many: Federation) -> None:
    """Ten times as many clients: a round is given arrays of the same size."""
    sizes, many_more = [], np.tile(many.train.sizes, 10)
    for counts in (many.train.sizes, many_more):
        split = blobs(np.random.default_rng(0), counts.tolist(), 4, 3)
        shelf = Shelf(split, np.float32)
        part = shelf.of(np.array([3, 9, 9, 20]))
        sizes.append((part.x.shape[1:], len(part.ids), part.x.nbytes <= shelf.room(4) * 16))
        for k in (3, 9, 20):
            mine = int(part.index_of(k))
            rows = slice(part.start[mine], part.start[mine] + part.size[mine])
            assert part.x[rows].tobytes() == split.client(k)[0].astype(np.float32).tobytes()
            assert part.y[rows].tolist() == split.client(k)[1].tolist()
        assert shelf.room(4) == np.sort(counts)[-4:].sum()
    assert sizes[0] == sizes[1]


def test_a_table_of_some_clients_is_part_of_that_of_all() -> None:
    made = graph.random_graph(30, 0.2, seed=4)
    index, weight = made.table()
    ids = np.array([0, 7, 8, 29])
    some = table_of(made, ids, np.float64)
    np.testing.assert_array_equal(some.near, index[ids])
    np.testing.assert_array_equal(some.weight, weight[ids])


def test_a_sample_of_clients_is_evaluated(many: Federation) -> None:
    options = {**OPTIONS, "train_metrics": True}
    everyone = coterie.simulate(coterie.FedAvg(local_steps=2), many, **options)
    for store in ("device", "host"):
        some = coterie.simulate(
            coterie.FedAvg(local_steps=2), many, **options, eval_clients=9, store=store
        )
        seen = np.isfinite(some.client_scores("train"))
        assert seen.sum() == 9
        expected = np.where(seen, everyone.client_scores("train"), np.nan)
        np.testing.assert_array_equal(some.client_scores("train"), expected)
        counted = some.simulator.scored("test")
        np.testing.assert_array_equal(counted, np.where(seen, many.test.sizes, 0))
        assert all_bits(some) != all_bits(everyone)
    other = coterie.simulate(coterie.Local(), many, **options, eval_clients=9, seed=3)
    np.testing.assert_array_equal(np.isfinite(other.client_scores("train")), seen)
    assert "(of 9 of 24 clients)" in repr(some)


def test_a_sample_of_more_clients_than_there_are_is_refused(many: Federation) -> None:
    with pytest.raises(InvalidInput, match=r"eval_clients is 25, but must be at most 24"):
        coterie.simulate("fedavg", many, eval_clients=25, rounds=1)


@pytest.mark.parametrize("store", ["host", "file"])
def test_a_run_goes_on_from_a_checkpoint(store: str, many: Federation) -> None:
    options = coterie.Training(**{**OPTIONS, "store": store})
    given = (coterie.FedU(local_steps=2, eta=0.3, neighbours="all"), many, "mlr", options)
    whole, first, second = (
        coterie.Simulator(*given, graph.ring(CLIENTS)) for _ in ("whole", "first", "second")
    )
    for _ in range(5):
        whole.advance(1)
    for _ in range(2):
        first.advance(1)
    changed = first.changed()
    assert 0 < len(changed) <= 8, "what is saved follows the cohorts"
    second.restore(first.state(changed))
    for _ in range(3):
        second.advance(1)
    everyone = np.arange(CLIENTS)
    assert second.store.packed(everyone).tobytes() == whole.store.packed(everyone).tobytes()
