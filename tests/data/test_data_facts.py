"""Which facts of a federation go along with its clients is said, not guessed from lengths."""

from __future__ import annotations

import numpy as np
import pytest

import coterie
from coterie.core.errors import InvalidInput
from coterie.data import Federation, downsample, from_arrays, from_table, get_source

SITES = ["a", "b", "c"]


def table(each: int = 12) -> dict[str, object]:
    """As many sites as labels and as features."""
    rng = np.random.default_rng(0)
    rows = 3 * each
    return {
        "site": SITES * each,
        "f": rng.normal(size=rows),
        "g": rng.normal(size=rows),
        "h": rng.normal(size=rows),
        "label": [("x", "y", "z")[i // 3 % 3] for i in range(rows)],
    }


def test_names_of_classes_and_features_are_not_cut_with_the_clients() -> None:
    fed = from_table(table(), client="site", target="label")
    some = fed.subset(np.array([2, 0]))
    assert some.facts["labels"] == ["x", "y", "z"]
    assert some.facts["features"] == ["f", "g", "h"]
    assert some.facts["clients"] == ["c", "a"]


def test_a_run_with_held_out_sites_keeps_the_names_of_its_classes() -> None:
    fed = from_table(table(), client="site", target="label")
    sim = coterie.Simulator("local", fed, "mlr", coterie.Training(held_out=1, rounds=1))
    assert sim.federation.clients == 2
    assert sim.federation.facts["labels"] == ["x", "y", "z"]
    assert len(sim.federation.facts["clients"]) == 2


def test_numbers_of_clients_are_those_in_the_subset() -> None:
    x = np.zeros((25, 1), np.float32)
    owner = np.repeat([0, 1, 2, 3], [8, 1, 8, 8])
    fed = downsample(from_arrays("toy", x, np.arange(25) % 2, owner), 0.5, 0.5, seed=1)
    poor = fed.facts["downsampled"]
    fed.facts["no_test"] = [1]
    kept = np.array([3, 1, poor[0]]) if poor[0] not in (1, 3) else np.array([3, 1])
    some = fed.subset(kept)
    assert some.facts["downsampled"] == [i for i, k in enumerate(kept) if k in poor]
    assert some.facts["no_test"] == [1]


def test_the_known_solutions_go_along() -> None:
    fed = get_source("linear", {"clients": 4, "dimension": 4, "samples": 8}).load(0)
    some = fed.subset(np.array([3, 1]))
    np.testing.assert_array_equal(some.facts["truth"], fed.facts["truth"][[3, 1]])
    np.testing.assert_array_equal(some.facts["b"], fed.facts["b"][[3, 1]])


def test_facts_of_ones_own_are_said_to_be_per_client() -> None:
    x, y, owner = np.zeros((8, 1), np.float32), np.arange(8) % 2, np.arange(8) % 2
    facts = {"town": ["Bonn", "Ulm"], "units": ["m", "s"]}
    fed = from_arrays("toy", x, y, owner, facts=facts, per_client=("town",))
    some = fed.subset(np.array([1]))
    assert some.facts == {"town": ["Ulm"], "units": ["m", "s"]}


def test_a_fact_per_client_of_another_length_is_refused() -> None:
    x, y, owner = np.zeros((8, 1), np.float32), np.arange(8) % 2, np.arange(8) % 2
    with pytest.raises(
        InvalidInput, match="the fact 'clients' of 'toy' has 3 values for 2 clients"
    ):
        from_arrays("toy", x, y, owner, facts={"clients": ["a", "b", "c"]})
    assert isinstance(from_arrays("toy", x, y, owner, facts={"clients": ["a", "b"]}), Federation)
