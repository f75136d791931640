"""A hub that learns who is like whom, without a wire: the simulator's graph, models and bill."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import Federation, load
from coterie.channel import PLAIN, Channel, get_channel
from coterie.core.errors import InvalidInput
from coterie.deploy import messages
from coterie.deploy.messages import Rejected, Request
from coterie.deploy.plan import Plan
from tests.support.room import CLIENTS, Room, assert_same, make_plan, simulated

KIN = {"name": "kin", "neighbours": 2, "after": 2, "sketch": 16}


@pytest.fixture(scope="module")
def fed() -> Federation:
    return load("digits", clients=CLIENTS)


def learning(
    fed: Federation,
    method: str = "fedu",
    channel: Channel = PLAIN,
    rule: dict[str, Any] | None = None,
    **training: Any,
) -> Plan:
    options = {"eta": 0.05} if method == "fedu" else {"dsub": 8}
    plan = make_plan(fed, method, channel, options, **{"rounds": 6, **training})
    return plan.with_(graph={"kind": "learn", "rule": {**KIN, **(rule or {})}})


def restarted(room: Room) -> None:
    room.hub = room.new_hub()
    room.clients = [room.new_client(k) for k in range(CLIENTS)]


def graph_of(room: Room) -> Any:
    return room.hub.round.graph.weights.toarray()  # type: ignore[attr-defined]


DELTA = get_channel("delta", {"share": 0.1, "down": True})


@pytest.mark.parametrize(
    ("method", "channel", "rule", "training"),
    [
        ("fedu", PLAIN, {}, {}),
        ("fedu", DELTA, {"every": 1, "bits": 1}, {"cohort": 2}),
        pytest.param("fedu", PLAIN, {"every": 2}, {"cohort": 3}, marks=pytest.mark.slow),
        pytest.param("graph-proj", PLAIN, {"every": 2}, {}, marks=pytest.mark.slow),
        pytest.param(
            "fedu", PLAIN, {"name": "dada"}, {"precision": "float64"}, marks=pytest.mark.slow
        ),
    ],
)
def test_deployed_equals_simulated(
    fed: Federation,
    tmp_path: Path,
    method: str,
    channel: Channel,
    rule: dict[str, Any],
    training: dict[str, Any],
) -> None:
    """Everybody is restarted from its folder after every round, and after every asking."""
    plan = learning(fed, method, channel, rule, **training)
    room = Room(plan, fed, tmp_path).run(restarted)
    assert_same(room, fed)
    simulator = simulated(plan, fed)
    assert simulator.graph is not None
    np.testing.assert_array_equal(graph_of(room), simulator.graph.weights.toarray())
    assert graph_of(room).sum() > 0


def test_a_hub_that_is_killed_at_any_point_goes_on(fed: Federation, tmp_path: Path) -> None:
    """After every answer that it took, in rounds and between them; clients answer again what they
    answered before.
    """
    room = Room(learning(fed), fed, tmp_path)
    sketches = []
    while not room.hub.done:
        finding = room.hub.finding
        for upto in range(1, CLIENTS + 1):
            room.hub = room.new_hub()
            for k, request in list(room.hub.requests().items())[:upto]:
                reply = room.ask(k, request)
                room.hub.take(k, reply)
                if finding:
                    sketches.append((k, reply))
        assert not room.hub.missing
        room.hub.close()
    assert len(sketches) == 1 + 2 + 3 + 4
    assert len({(k, reply.frames) for k, reply in sketches}) == CLIENTS
    room.run()
    room.on_wire = {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
    assert_same(room, fed)


def test_nothing_is_sent_before(fed: Federation, tmp_path: Path) -> None:
    room = Room(learning(fed), fed, tmp_path)
    assert room.hub.finding
    assert room.hub.t == 2, "nobody is asked before"
    room.round()
    assert room.hub.t == 2
    assert room.on_wire == {"up": CLIENTS * 64, "down": 0}


def test_who_is_silent_stays_unknown_and_is_asked_again(fed: Federation, tmp_path: Path) -> None:
    plan = learning(fed, rule={"every": 2})
    room = Room(plan, fed, tmp_path)
    room.round(silent=(1,))
    assert graph_of(room)[1].sum() == 0
    assert graph_of(room).sum() > 0
    room.round()
    room.round()
    assert room.hub.finding
    room.round()
    assert graph_of(room)[1].sum() > 0
    room.run()


def test_a_client_that_lost_its_folder_begins_anew(fed: Federation, tmp_path: Path) -> None:
    """It is told so when it is asked for a sketch, and asked again."""
    room = Room(learning(fed, "fedu", DELTA, {"every": 2}), fed, tmp_path)
    for _ in range(3):  # sketches, and two rounds
        room.round()
    assert room.hub.finding
    assert room.hub.t == 4
    (tmp_path / "client1" / "client.safetensors").unlink()
    room.clients[1] = room.new_client(1, newcomer=True)
    assert room.ask(1, room.hub.requests()[1]).lost
    room.run()
    assert room.hub.clients[1].rejected == 0
    assert all(np.isfinite(c.models()["personal"].flat()).all() for c in room.clients)


def test_sketches_that_come_late_or_are_nonsense_are_rejected(
    fed: Federation, tmp_path: Path
) -> None:
    room = Room(learning(fed), fed, tmp_path)
    requests = room.hub.requests()
    assert {request.kind for request in requests.values()} == {"sketch"}
    good = {k: room.ask(k, request) for k, request in requests.items()}
    wire = good[1].frames[0]
    nan = np.frombuffer(wire, "<f4").copy()
    nan[0] = np.nan
    for sentence, reply in (
        ("has 63 bytes, but must have 64", dataclasses.replace(good[1], frames=(wire[:-1],))),
        ("NaN", dataclasses.replace(good[1], frames=(nan.tobytes(),))),
        ("holds no sketch", dataclasses.replace(good[1], frames=())),
        ("came in the sketches before round 2", dataclasses.replace(good[1], round=2)),
    ):
        with pytest.raises(Rejected, match=sentence):
            room.hub.take(1, reply)
    for k, reply in good.items():
        assert room.hub.take(k, reply)
    room.hub.close()
    with pytest.raises(Rejected, match="came in round 2"):
        room.hub.take(1, good[1])
    work_again = Request(room.plan.fingerprint, "sketch", 1)
    with pytest.raises(Rejected, match="has done round 1 already"):
        room.clients[0].answer(work_again)
    room.run()
    room.on_wire = {"up": room.hub.ledger.up, "down": room.hub.ledger.down}
    assert_same(room, fed)


def test_who_has_a_graph_is_not_asked_for_a_sketch(fed: Federation, tmp_path: Path) -> None:
    room = Room(make_plan(fed, "fedu"), fed, tmp_path)
    with pytest.raises(Rejected, match="graph is not learnt"):
        room.clients[0].answer(Request(room.plan.fingerprint, "sketch", 0))
    assert messages.sketch_round(0) == -1


@pytest.mark.parametrize(
    ("method", "options", "graph", "training", "sentence"),
    [
        ("fedu", {}, {"rule": "kinn"}, {}, "did you mean 'kin'"),
        ("fedu", {}, {"rule": {"name": "kin", "sketch": -1}}, {}, "kin.sketch is -1"),
        ("fedu", {}, {"weight": 2.0}, {}, "'weight' is unknown"),
        ("fedu", {}, {"rule": {"name": "kin", "ties": "both", "gossip": 3}}, {}, "fedu has a hub"),
        ("fedu", {"neighbours": "all"}, {}, {"cohort": 2}, "have trained alone"),
        ("fedu", {}, {"rule": "gain"}, {}, "'gain' tries others' models, which real federations"),
        ("fedu", {}, {"rule": "greedy"}, {}, "'greedy' tries others' models"),
    ],
)
def test_plans_that_cannot_be_are_refused(
    fed: Federation,
    method: str,
    options: dict[str, Any],
    graph: dict[str, Any],
    training: dict[str, Any],
    sentence: str,
) -> None:
    plan = make_plan(fed, method, PLAIN, options, **training)
    with pytest.raises(InvalidInput, match=sentence):
        plan.with_(graph={"kind": "learn", **graph})


def test_a_plan_with_a_rule_is_written_and_read(fed: Federation) -> None:
    plan = learning(fed, rule={"every": 3})
    back = Plan.from_config(plan.to_config())
    assert back.fingerprint == plan.fingerprint
    assert back.rule == plan.rule
    assert back.fingerprint != learning(fed, rule={"every": 4}).fingerprint
