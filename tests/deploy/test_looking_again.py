"""Peers that look for their kin again and again on a made-up network: the simulator's models and
bill, whoever is killed, and never stuck.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy.finding import Finding
from coterie.deploy.peer import Peer
from tests.deploy.test_finding import clinic, make_plan
from tests.support.bills import in_order
from tests.support.peering import flats, same, simulated
from tests.support.seeking_world import SeekingWorld

pytestmark = pytest.mark.usefixtures("unsynced")
N, SLOW = 6, pytest.mark.slow
GO_ON = {"on_missing": "go-on", "patience": 3.0, "staleness": 2, "give_up": 60.0}
EVERY = {"every": 2, "gossip": 2, "tell": 1}
"""Few phases: so graphs change."""


def world_of(
    folder: Path, channel: str = "delta", rules: dict[str, Any] | None = None, **options: Any
) -> SeekingWorld:
    rounds = options.pop("rounds", 9)
    rule = EVERY | options.pop("rule", {})
    plan = make_plan(clinic(N), "dfedu", channel, rule, rounds=rounds, rules=rules)
    if rarely := options.pop("rarely", 1) - 1:
        more = {"exchange_every": 1 + rarely, "implicit": True, "eta": 0.2}
        plan = plan.with_(method=plan.method.replace(**more))
    return SeekingWorld(plan, clinic(N), folder, **options)


def assert_exact(world: SeekingWorld) -> None:
    assert world.ended == dict.fromkeys(world.names), world.lines
    simulator = simulated(world.plan, clinic(N))
    peers = [world.last[name].peer for name in world.names]
    for k, peer in enumerate(peers):
        assert peer is not None
        assert set(peer.neighbours) == {f"p{l}" for l in simulator.graph.neighbours(k)[0]}  # type: ignore[union-attr]
        for view, model in simulator.models(k).items():
            np.testing.assert_allclose(flats(peer)[view], model.flat(), rtol=1e-5, atol=1e-6)
    rows = np.concatenate([peer.ledger.rows() for peer in peers])  # type: ignore[union-attr]
    np.testing.assert_array_equal(in_order(rows), in_order(simulator.ledger.rows()))
    assert not any("rejected" in line for line in world.lines), world.lines


@pytest.mark.parametrize(
    ("channel", "rarely"),
    [("delta", 1), ("delta", 2), *(pytest.param(c, 1, marks=SLOW) for c in ("plain", "turns"))],
)
def test_undisturbed(tmp_path: Path, channel: str, rarely: int) -> None:
    """The bill of rounds is what the wire carried."""
    rule = {"every": 1} if rarely > 1 else {}  # due more often than there are rounds with work
    world = world_of(tmp_path, channel, rarely=rarely, rule=rule)
    world.start()
    world.run(60)
    assert_exact(world)
    assert sum("its kin: " in line for line in world.lines) == 4 * N
    carried = {name: node.carried for name, node in world.last.items()}
    searched = {name: rows_of_searches(world, name) for name in world.names}
    assert carried == {
        name: node.peer.ledger.up - searched[name]  # type: ignore[union-attr]
        for name, node in world.last.items()
    }


def rows_of_searches(world: SeekingWorld, name: str) -> int:
    rows = world.last[name].peer.ledger.rows()  # type: ignore[union-attr]
    return int(rows[rows[:, 4] == 0][:, 2].sum())


@pytest.mark.parametrize(
    ("seed", "channel"),
    [
        (0, "delta"),
        *(pytest.param(s, "plain" if s % 4 == 0 else "delta", marks=SLOW) for s in range(1, 13)),
    ],
)
def test_whoever_is_killed_the_result_is_the_same(tmp_path: Path, seed: int, channel: str) -> None:
    rng = random.Random(seed)
    world = world_of(tmp_path, channel, work=0.3)
    world.start()

    def kill(name: str, away: float) -> None:
        if name in world.nodes and name not in world.asleep:
            world.kill(name)
            world.at(world.now + away, lambda: name not in world.nodes and world.start(name))

    for _ in range(20):
        name, when = rng.choice(world.names), rng.uniform(0.1, 12)
        world.at(when, lambda name=name: kill(name, rng.uniform(0.1, 2)))
    world.run(400)
    assert_exact(world)
    calm = world_of(tmp_path / "calm", channel)
    calm.start()
    calm.run(60)
    for name in world.names:  # to the last bit
        assert same(world.last[name].peer, calm.last[name].peer)  # type: ignore[arg-type]


def test_killed_in_every_step_of_a_search(tmp_path: Path) -> None:
    world, seen = world_of(tmp_path, rounds=5), set()
    world.start()

    def watch() -> None:
        node = world.nodes.get("p3")
        if node is not None and node.peer is not None and not node.peer.done:  # type: ignore[attr-defined]
            kept, peer = node.finding.kept, node.peer  # type: ignore[attr-defined]
            place = kept.look, kept.step, peer.kept.look, peer.t >= peer.until
            if place not in seen and (kept.look or peer.t >= peer.until):
                seen.add(place)
                world.kill("p3")
                world.at(world.now + 0.5, lambda: world.start("p3"))
        if world.now < 100 and "p3" not in world.ended:
            world.at(world.now + 0.002, watch)

    watch()
    world.run(300)
    assert_exact(world)
    # Who ends tells the others; only the last one, just restarted, may have missed it.
    assert not any("has not said" in line and " p3:" not in line for line in world.lines)
    verdict = world.last["p3"].finding.verdict
    assert {step for look, step, *_ in seen if look} == set(range(verdict + 2))


def test_killed_between_rounds_and_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the one file is written that says that a search has begun, and the one that
    says who is a neighbour from now on.
    """
    world, deaths = world_of(tmp_path, rounds=5), []

    def dying(kind: type, what: str) -> None:
        real = getattr(kind, what)

        def maybe(self: Any, *given: Any) -> None:
            for when in ("before", "after"):
                if self.number == 3 and (what, when) not in deaths:
                    deaths.append((what, when))
                    if when == "after":
                        real(self, *given)
                    world.at(world.now + 0.5, lambda: world.start("p3"))
                    raise RuntimeError("killed")
            real(self, *given)

        monkeypatch.setattr(kind, what, maybe)

    dying(Finding, "look_again")
    dying(Peer, "join")
    world.start()
    world.run(300)
    assert_exact(world)
    assert len(deaths) == 4


def test_going_on_without_one_that_dies(tmp_path: Path) -> None:
    world = world_of(tmp_path, rules=GO_ON)
    world.start()
    world.at(0.8, lambda: world.kill("p2"))
    world.run(600)
    others = [name for name in world.names if name != "p2"]
    assert {name: world.ended[name] for name in others} == dict.fromkeys(others), world.lines
    ends = [world.last[name] for name in others]
    assert {node.finding.kept.look for node in ends} == {3}
    assert all(node.peer is not None and "p2" not in node.peer.neighbours for node in ends)
    assert sum(len(node.peer.neighbours) for node in ends) > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=SLOW) for s in range(1, 9))])
def test_who_comes_back_is_found_again(tmp_path: Path, seed: int) -> None:
    """With "go-on": it works alone until it is as far as the others, and takes part in the next
    search.
    """
    rng = random.Random(seed)
    world = world_of(tmp_path, rng.choice(["plain", "delta"]), GO_ON, rounds=41, work=1.0)
    world.start()
    name, when = rng.choice(world.names), rng.uniform(0.5, 15)
    away = rng.choice([1.0, 20.0, 40.0])
    world.at(when, lambda: world.kill(name))
    if seed % 2:  # with nothing but its data
        world.at(when, lambda: shutil.rmtree(tmp_path / name))
    world.at(when + away, lambda: world.start(name))
    world.run(2000)
    assert world.ended == dict.fromkeys(world.names), world.lines
    peers = {n: node.peer for n, node in world.last.items()}
    assert all(peer is not None and peer.done for peer in peers.values())
    for n, peer in peers.items():
        for other in peer.neighbours:  # type: ignore[union-attr]
            assert n in peers[other].neighbours, world.lines  # type: ignore[union-attr]
    assert peers[name].neighbours, world.lines  # type: ignore[union-attr]


def test_a_lost_folder(tmp_path: Path) -> None:
    """With "wait" a peer that begins again, when the others are searches ahead, says so."""
    world = world_of(tmp_path, rules={"give_up": 30.0}, work=0.3)
    world.start()

    def rob() -> None:
        node = world.nodes.get("p2")
        if node is None or node.finding.kept.look < 2:  # type: ignore[attr-defined]
            world.at(world.now + 0.05, rob)
            return
        world.kill("p2")
        shutil.rmtree(tmp_path / "p2")
        world.at(world.now + 1, lambda: world.start("p2"))

    rob()
    world.run(400)
    assert isinstance(world.ended["p2"], InvalidInput), world.lines
    assert "folder was lost" in str(world.ended["p2"])
