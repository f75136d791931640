"""Federations that talk rarely, guard their clients, keep quiet or have a budget: the simulator's
models and bill.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import Federation, load
from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.deploy.plan import Plan
from tests.support import peering
from tests.support.bills import in_order
from tests.support.room import CLIENTS, Room, assert_same, make_plan

DELTA = get_channel("delta", {"share": 0.1})
CYCLIC = get_channel("delta", {"share": 0.34, "pick": "cyclic", "values": "int4"})
KIN = {"kind": "learn", "rule": {"name": "kin", "neighbours": 2, "after": 2, "sketch": 16}}


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


def restart(room: Room) -> None:
    room.hub = room.new_hub()
    room.clients = [room.new_client(k) for k in range(CLIENTS)]


@pytest.mark.parametrize(
    ("name", "channel", "options", "training"),
    [
        pytest.param("fedavg", DELTA, {"exchange_every": 3}, {"cohort": 2}, marks=pytest.mark.slow),
        ("fedu", CYCLIC, {"exchange_every": 3, "implicit": True, "eta": 0.3}, {}),
        pytest.param("fedu", PLAIN, {"exchange_growth": 2}, {"cohort": 3}, marks=pytest.mark.slow),
        pytest.param("pfedme", PLAIN, {"exchange_every": 2}, {}, marks=pytest.mark.slow),
        pytest.param("scaffold", DELTA, {"exchange_every": 4}, {}, marks=pytest.mark.slow),
        pytest.param("mocha", PLAIN, {"exchange_every": 2}, {}, marks=pytest.mark.slow),
        ("fedu", PLAIN, {"guard": True, "eta": 0.5}, {"rounds": 3}),
        ("fedu", get_channel("plain", {"quiet": 0.2}), {"eta": 0.2}, {}),
        pytest.param(
            "fedavg",
            get_channel("delta", {"share": 0.3, "quiet": 0.1}),
            {},
            {"cohort": 2},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_deployed_equals_simulated(
    name: str,
    channel: Channel,
    options: dict[str, Any],
    training: dict[str, Any],
    fed: Federation,
    tmp_path: Path,
) -> None:
    plan = make_plan(fed, name, channel, options, **{"rounds": 7, **training})
    room = Room(plan, fed, tmp_path).run(restart)
    assert_same(room, fed)
    talked = {int(t) for t, _, up, *_ in room.hub.ledger.rows() if up}
    if "exchange_every" in options:
        every = options["exchange_every"]
        assert talked <= {t for t in range(7) if (t + 1) % every == 0 or t == 6}
    assert room.hub.t == plan.exchanges


@pytest.mark.parametrize("every", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_with_a_graph_that_is_learnt(every: int, fed: Federation, tmp_path: Path) -> None:
    options = {"exchange_every": 3, "implicit": True, "eta": 0.2}
    plan = make_plan(fed, "fedu", DELTA, options, rounds=9, precision="float64")
    rule = {**KIN["rule"], "every": every}  # type: ignore[dict-item]
    plan = plan.with_(graph={**KIN, "rule": rule})
    assert_same(Room(plan, fed, tmp_path).run(restart), fed)


def test_a_budget_is_settled_in_the_plan(fed: Federation, tmp_path: Path) -> None:
    asked = get_channel("delta", {"budget": "9kB"})
    plan = make_plan(fed, "fedu", asked, {"eta": 0.2}, rounds=20)
    assert plan.method.exchange_every > 1
    assert plan.channel.values == "int4"
    again = Plan.from_config(plan.to_config())
    assert (again.method, again.channel) == (plan.method, plan.channel)
    assert again.fingerprint == plan.fingerprint
    hub = Room(plan, fed, tmp_path).run().hub
    each = (hub.ledger.up + hub.ledger.down) / CLIENTS + 2 * 400 * plan.exchanges
    assert 4_500 < each < 9_000
    with pytest.raises(InvalidInput, match="a single exchange needs"):
        make_plan(fed, "fedu", get_channel("delta", {"budget": "300"}), rounds=20)


def test_peers_talk_rarely(tmp_path: Path) -> None:
    few = peering.little()
    plan = peering.make_plan(few, "dfedu", "turns", rounds=8)
    plan = plan.with_(method=plan.method.replace(exchange_every=3, implicit=True, eta=0.2))
    assert plan.exchanges == 3
    peers = peering.everyone(plan, few, tmp_path)
    for _ in range(3):
        peering.one_round(peers)
        peers = peering.everyone(plan, few, tmp_path)
    simulator = peering.simulated(plan, few)
    for k, peer in enumerate(peers.values()):
        assert peer.done
        expected = simulator.models(k)["personal"].flat()
        np.testing.assert_allclose(peer.models()["personal"].flat(), expected, rtol=1e-6)
    bills = np.concatenate([peer.ledger.rows() for peer in peers.values()])
    np.testing.assert_array_equal(in_order(bills), in_order(simulator.ledger.rows()))
