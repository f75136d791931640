"""Lists of the revoked that go from peer to peer, over real sessions without processes."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.identity import NodeIdentity
from coterie.deploy.ports import free_ports
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.net import Event, Net, Published
from coterie.deploy.zenoh.passing_on import PassingOn
from coterie.deploy.zenoh.passport import Passport

LINE = {"p0": ("p1",), "p1": ("p0", "p2"), "p2": ("p1",)}


class Peers:
    """Three in a line, each with its own copy of its keys."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.office = folder, folder / "keys"
        keys.init(self.office, "line")
        self.said: dict[str, list[str]] = {name: [] for name in LINE}
        self.came: list[Event] = []
        self.peers: dict[str, PassingOn] = {}
        self.ports = dict(zip(LINE, free_ports(3), strict=True))
        for name in LINE:
            keys.issue(self.office, name, ["localhost"], ["127.0.0.1"], role="peer")
        for name in LINE:
            shutil.copytree(self.office / "nodes" / name, self.here(name))

    def here(self, name: str) -> Path:
        return self.folder / name

    def net(self, name: str) -> Net:
        ends = {l: f"tls/127.0.0.1:{self.ports[l]}" for l in LINE[name]}
        listen = f"tls/127.0.0.1:{self.ports[name]}"
        identity = NodeIdentity.load(self.here(name))
        return Net(Address("line", name, listen, ends, identity), 1000)

    def numbers(self) -> list[int]:
        """Of the lists on the machines."""
        passports = [Passport.shown(NodeIdentity.load(self.here(n)), print) for n in LINE]
        return [passport.revocations.newest()[0] for passport in passports]

    def until(self, numbers: list[int], seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while self.numbers() != numbers:
            assert time.monotonic() < end, (self.numbers(), self.said)
            for peer in self.peers.values():
                peer.pass_on()
                if (event := peer.next(0.05)) is not None:
                    self.came.append(event)


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    made = Peers(tmp_path)
    with contextlib.ExitStack() as held:
        for name in LINE:
            net = held.enter_context(made.net(name))
            passport = Passport.shown(net.address.identity, made.said[name].append)
            made.peers[name] = PassingOn(net, passport, made.said[name].append)
        yield made


def test_a_list_brought_to_one_reaches_all_over_several_neighbours(peers: Peers) -> None:
    keys.issue(peers.office, "stolen", role="peer")
    keys.revoke(peers.office, "stolen")
    shutil.copy(peers.office / "crl.pem", peers.here("p0"))
    assert peers.numbers() == [2, 1, 1]
    peers.until([2, 2, 2])
    assert peers.peers["p2"].passport.refused() == {"stolen"}
    assert "p0 brings a new list of the revoked (number 2)." in peers.said["p1"]
    assert "p1 brings a new list of the revoked (number 2)." in peers.said["p2"]
    assert not any(isinstance(event, Published) for event in peers.came), "who drives sees no list"


def test_a_list_that_was_made_up_is_not_taken_and_what_is_no_list_goes_through(
    peers: Peers,
) -> None:
    keys.init(peers.folder / "other", "line")
    keys.issue(peers.folder / "other", "p2")
    keys.revoke(peers.folder / "other", "p2")
    peers.until([1, 1, 1])
    forged = (peers.folder / "other" / "crl.pem").read_bytes()
    p0, p1, end = peers.peers["p0"], peers.peers["p1"], time.monotonic() + 20
    while not peers.said["p1"]:
        assert time.monotonic() < end
        for data in (forged, b"", forged[:100]):
            p0.send("p1", {"crl": 9}, data)
        p1.next(0.2)
    assert len(peers.said["p1"]) == 1
    assert "a list of the revoked that p0 brings was not taken" in peers.said["p1"][0]
    p0.send("p1", {"round": 3}, b"letter")
    while not isinstance(event := p1.next(0.2), Published):
        assert time.monotonic() < end
    assert (event.name, event.facts, event.payload) == ("p0", b'{"round": 3}', b"letter")
    assert peers.numbers() == [1, 1, 1]
    assert p1.passport.refused() == frozenset()


def test_who_is_revoked_is_not_given_the_list_and_who_comes_later_is(peers: Peers) -> None:
    peers.peers["p2"].net.__exit__()
    keys.revoke(peers.office, "p2")
    shutil.copy(peers.office / "crl.pem", peers.here("p0"))
    peers.peers["p2"].net.__enter__()
    peers.until([2, 2, 1])
    for _ in range(20):
        for peer in peers.peers.values():
            peer.pass_on()
            peer.next(0.05)
    assert peers.numbers() == [2, 2, 1]
