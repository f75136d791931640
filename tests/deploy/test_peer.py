"""Peers in one process: the same models and the same bill as the simulator, whatever is killed,
lost, repeated or made up.
"""

from __future__ import annotations

import random
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.data.federation import Federation
from coterie.deploy.log import GaveUp
from tests.support.bills import in_order
from tests.support.peer_world import World
from tests.support.peering import (
    EDGES,
    GO_ON,
    NAMES,
    everyone,
    flats,
    little,
    make_plan,
    one_round,
    same,
    simulated,
    undisturbed,
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
