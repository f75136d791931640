"""Peers that find their kin on a made-up network: exact whoever is killed, and never stuck."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy.log import GaveUp
from coterie.deploy.neighbour import Neighbour
from coterie.deploy.site import OwnData, PeerOf, Site
from coterie.deploy.zenoh.peer import Passport, open_to_all
from tests.deploy.test_finding import clinic, make_plan
from tests.support.bills import in_order
from tests.support.peering import flats, simulated
from tests.support.seeking_world import SeekingWorld

pytestmark = pytest.mark.usefixtures("unsynced")
GO_ON = {"on_missing": "go-on", "patience": 3.0, "staleness": 2, "give_up": 60.0}
N = 6


def world_of(folder: Path, rules: dict[str, Any] | None = None, **options: Any) -> SeekingWorld:
    fed = clinic(N)
    return SeekingWorld(make_plan(fed, rounds=6, rules=rules), fed, folder, **options)


def assert_exact(world: SeekingWorld) -> None:
    assert world.ended == dict.fromkeys(world.names), world.lines
    simulator = simulated(world.plan, clinic(N))
    peers = [world.last[name].peer for name in world.names]
    for k, peer in enumerate(peers):
        assert set(peer.neighbours) == {f"p{l}" for l in simulator.graph.neighbours(k)[0]}  # type: ignore[union-attr]
        for view, model in simulator.models(k).items():
            np.testing.assert_allclose(flats(peer)[view], model.flat(), rtol=1e-5, atol=1e-6)
    rows = np.concatenate([peer.ledger.rows() for peer in peers])
    np.testing.assert_array_equal(in_order(rows), in_order(simulator.ledger.rows()))
    assert not any("rejected" in line for line in world.lines), world.lines


def test_undisturbed(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.start()
    world.run(60)
    assert_exact(world)


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 10))]
)
def test_whoever_is_killed_the_result_is_the_same(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = world_of(tmp_path, work=0.3)
    world.start(*(name for name in world.names if rng.random() < 0.8))

    def kill(name: str, away: float) -> None:
        if name in world.nodes and name not in world.asleep:
            world.kill(name)
            world.at(world.now + away, lambda: name not in world.nodes and world.start(name))

    for name in world.names:  # who was not there comes later
        world.at(
            rng.uniform(0.5, 3), lambda name=name: name not in world.last and world.start(name)
        )
    for _ in range(12):
        name, when = rng.choice(world.names), rng.uniform(0.1, 6)
        world.at(when, lambda name=name: kill(name, rng.uniform(0.1, 2)))
    world.run(400)
    assert_exact(world)


def test_somebody_who_is_late_finds_the_others_still_there(tmp_path: Path) -> None:
    """Killed when all others can go on without it, but for its kin."""
    world, killed = world_of(tmp_path), []
    world.start()

    def watch() -> None:
        node = world.nodes.get("p4")
        if node is not None and node.finding.step == node.finding.verdict:  # type: ignore[attr-defined]
            world.kill("p4")
            killed.append(world.now)
            world.at(world.now + 30, lambda: world.start("p4"))
        elif not world.last["p4"].finding.through:
            world.at(world.now + 0.005, watch)

    watch()
    world.run(200)
    assert_exact(world)
    assert len(killed) == 1


def test_going_on_without_one_that_never_comes_back(tmp_path: Path) -> None:
    world = world_of(tmp_path, GO_ON)
    world.start()
    world.at(0.15, lambda: world.kill("p2"))
    world.run(400)
    others = [name for name in world.names if name != "p2"]
    assert {name: world.ended[name] for name in others} == dict.fromkeys(others), world.lines
    assert world.last["p2"].finding.step <= world.last["p2"].finding.court
    assert all("p2" not in world.last[name].peer.neighbours for name in others)
    assert sum(len(world.last[name].peer.neighbours) for name in others) > 0


def test_who_waits_in_vain_stops_with_a_sentence(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"give_up": 20.0})
    world.start(*world.names[1:])
    world.run(200)
    assert {type(error) for error in world.ended.values()} == {GaveUp}
    assert any("nothing came from p0 for 20 s" in str(error) for error in world.ended.values())


def test_a_revoked_peer_is_left_out(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"give_up": 20.0, "patience": 5.0})
    world.refused.add("p1")
    world.start()
    world.run(200)
    others = [name for name in world.names if name != "p1"]
    assert {name: world.ended[name] for name in others} == dict.fromkeys(others), world.lines
    assert isinstance(world.ended["p1"], GaveUp)
    assert all("p1" not in world.last[name].peer.neighbours for name in others)


def test_a_site_is_open_to_all_participants_and_to_nobody_else(tmp_path: Path) -> None:
    plan = make_plan(clinic(N))
    first = PeerOf(Neighbour("p0", 0, 1.0), "tcp/127.0.0.1:7447")
    site = Site(tmp_path / "peer.toml", plan, "p2", 2, tmp_path, OwnData(path="own.npz"))
    site = dataclasses.replace(site, listen="tcp/127.0.0.1:7448", neighbours=(first,))
    nobody = Passport(None, None)
    address = open_to_all(site, nobody)
    assert address.neighbours == {
        "p0": first.endpoint,
        **dict.fromkeys(("p1", "p3", "p4", "p5"), ""),
    }
    assert address.config(1000)["scouting"]["gossip"] == {"enabled": True}
    assert address.config(1000)["scouting"]["multicast"] == {"enabled": False}
    with pytest.raises(InvalidInput, match="with the number 3"):
        open_to_all(dataclasses.replace(site, number=3), nobody)
    stranger = PeerOf(Neighbour("p9", 0, 1.0), "")
    with pytest.raises(InvalidInput, match="p9"):
        open_to_all(dataclasses.replace(site, neighbours=(stranger,)), nobody)
