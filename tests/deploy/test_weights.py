"""Clients that claim more samples than they have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from coterie import Federation, load
from coterie.core.errors import InvalidInput
from coterie.deploy.hub import Hub
from coterie.deploy.messages import Reply
from coterie.deploy.plan import Plan
from coterie.deploy.weights import counted
from tests.support.room import CLIENTS, Room, assert_same, make_plan

HUGE = (1 << 40) - 1


@pytest.mark.parametrize(
    ("claims", "most", "fair"),
    [
        ([5], {}, [5]),
        ([5, HUGE], {}, [5, HUGE]),
        ([5, HUGE], {1: 7}, [5, 7]),
        ([100, 90, HUGE], {}, [100, 90, 190]),
        ([1, 1, HUGE, HUGE], {}, [1, 1, 2, 4]),
        ([100, 100, 200, 400, 800], {}, [100, 100, 200, 400, 800]),
        ([HUGE, 3, 4, 5], {0: 900}, [900, 3, 4, 5]),
        ([1000, 10, 10], {0: 1000}, [1000, 10, 10]),
    ],
)
def test_nobody_outweighs_the_others_by_what_it_says(
    claims: list[int], most: dict[int, int], fair: list[int]
) -> None:
    assert [*counted(dict(enumerate(claims)), most).values()] == fair


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


def merged(fed: Federation, plan: Plan, folder: Path, liar: int | None) -> tuple[Hub, list[str]]:
    """A round of FedAvg in which one client says that it has a huge number of samples."""
    room, said = Room(plan, fed, folder), list[str]()
    room.hub = Hub(plan, folder / "loud", say=said.append)
    for k, request in room.hub.requests().items():
        reply: Reply = room.ask(k, request)
        if k == liar:
            reply = dataclasses.replace(reply, samples=HUGE)
        assert room.hub.take(k, reply)
    room.hub.close()
    return room.hub, said


def test_a_client_does_not_take_over_fedavg_by_its_word(fed: Federation, tmp_path: Path) -> None:
    plan = make_plan(fed, "fedavg")
    sizes = {f"site-{k}": int(n) for k, n in enumerate(fed.train.sizes)}
    honest, quiet = merged(fed, plan, tmp_path / "honest", None)
    assert quiet == []
    lied, said = merged(fed, plan, tmp_path / "lied", 2)
    others = sum(n for name, n in sizes.items() if name != "site-2")
    assert said == [
        f"site-2 says that it has {HUGE} samples, more than all that have fewer together, and the"
        f" plan's `samples` does not name it; it counts as {others}."
    ]
    known, said = merged(fed, plan.with_(samples=sizes), tmp_path / "known", 2)
    assert said == [
        f"site-2 says that it has {HUGE} samples, more than the plan says; it counts as"
        f" {sizes['site-2']}."
    ]
    states = [np.concatenate([np.ravel(a) for a in leaves(hub)]) for hub in (honest, known, lied)]
    np.testing.assert_array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])


def leaves(hub: Hub) -> list[np.ndarray]:
    import jax

    return [np.asarray(leaf) for leaf in jax.tree.leaves(hub.kept.hub.method_state)]


@pytest.mark.slow
def test_a_plan_that_says_the_truth_ends_as_the_simulator(fed: Federation, tmp_path: Path) -> None:
    sizes = {f"site-{k}": int(n) for k, n in enumerate(fed.train.sizes)}
    plan = make_plan(fed, "fedavg").with_(samples=sizes)
    assert Plan.from_config(plan.to_config()) == plan
    assert_same(Room(plan, fed, tmp_path).run(), fed)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (3, "samples is 3, but must be a table"),
        ({"nobody": 3}, "in samples the client 'nobody' is unknown"),
        ({"site-0": 0}, "samples.site-0 is 0, but must be a whole number from 1"),
        ({"site-0": 1 << 41}, "samples.site-0 is 2199023255552, but must be"),
        ({"site-0": True}, "samples.site-0 is True, but must be"),
    ],
)
def test_what_is_no_number_of_samples_is_refused(
    fed: Federation, samples: object, sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        make_plan(fed, "fedavg").with_(samples=samples)
