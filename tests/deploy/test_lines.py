"""Lines that are cut while both ends stay open, clocks that are wrong: noticed, and said."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coterie.deploy.keys import authority as keys
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.net import Net, Seen, opened
from coterie.deploy.zenoh.probe import why_not
from coterie.deploy.zenoh.spokes import HUB, Spoke, Unreachable, gate
from tests.deploy.test_gate import CLIENTS, PLAN, Yard, asks, came
from tests.support.proxy import Proxy

SOON = 15.0


@contextlib.contextmanager
def line(to: int) -> Iterator[Proxy]:
    made = Proxy(to)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.gate.close()


def sees_within(net: Net, name: str, alive: bool, seconds: float = SOON) -> float:
    begun = time.monotonic()
    came(net, lambda event: event == Seen(name, alive), seconds)
    return time.monotonic() - begun


@pytest.mark.slow
def test_a_client_whose_line_swallows_is_missed_and_comes_back(yard: Yard) -> None:
    with line(yard.port) as cut, yard.net(HUB, CLIENTS) as hub:
        who = keys.NodeIdentity.load(yard.folder / "keys" / "nodes" / "ward-a")
        with Net(Spoke(PLAN, "ward-a", f"127.0.0.1:{cut.port}", (HUB,), who), 1000) as a:
            assert asks(hub, a) == b"from ward-a?"
            cut.swallows = True
            assert sees_within(hub, "ward-a", False) < SOON
            end = time.monotonic() + SOON
            while a.other_ends():
                assert time.monotonic() < end, "the client has not noticed"
                time.sleep(0.1)
            told = why_not(f"127.0.0.1:{cut.port}", who)
            assert "something takes its bytes there and answers nothing" in told
            cut.swallows = False
            sees_within(hub, "ward-a", True, 30.0)
            assert asks(hub, a) == b"from ward-a?"


@pytest.mark.slow
def test_a_peer_whose_line_swallows_is_missed_and_comes_back(tmp_path: Path) -> None:
    keys.init(tmp_path / "keys", "peers")
    who = {n: keys.NodeIdentity.load(keys.issue(tmp_path / "keys", n)) for n in ("p0", "p1")}
    port = free_port()
    with line(port) as cut:
        caller = Address(PLAN, "p0", "", {"p1": f"tls/127.0.0.1:{cut.port}"}, who["p0"])
        called = Address(PLAN, "p1", f"tls/127.0.0.1:{port}", {"p0": ""}, who["p1"])
        with Net(called, 1000) as one, Net(caller, 1000) as other:
            sees_within(one, "p0", True)
            sees_within(other, "p1", True)
            cut.swallows = True
            sees_within(one, "p0", False)
            sees_within(other, "p1", False)
            cut.swallows = False
            sees_within(one, "p0", True, 30.0)
            sees_within(other, "p1", True, 30.0)


def test_what_keeps_a_client_out_is_said_in_words(yard: Yard, tmp_path: Path) -> None:
    """Clocks are made wrong by certificates whose time is another one: ± 600 s."""
    place, now = f"127.0.0.1:{yard.port}", datetime.now(UTC)
    mine = yard.folder / "keys"
    good = keys.NodeIdentity.load(mine / "nodes" / "ward-a")
    assert "would let these keys in" in why_not(place, good)
    assert "cannot be reached (Connection refused)" in why_not(f"127.0.0.1:{free_port()}", good)
    keys.init(tmp_path / "other", "yard")
    other = keys.NodeIdentity.load(keys.issue(tmp_path / "other", "ward-a"))
    assert "its certificate is of another federation" in why_not(place, other)
    hub, elsewhere = yard.gate.identity, f"127.0.0.2:{free_port()}"
    with opened(gate(hub, f"tls/{elsewhere}", {}), Unreachable):
        assert "its certificate is for another host" in why_not(elsewhere, good)
    for when in (now + timedelta(seconds=600), now - timedelta(days=1, seconds=600)):
        folder = keys.issue(mine, "ward-b", renew=True, days=1, now=when)
        skewed = keys.NodeIdentity.load(folder, now=when)
        told = why_not(place, skewed)
        assert "finds them expired or not valid yet" in told
        assert "one of the two clocks is wrong" in told


@pytest.mark.parametrize(("seconds", "words"), [(600, "not valid yet"), (-600, "has expired")])
def test_a_hub_whose_time_is_another_one_is_named(tmp_path: Path, seconds: int, words: str) -> None:
    """Its certificate begins in ten minutes, or ended ten minutes ago."""
    away = timedelta(seconds=seconds)
    begins = datetime.now(UTC) + away - (timedelta(0) if seconds > 0 else timedelta(days=1))
    keys.init(tmp_path / "keys", "yard", now=datetime.now(UTC) - timedelta(days=3))
    who = keys.NodeIdentity.load(keys.issue(tmp_path / "keys", "ward-a"))
    folder = keys.issue(tmp_path / "keys", "hub", role="hub", days=1, now=begins)
    hub, place = keys.NodeIdentity.load(folder, now=begins), f"127.0.0.1:{free_port()}"
    with opened(gate(hub, f"tls/{place}", {}), Unreachable):
        told = why_not(place, who)
    assert f"its certificate {'is ' if seconds > 0 else ''}{words}" in told
    assert "check the clock" in told
