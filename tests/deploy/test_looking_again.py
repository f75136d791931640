"""Peers that look for their kin again and again on a made-up network: the simulator's models and
bill, whoever is killed, and never stuck.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.core.errors import InvalidInput
from tests.deploy.test_finding import clinic, make_plan
from tests.support.bills import in_order
from tests.support.peering import flats, simulated
from tests.support.seeking_world import SeekingWorld

N = 6
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
    [("plain", 1), ("delta", 1), ("delta", 2), pytest.param("turns", 1, marks=pytest.mark.slow)],
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
        (1, "plain"),
        *(pytest.param(s, "delta", marks=pytest.mark.slow) for s in range(2, 12)),
    ],
)
def test_whoever_is_killed_the_result_is_the_same(
    tmp_path: Path, seed: int, channel: str
) -> None:
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
