"""Peers in one process: the same models and the same bill as the simulator, whatever is killed,
lost, repeated or made up.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation
from coterie.deploy.messages import Rejected, read_json
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh.net import Place, packed, unpacked
from coterie.deploy.zenoh.peer import GaveUp
from tests.support.peer_world import World
from tests.support.peering import (
    EDGES,
    NAMES,
    deliver,
    everyone,
    flats,
    in_order,
    little,
    make_plan,
    one_round,
    open_peer,
    same,
    simulated,
)


@pytest.fixture(scope="module")
def few() -> Federation:
    return little()


@pytest.mark.parametrize(
    ("method", "channel"),
    [
        ("dfedu", "plain"),
        ("dfedu", "delta"),
        ("dfedu", "turns"),
        ("graph-proj", "plain"),
        ("graph-proj", "delta"),
    ],
)
def test_equals_the_simulator(few: Federation, tmp_path: Path, method: str, channel: str) -> None:
    plan = make_plan(few, method, channel)
    peers = everyone(plan, few, tmp_path)
    for _ in range(plan.training.rounds):
        one_round(peers)
    simulator = simulated(plan, few)
    for k, peer in enumerate(peers.values()):
        assert peer.done
        for view, model in simulator.models(k).items():
            np.testing.assert_allclose(flats(peer)[view], model.flat(), rtol=1e-5, atol=1e-6)
    rows = np.concatenate([peer.ledger.rows() for peer in peers.values()])
    np.testing.assert_array_equal(in_order(rows), in_order(simulator.ledger.rows()))


GO_ON = {"on_missing": "go-on", "patience": 3.0, "staleness": 2}


def undisturbed(plan: Plan, folder: Path) -> dict[str, Peer]:
    peers = everyone(plan, little(), folder / "undisturbed")
    for _ in range(plan.training.rounds):
        one_round(peers)
    return peers


@pytest.mark.parametrize("channel", ["plain", "delta"])
def test_who_waits_gets_the_same_bit_for_bit(tmp_path: Path, channel: str) -> None:
    plan = make_plan(little(), channel=channel, rounds=12)
    world = World(plan, tmp_path, work=0.5)
    world.start()
    world.at(1.2, lambda: world.kill("p2"))
    world.at(20.0, lambda: world.start("p2"))
    world.at(21.2, lambda: world.kill("p0", "p1"))
    world.at(22.0, lambda: world.start("p0"))
    world.at(25.0, lambda: world.start("p1"))
    world.at(25.7, lambda: world.pause("p4"))
    world.at(60.0, lambda: world.resume("p4"))
    world.at(60.3, lambda: world.split("p1", "p3"))
    world.at(90.0, lambda: world.heal("p1", "p3"))
    world.run(200)
    assert world.ended == dict.fromkeys(NAMES), world.lines
    for name, peer in undisturbed(plan, tmp_path).items():
        assert same(peer, world.peers[name])
        np.testing.assert_array_equal(peer.ledger.rows(), world.peers[name].ledger.rows())


@pytest.mark.parametrize("latency", [0.01, 4.0])
def test_a_slow_link_carries_every_message_once(tmp_path: Path, latency: float) -> None:
    """Who waits asks; a message that is on its way is not sent a second time for that, and the bill
    is what the wire carried.
    """
    world = World(make_plan(little(), rounds=4), tmp_path, latency=latency)
    world.start()
    world.run(100)
    assert world.ended == dict.fromkeys(NAMES), world.lines
    assert {name: driver.carried.total() for name, driver in world.drivers.items()} == {
        name: peer.ledger.up for name, peer in world.peers.items()
    }


def test_what_gets_lost_on_a_link_that_stands_is_asked_for_again(tmp_path: Path) -> None:
    plan = make_plan(little(), rounds=6)
    world = World(plan, tmp_path)
    rng = random.Random(4)
    world.loses = lambda sender, receiver: rng.random() < 0.3
    world.start()
    world.run(60)
    assert world.ended == dict.fromkeys(NAMES), world.lines
    assert all(same(peer, world.peers[name]) for name, peer in undisturbed(plan, tmp_path).items())
    assert sum(driver.carried.total() for driver in world.drivers.values()) > sum(
        peer.ledger.up for peer in world.peers.values()
    )


@pytest.mark.parametrize("channel", ["plain", "delta"])
def test_going_on_without_one_that_never_comes_back(tmp_path: Path, channel: str) -> None:
    plan = make_plan(little(), channel=channel, rounds=15, rules=GO_ON)
    world = World(plan, tmp_path)
    world.start()
    world.at(0.3, lambda: world.kill("p2"))
    world.run(200)
    assert {name: world.ended[name] for name in ("p0", "p1", "p3", "p4")} == dict.fromkeys(
        ("p0", "p1", "p3", "p4")
    )
    for name in ("p1", "p3"):
        assert not world.peers[name].states["p2"].active
        assert (
            sum("its edge is dropped" in line for line in world.lines if f" {name}:" in line) == 1
        )
    assert all(view.rejected == 0 for peer in world.peers.values() for view in peer.states.values())


@pytest.mark.parametrize(("channel", "away"), [("plain", 30.0), ("delta", 30.0), ("delta", 3.0)])
def test_coming_back(tmp_path: Path, channel: str, away: float) -> None:
    """Soon enough: it makes up for what it missed.

    Too late: it jumps to a round that all agree on. No message is taken for another.
    """
    rounds = 12 if away < 10 else 36
    plan = make_plan(little(), channel=channel, rounds=rounds, eval_every=100, rules=GO_ON)
    world = World(plan, tmp_path, work=1.0)
    world.start()
    world.at(3.3, lambda: world.kill("p2"))
    world.at(3.3 + away, lambda: world.start("p2"))
    world.run(400)
    assert world.ended == dict.fromkeys(NAMES), world.lines
    assert all(
        view.active and not view.rejected
        for peer in world.peers.values()
        for view in peer.states.values()
    ), world.lines
    jumped = [line for line in world.lines if "p2: " in line and "going on with" in line]
    assert len(jumped) == (0 if away < 10 else 1), world.lines
    rows = [len(world.peers[name].ledger.rows()) for name in NAMES]
    assert rows == [rounds, rounds, rounds if away < 10 else rows[2], rounds, rounds]
    assert away < 10 or rows[2] < rounds


def trouble(world: World, rng: random.Random, until: float) -> None:
    """Peers are killed, stopped, cut off from each other and robbed of their folders, and come back
    sooner or later.
    """

    def gone(name: str, away: float, *, robbed: bool) -> None:
        if name in world.nodes and name not in world.asleep:
            world.kill(name)
            if robbed:
                shutil.rmtree(world.folder / name)
            world.at(world.now + away, lambda: name not in world.nodes and world.start(name))

    def stopped(name: str, away: float) -> None:
        if name in world.nodes and name not in world.asleep:
            world.pause(name)
            world.at(world.now + away, lambda: name in world.asleep and world.resume(name))

    def cut(a: str, b: str, away: float) -> None:
        world.split(a, b)
        world.at(world.now + away, partial(world.heal, a, b))

    t = 1.0
    while (t := t + rng.uniform(0.5, 12)) < until:
        kind, name, away = (
            rng.choice(["kill", "rob", "stop", "cut"]),
            rng.choice(NAMES),
            rng.choice([0.5, 4.0, 15.0, 30.0]),
        )
        a, b = (NAMES[k] for k in rng.choice(list(EDGES)))
        what = {
            "kill": partial(gone, name, away, robbed=False),
            "rob": partial(gone, name, away, robbed=True),
        }
        world.at(
            t,
            (what | {"stop": partial(stopped, name, away), "cut": partial(cut, a, b, away)})[kind],
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_never_stuck_and_whole_again(tmp_path: Path, seed: int) -> None:
    """Whatever happens in the first 25 seconds: all end, nothing is rejected, and in the end all
    edges count.
    """
    rng = random.Random(seed)
    plan = make_plan(
        little(), channel=rng.choice(["plain", "delta"]), rounds=90, eval_every=1000, rules=GO_ON
    )
    world = World(plan, tmp_path, work=1.0)
    world.start()
    trouble(world, rng, 25.0)
    world.run(1000)
    assert world.ended == dict.fromkeys(NAMES), world.lines
    assert all(
        view.active and not view.rejected
        for peer in world.peers.values()
        for view in peer.states.values()
    ), world.lines


def test_a_lost_folder(tmp_path: Path) -> None:
    """With "wait" it stops with a sentence; with "go-on" it comes back with a model of its own."""
    for rules, outcome in (({"give_up": 30.0}, InvalidInput), (GO_ON, type(None))):
        place = tmp_path / outcome.__name__
        world = World(make_plan(little(), rounds=30, eval_every=100, rules=rules), place, work=1.0)
        world.start()
        world.at(5.3, partial(world.kill, "p2"))
        world.at(5.4, partial(shutil.rmtree, place / "p2"))
        world.at(6.0, partial(world.start, "p2"))
        world.run(400)
        assert type(world.ended["p2"]) is outcome, world.lines
        if outcome is InvalidInput:
            assert "folder was lost" in str(world.ended["p2"])
            assert {type(world.ended[name]) for name in NAMES if name != "p2"} == {GaveUp}
        else:
            assert all(
                view.active for peer in world.peers.values() for view in peer.states.values()
            ), world.lines


def test_a_revoked_neighbour(tmp_path: Path) -> None:
    plan = make_plan(little(), rounds=8, eval_every=100, rules={"give_up": 20.0})
    world = World(plan, tmp_path, work=1.0)
    world.start()
    world.at(3.3, lambda: world.refused.add("p2"))
    world.run(100)
    assert {name: world.ended[name] for name in NAMES if name != "p2"} == dict.fromkeys(
        [name for name in NAMES if name != "p2"]
    )
    assert isinstance(world.ended["p2"], GaveUp)
    for name in ("p1", "p3"):
        assert not world.peers[name].states["p2"].active
        assert 3 <= world.peers[name].states["p2"].round <= 5


# -- one peer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["plain", "delta"])
def test_killed_anywhere(few: Federation, tmp_path: Path, channel: str) -> None:
    """A new process at every point of every round: after the work, after each message, after the
    mixing.
    """
    plan = make_plan(few, channel=channel, rounds=3)
    peers = everyone(plan, few, tmp_path)
    for _ in range(plan.training.rounds):
        deliver(peers, peers)
        peers["p1"] = open_peer(plan, few, 1, tmp_path)
        assert peers["p1"].begun
        before = peers["p1"].outbox[peers["p1"].t]
        for i, name in enumerate(peers["p1"].neighbours):
            peers["p1"].hear(name, *peers[name].begin())
            if i == 0:
                peers["p1"] = open_peer(plan, few, 1, tmp_path)
        for name in peers["p1"].missing:
            peers["p1"].hear(name, *peers[name].begin())
        assert peers["p1"].begin()[1] == before
        for peer in peers.values():
            peer.finish()
        peers["p1"] = open_peer(plan, few, 1, tmp_path)
    for name, peer in undisturbed(plan, tmp_path).items():
        assert same(peer, peers[name])
        np.testing.assert_array_equal(peer.ledger.rows(), peers[name].ledger.rows())


def test_a_full_disk_loses_nothing(
    few: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(few, rounds=3)
    peers = everyone(plan, few, tmp_path)

    def full(*_: Any) -> None:
        raise InvalidInput("peer.safetensors cannot be written: No space left on device.")

    def try_in_vain(act: Callable[[], Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("coterie.deploy.kept.save", full)
            with pytest.raises(InvalidInput, match="No space left"):
                act()

    for _ in range(plan.training.rounds):
        try_in_vain(peers["p3"].begin)
        deliver(peers, peers)
        try_in_vain(peers["p3"].finish)
        for peer in peers.values():
            peer.finish()
    for name, peer in undisturbed(plan, tmp_path).items():
        assert same(peer, peers[name])
        np.testing.assert_array_equal(peer.ledger.rows(), peers[name].ledger.rows())


@pytest.mark.parametrize("channel", ["plain", "delta"])
def test_nonsense_is_rejected_and_counted(few: Federation, tmp_path: Path, channel: str) -> None:
    plan = make_plan(few, channel=channel)
    peers = everyone(plan, few, tmp_path)
    one, (t, good) = peers["p0"], peers["p1"].begin()
    with pytest.raises(Rejected, match="not a neighbour"):
        one.hear("p2", 0, good)
    nan = np.full(15, np.nan, np.float32).tobytes()
    bad: list[tuple[int, bytes]] = [
        (0, b""),
        (0, b"garbage"),
        (0, good * 100),
        (-1, good),
        (4, good),
        (0, good[:-1] + b""),
    ]
    for round_, wire in [*bad, (0, nan if channel == "plain" else b"\x01\x80" + nan)]:
        with pytest.raises(Rejected):
            one.hear("p1", round_, wire)
        assert one.missing == ["p1", "p4"]
    assert one.states["p1"].rejected == 7
    assert one.hear("p1", t, good)
    assert not one.hear("p1", t, good)  # the same again
    other = everyone(make_plan(few, channel=channel, seed=1), few, tmp_path / "other")[
        "p1"
    ].begin()[1]
    with pytest.raises(Rejected, match="do two processes have this identity"):
        one.hear("p1", t, other)
    assert not one.hear("p1", 3, good)  # too far ahead to be of use
    deliver(peers, peers)
    for peer in peers.values():
        peer.finish()
    with pytest.raises(Rejected, match="do two processes have this identity"):
        one.hear("p1", 0, other)
    assert not one.hear("p1", 0, good)  # replayed
    assert one.status()["neighbours"][0]["rejected"] == 9
    restored = open_peer(plan, few, 0, tmp_path)
    assert restored.states["p1"].rejected >= 7


def test_positions_must_agree(few: Federation, tmp_path: Path) -> None:
    plan = make_plan(few)
    one, other = open_peer(plan, few, 0, tmp_path), open_peer(plan, few, 1, tmp_path)
    position = other.position("p0")
    one.check_position("p1", position)
    assert set(position) == {
        "plan",
        "number",
        "weight",
        "round",
        "oldest",
        "counts",
        "entry",
    }  # nothing of its other neighbours
    for change, words in (
        ({"plan": "x"}, "another plan"),
        ({"number": 3}, "number"),
        ({"weight": 2.0}, "one weight"),
    ):
        with pytest.raises(Rejected, match=words):
            one.check_position("p1", position | change)


def test_edges_come_back_in_a_round_that_both_accept(few: Federation, tmp_path: Path) -> None:
    plan = make_plan(few, rounds=20, rules=GO_ON)
    one = open_peer(plan, few, 0, tmp_path)
    for t in range(4):  # nobody is there
        one.begin()
        one.finish(one.missing)
        assert one.states["p1"].active == (t < 2)
    assert one.missing == []
    with pytest.raises(Rejected):
        one.agree("p1", 4)  # this round has begun, or may have
    with pytest.raises(Rejected):
        one.agree("p1", 4 + 2000)
    one.expect("p1", 7)
    assert one.agree("p1", 6) == 7  # both asked at once: the later one
    one = open_peer(plan, few, 0, tmp_path)
    assert one.states["p1"].entry == 7
    for _ in range(3):
        one.begin()
        assert "p1" not in one.told
        one.finish()
    one.begin()
    assert one.told == ["p1"]
    assert one.missing == ["p1"]
    one.finish(["p1"])  # it does not come: dropped again, and the next time takes longer
    assert not one.states["p1"].active
    assert one.earliest("p1") > one.t + 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"p1": 0}, "one of its own"),
        ({"p1": 9}, "one of its own"),
        ({"p0": 3}, "this peer itself"),
    ],
)
def test_wrong_neighbours(
    few: Federation, tmp_path: Path, change: dict[str, int], words: str
) -> None:
    near = [Neighbour(name, number, 1.0) for name, number in change.items()]
    with pytest.raises(InvalidInput, match=words):
        Peer(make_plan(few), "p0", 0, near, few.subset(np.array([0])), tmp_path)


# -- the network's rules ---------------------------------------------------------------------------


def test_frames() -> None:
    assert unpacked(packed("é", (b"", b"xyz"))) == ("é".encode(), (b"", b"xyz"))
    whole = packed("{}", (b"abc",))
    for bad in (b"", whole[:-1], whole + b"x", b"\xff" * 40, whole[:4] + b"\xff" * 8 + whole[12:]):
        with pytest.raises(Rejected):
            unpacked(bad)
    with pytest.raises(Rejected):
        unpacked(packed("{}", (b"", b"")), 1)
    for text in (b"", b"[1]", b"[" * 100_000, b"x" * (1 << 17)):
        with pytest.raises(Rejected):
            read_json(text)


def test_places() -> None:
    Place("p", "a", "tcp/127.0.0.1:7000", {"b": "tcp/[::1]:7001"})
    for listen, ends, words in (
        ("tcp/0.0.0.0:7000", {"b": ""}, "without keys"),
        ("tls/127.0.0.1:7000", {"b": ""}, "without keys"),
        ("tcp/127.0.0.1", {"b": ""}, "of the form"),
        ("tcp/127.0.0.1:70000", {"b": ""}, "of the form"),
        ("", {"b": ""}, "nobody could meet"),
        ("tcp/127.0.0.1:7000", {}, "nobody to talk to"),
        ("tcp/127.0.0.1:7000", {"B/*": ""}, "must be lower-case"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Place("p", "a", listen, ends)


def test_access_is_by_name_and_direction() -> None:
    identity = SimpleNamespace(name="a", key="k", certificate="c", ca="r")
    access = Place("p", "a", "tls/0.0.0.0:7447", {"b": "tls/b:7447", "c": ""}, identity).access()
    assert access["default_permission"] == "deny"
    assert [subject["cert_common_names"] for subject in access["subjects"]] == [["b"], ["c"]]
    rules = {rule["id"]: rule for rule in access["rules"]}
    for policy in access["policies"]:
        (who,) = policy["subjects"]
        for rule in (rules[i] for i in policy["rules"]):
            (key,) = rule["key_exprs"]
            assert "*" not in key
            if rule["messages"] == ["put"]:
                assert key == (
                    f"coterie/p/{who}/to/a"
                    if rule["flows"] == ["ingress"]
                    else f"coterie/p/a/to/{who}"
                )
            if rule["messages"] == ["query"]:
                assert key == (
                    f"coterie/p/a/ask/{who}"
                    if rule["flows"] == ["ingress"]
                    else f"coterie/p/{who}/ask/a"
                )
