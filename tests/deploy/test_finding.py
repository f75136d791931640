"""Peers in one process that find their kin by gossip: the simulator's graph, models and bill,
whoever is restarted, silent or talks nonsense.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import Federation
from coterie.core.errors import InvalidInput
from coterie.data.federation import pack
from coterie.deploy.finding import Finding
from coterie.deploy.messages import Rejected
from coterie.deploy.peer import Peer
from coterie.deploy.plan import Plan
from coterie.deploy.worker import Worker
from tests.support.bills import in_order
from tests.support.peering import flats, one_round, simulated
from tests.support.peering import make_plan as ring_plan

pytestmark = pytest.mark.usefixtures("unsynced")
KIN = {
    "name": "kin",
    "neighbours": 2,
    "after": 2,
    "sketch": 8,
    "ties": "both",
    "gossip": 3,
    "tell": 2,
}


def clinic(n: int = 7) -> Federation:
    """Clients of one size and of two kinds."""
    rng = np.random.default_rng(3)

    def part(count: int) -> Any:
        xs = [rng.standard_normal((count, 4)) for _ in range(n)]
        turn = lambda k: 1 if k % 2 else -1
        ys = [np.argmax(turn(k) * x[:, :3], axis=1).astype(np.int32) for k, x in enumerate(xs)]
        return pack([(x.astype(np.float32), y) for x, y in zip(xs, ys, strict=True)])

    return Federation("clinic", part(12), part(0), part(4), classes=3)


def make_plan(
    fed: Federation,
    method: str = "dfedu",
    channel: str = "plain",
    rule: dict[str, Any] | None = None,
    **more: Any,
) -> Plan:
    plan = ring_plan(fed, method, channel, **{"rounds": 5, **more})
    names = tuple(f"p{k}" for k in range(fed.clients))
    graph = {"kind": "learn", "rule": {**KIN, **(rule or {})}}
    return plan.with_(clients=names, graph=graph)


class Village:
    """Peers that ask each other without a network between them."""

    def __init__(self, plan: Plan, fed: Federation, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.workers = [Worker(plan, k, fed.subset(np.array([k]))) for k in range(fed.clients)]
        self.all = [self.opened(k) for k in range(fed.clients)]

    def opened(self, k: int) -> Finding:
        return Finding(self.plan, k, self.workers[k], self.folder / f"p{k}")

    def ask(self, k: int, l: int) -> bool:
        """k asks l; through JSON and back, as over a wire."""
        one, other = self.all[k], self.all[l]
        facts, frames = one.question(l)
        told, given = other.answer(k, json.loads(json.dumps(facts)), frames)
        return one.hear(l, json.loads(json.dumps(told)), given, one.stage)

    def move(self, k: int, silent: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        one = self.all[k]
        if one.step < 0:
            one.train()
            return
        for l in one.awaited:
            if l not in silent:
                self.ask(k, l)
        if not set(one.awaited) - silent and not one.through:
            one.go_on(one.awaited)

    def run(
        self,
        rng: random.Random,
        disturb: Callable[[int], None] = lambda k: None,
        silent: set[int] = frozenset(),  # type: ignore[assignment]
    ) -> Village:
        for _ in range(100_000):
            left = [k for k, one in enumerate(self.all) if not one.through and k not in silent]
            if not left:
                return self
            k = rng.choice(left)
            self.move(k, silent)
            disturb(k)
        raise AssertionError({k: one.step for k, one in enumerate(self.all)})

    def peers(self) -> dict[str, Peer]:
        return {
            f"p{k}": Peer(
                self.plan,
                f"p{k}",
                k,
                one.kin(0),
                self.workers[k],
                self.folder / f"p{k}",
                found=one.found,
            )
            for k, one in enumerate(self.all)
        }


def graph_of(village: Village) -> Any:
    n = len(village.all)
    out = np.zeros((n, n))
    for k, one in enumerate(village.all):
        out[k, one.kept.kin] = one.rule.weight
    return out


def assert_same(village: Village, fed: Federation, peers: dict[str, Peer]) -> None:
    """Graph and bill exactly, models to rounding."""
    simulator = simulated(village.plan, fed)
    assert simulator.graph is not None
    np.testing.assert_array_equal(graph_of(village), simulator.graph.weights.toarray())
    for k, peer in enumerate(peers.values()):
        for view, model in simulator.models(k).items():
            np.testing.assert_allclose(flats(peer)[view], model.flat(), rtol=1e-5, atol=1e-6)
    rows = np.concatenate([peer.ledger.rows() for peer in peers.values()])
    np.testing.assert_array_equal(in_order(rows), in_order(simulator.ledger.rows()))


@pytest.mark.parametrize(
    ("n", "method", "channel", "rule"),
    [
        (7, "dfedu", "plain", {}),
        (6, "dfedu", "delta", {"bits": 1, "sketch": 40, "weight": 0.5}),
        (2, "dfedu", "plain", {"gossip": 1}),
        pytest.param(8, "graph-proj", "plain", {}, marks=pytest.mark.slow),
        pytest.param(12, "dfedu", "plain", {"gossip": 6, "least": 0.2}, marks=pytest.mark.slow),
    ],
)
def test_equals_the_simulator(
    tmp_path: Path, n: int, method: str, channel: str, rule: dict[str, Any]
) -> None:
    fed = clinic(n)
    village = Village(make_plan(fed, method, channel, rule), fed, tmp_path).run(random.Random(n))
    peers = village.peers()
    for _ in range(village.plan.training.rounds - 2):
        one_round(peers)
    assert_same(village, fed, peers)
    assert graph_of(village).sum() > 0


def test_who_is_restarted_anywhere_changes_nothing(tmp_path: Path) -> None:
    """Whatever is not on disk is asked for again, and answered as before."""
    fed, rng = clinic(), random.Random(1)
    village = Village(make_plan(fed), fed, tmp_path)

    def restart(k: int) -> None:
        for l in {k, rng.randrange(7)} if rng.random() < 0.7 else ():
            village.all[l] = village.opened(l)

    village.run(rng, restart)
    village.all = [village.opened(k) for k in range(7)]
    peers = village.peers()
    for _ in range(3):
        one_round(peers)
    assert_same(village, fed, peers)


def test_going_on_without_one_that_never_answers(tmp_path: Path) -> None:
    fed = clinic()
    plan = make_plan(fed, rules={"on_missing": "go-on"})
    village = Village(plan, fed, tmp_path).run(random.Random(2), silent={3})
    weights = graph_of(village)
    assert weights[:, 3].sum() == 0
    np.testing.assert_array_equal(weights, weights.T)
    assert weights.sum() > 0


def test_nobody_is_found_where_there_is_no_round_for_it(tmp_path: Path) -> None:
    fed = clinic(3)
    village = Village(make_plan(fed, rounds=2), fed, tmp_path).run(random.Random(0))
    peers = village.peers()
    assert all(peer.done and not peer.neighbours for peer in peers.values())
    assert_same(village, fed, peers)


def test_nonsense_is_rejected_and_changes_nothing(tmp_path: Path) -> None:
    fed = clinic()
    village = Village(make_plan(fed), fed, tmp_path)
    for k in range(7):
        while village.all[k].step < 0:
            village.move(k)
    one = next(f for f in village.all if f.awaited)
    (l,) = one.awaited
    facts, frames = village.all[l].answer(one.number, one.question(l)[0], ())
    nan = np.full(8, np.nan, "<f4").tobytes()
    before = one.kept
    for sentence, told, given in (
        ("another plan", {**facts, "plan": "0" * 32}, frames),
        ("in the plan it is", {**facts, "number": 99}, frames),
        ("in step", {**facts, "step": 1000}, frames),
        ("parts", facts, ()),
        ("has 31 bytes", facts, (frames[0][:-1],)),
        ("NaN", facts, (nan,)),
    ):
        with pytest.raises(Rejected, match=sentence):
            one.hear(l, told, given, 0)
        assert one.kept is before
    assert not one.hear(l, facts, frames, 1)  # of another step
    assert not one.hear(l, {**facts, "have": False}, (), 0)
    assert one.hear(l, facts, frames, 0)
    assert not one.hear(l, facts, frames, 0)  # a second time
    one.go_on()
    with pytest.raises(Rejected, match="it tells of 3"):
        one.hear(l, facts, (b"".join(k.to_bytes(4, "little") + frames[0] for k in range(3)),), 1)
    with pytest.raises(Rejected, match="has 3 bytes"):
        one.answer(l, village.all[l].facts() | {"want": one.court}, (b"abc",))
    other = next(k for k in range(7) if k not in (l, one.number))
    told, given = one.answer(other, village.all[other].facts() | {"want": 0}, ())
    assert told["have"] is False  # who is not the partner is told nothing
    assert not given


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": 7}, "give the list of their names"),
        ({"rule": {"gossip": 0}}, "has no hub that could hear"),
        ({"rule": {"ties": "either"}}, "ties must be"),
    ],
)
def test_plans_that_cannot_be_are_refused(changes: dict[str, Any], sentence: str) -> None:
    plan = make_plan(clinic())
    rule = {**KIN, **changes.pop("rule", {})}
    if not rule["gossip"]:
        del rule["tell"]
    with pytest.raises(InvalidInput, match=sentence):
        plan.with_(graph={"kind": "learn", "rule": rule}, **changes)


def test_all_must_have_the_same_names_and_rule() -> None:
    plan = make_plan(clinic())
    names = ("other", *plan.clients[1:])  # type: ignore[index]
    assert plan.fingerprint != plan.with_(clients=names).fingerprint
    assert plan.fingerprint != make_plan(clinic(), rule={"tell": 1}).fingerprint
