"""One peer of several: killed anywhere, on a full disk, told nonsense; and the network's rules."""

from __future__ import annotations

from collections.abc import Callable
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
from coterie.deploy.zenoh.net import Address, packed, unpacked
from tests.support.peering import (
    GO_ON,
    deliver,
    everyone,
    little,
    make_plan,
    open_peer,
    same,
    undisturbed,
)


@pytest.fixture(scope="module")
def few() -> Federation:
    return little()


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


def test_neighbours_keep_their_order(few: Federation, tmp_path: Path) -> None:
    """Sums over neighbours depend on it, in their last bits."""
    near = [Neighbour("p10", 4, 1.0), Neighbour("p9", 2, 1.0), Neighbour("p1", 1, 1.0)]
    made = lambda: Peer(make_plan(few), "p0", 0, near, few.subset(np.array([0])), tmp_path)
    made().begin()
    assert list(made().states) == ["p10", "p9", "p1"]


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
        "wire",
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
        ({"wire": 9}, "version 9 of the protocol"),
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
        assert "p1" not in one.recipients
        one.finish()
    one.begin()
    assert one.recipients == ["p1"]
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
    Address("p", "a", "tcp/127.0.0.1:7000", {"b": "tcp/[::1]:7001"})
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
            Address("p", "a", listen, ends)


def test_access_is_by_name_and_direction() -> None:
    identity = SimpleNamespace(name="a", key="k", certificate="c", ca="r", serves=False)
    with pytest.raises(InvalidInput, match="for calling only: peers that listen need"):
        Address("p", "a", "tls/0.0.0.0:7447", {"b": "tls/b:7447"}, identity)
    identity.serves = True
    access = Address("p", "a", "tls/0.0.0.0:7447", {"b": "tls/b:7447", "c": ""}, identity).access()
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
