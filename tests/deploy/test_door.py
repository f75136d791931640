"""The door of a hub: who is let in to the gate, and who is not; the rules alone, then real sockets
and a real gate.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coterie.core.errors import InvalidInput
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh import door as doors
from coterie.deploy.zenoh.door import Door
from coterie.deploy.zenoh.gate import Gate, enrol
from coterie.deploy.zenoh.net import Net
from coterie.deploy.zenoh.probe import why_not
from coterie.deploy.zenoh.spokes import HUB, Enrolled, Unreachable
from coterie.deploy.zenoh.strangers import (
    AT_ONCE,
    FAILURES,
    KNOWN,
    REMEMBERED,
    TOGETHER,
    Strangers,
)
from tests.deploy.test_gate import CLIENTS, PLAN, Yard, asks

HOME, STRANGER = "127.0.0.1", "127.0.0.9"


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.gate.close()


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not come to pass"
        time.sleep(0.02)


def fail(strangers: Strangers, address: str, now: float) -> bool:
    """Somebody comes and shows no certificate; False: it was not let in."""
    if strangers.refuses(address, now):
        return False
    strangers.enters(address, now)
    strangers.leaves(address, None, now)
    return True


# -- the rules -------------------------------------------------------------------------------------


def test_an_address_that_fails_is_kept_waiting_and_forgiven_with_time() -> None:
    strangers = Strangers()
    assert sum(fail(strangers, "a", 0.0) for _ in range(100)) == FAILURES
    assert strangers.refuses("a", 0.0) == "too many failures"
    assert not strangers.refuses("b", 0.0)
    # From then on as many as are forgiven: one a second.
    assert sum(fail(strangers, "a", t / 10) for t in range(1, 101)) == pytest.approx(10, abs=1)
    assert not strangers.refuses("a", 1000.0)


def test_many_addresses_together_may_not_fail_more_and_who_is_known_comes_in() -> None:
    strangers = Strangers()
    strangers.enters("known", 0.0)
    assert strangers.shows("known", "ward-a", 0.0)
    strangers.leaves("known", "ward-a", 0.0)
    assert sum(fail(strangers, f"stranger {i}", 0.0) for i in range(1000)) == TOGETHER
    assert strangers.refuses("one more", 0.0) == "too many failures of strangers"
    assert not strangers.refuses("known", 0.0)
    assert not strangers.refuses("one more", 2.0)


def test_a_known_address_may_fail_more_often() -> None:
    """Honest clients give up and call again where a hub has too much to do."""
    strangers = Strangers()
    strangers.enters("known", 0.0)
    strangers.shows("known", "ward-a", 0.0)
    assert sum(fail(strangers, "known", 0.0) for _ in range(1000)) == KNOWN
    assert strangers.refuses("known", 0.0) == "too many failures"
    assert not strangers.refuses("another", 0.0)


def test_strangers_have_so_many_handshakes_and_a_known_address_its_own() -> None:
    strangers = Strangers()
    for _ in range(AT_ONCE):
        assert not strangers.refuses("a", 0.0)
        strangers.enters("a", 0.0)
    for address in "ab":
        assert strangers.refuses(address, 0.0) == "too many handshakes at once"
    strangers.shows("a", "ward-a", 0.0)
    for address in "ab":  # a is known, and what it has under way is no stranger's any more
        assert not strangers.refuses(address, 0.0)
    strangers.enters("a", 0.0)
    assert strangers.refuses("a", 0.0) == "too many handshakes at once"
    assert not strangers.refuses("b", 0.0)
    # Nothing is left of it when all have gone.
    strangers.leaves("a", "ward-a", 0.0)
    for _ in range(AT_ONCE):
        strangers.leaves("a", None, 0.0, failed=False)
    assert not strangers._unproven
    assert not strangers.caller("a", 0.0).connections
    assert not strangers.caller("a", 0.0).unproven


def test_a_certificate_has_so_many_connections() -> None:
    strangers = Strangers()
    strangers.with_one = 2
    took = []
    for address in "abc":
        strangers.enters(address, 0.0)
        took.append(strangers.shows(address, "ward-a", 0.0))
    assert took == [True, True, False]
    strangers.leaves("c", "ward-a", 0.0)
    strangers.leaves("a", "ward-a", 0.0)
    strangers.enters("d", 0.0)
    assert strangers.shows("d", "ward-a", 0.0)


def test_what_is_remembered_has_an_end_and_nobody_who_is_inside_is_forgotten() -> None:
    strangers = Strangers()
    strangers.enters("inside", 0.0)
    for i in range(2 * REMEMBERED):
        strangers.refuses(f"stranger {i}", 0.0)
    assert len(strangers._callers) <= REMEMBERED
    strangers.leaves("inside", None, 0.0, failed=False)
    assert strangers.caller("inside", 0.0).debt.size == 0


def test_what_ends_with_the_gate_is_nobodys_failure() -> None:
    strangers = Strangers()
    for _ in range(100):
        strangers.enters("a", 0.0)
        strangers.leaves("a", None, 0.0, failed=False)
    assert not strangers.refuses("a", 0.0)


# -- sockets ---------------------------------------------------------------------------------------


def call(yard: Yard, address: str = STRANGER) -> socket.socket:
    made = socket.create_connection((HOME, yard.port), 5.0, source_address=(address, 0))
    made.settimeout(10.0)
    return made


def hello() -> bytes:
    """As TLS begins, and nobody can go on with it."""
    body = b"\x01\x00\x00\xc0\x03\x03" + os.urandom(190)
    return b"\x16\x03\x01" + len(body).to_bytes(2) + body


def hung_up(one: socket.socket) -> bool:
    try:
        return one.recv(1000) == b""
    except ConnectionError:
        return True


def refused(yard: Yard) -> int:
    return yard.gate.door.strangers.refused.total()


def test_who_says_nothing_or_nonsense_never_reaches_the_gate(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "HELLO_SECONDS", 0.5)
    with call(yard) as silent, call(yard) as other, call(yard) as slow:
        other.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert hung_up(other)
        for byte in hello()[:20]:
            with contextlib.suppress(ConnectionError):
                slow.sendall(bytes([byte]))
            time.sleep(0.05)
        assert hung_up(slow)
        assert hung_up(silent)
        assert refused(yard) == 3
        assert not yard.gate.door.strangers.caller(STRANGER, 0.0).connections
    # Whoever says hello is passed on; Zenoh makes nothing of this one.
    with call(yard) as whole:
        whole.sendall(hello())
        until(lambda: yard.gate.door.strangers.caller(STRANGER, 0.0).debt.size > 0)


def test_many_who_say_nothing_make_room_for_who_comes_later(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "WAITING", 10)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(call(yard)) for _ in range(40)]
        assert all(hung_up(one) for one in silent[:30])
        began = time.monotonic()
        with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a:
            assert asks(hub, a) == b"from ward-a?"
        assert time.monotonic() - began < 4.0


def test_who_fails_often_is_kept_waiting_and_others_are_not(yard: Yard) -> None:
    for _ in range(60):
        with contextlib.suppress(OSError), call(yard) as one:
            one.sendall(hello())
            hung_up(one)
    strangers = yard.gate.door.strangers
    assert strangers.refused["too many failures"] >= 60 - FAILURES - 20
    told = [words for words in yard.said if STRANGER in words]
    assert told == [f"callers from {STRANGER} are kept waiting: too many failures."]
    began = time.monotonic()
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a:
        assert asks(hub, a) == b"from ward-a?"
    assert time.monotonic() - began < 3.0
    assert strangers.caller(HOME, time.monotonic()).known


def test_a_certificate_that_has_its_connections_gets_no_more(yard: Yard) -> None:
    yard.gate.door.strangers.with_one = 2
    with yard.net("ward-a") as first, yard.net("ward-a") as second:
        with contextlib.suppress(Unreachable), yard.net("ward-a") as third:
            until(lambda: not third.linked())
        assert first.linked()
        assert second.linked()
        with yard.net("ward-b") as other:
            time.sleep(0.2)
            assert other.linked()
    assert any("the certificate of ward-a" in words for words in yard.said)


def test_who_is_kept_waiting_is_told_so_and_not_that_its_keys_are_wrong(yard: Yard) -> None:
    who = yard.net("ward-a").address.identity
    assert "would let these keys in" in why_not(f"{HOME}:{yard.port}", who)
    yard.gate.door.strangers.caller(HOME, time.monotonic()).debt.size = 1000.0
    assert "lets nobody in from this address for now" in why_not(f"{HOME}:{yard.port}", who)


def test_a_client_has_a_connection_for_every_plan_that_it_has_joined(yard: Yard) -> None:
    """Also for those that are not run yet, of which the gate knows nothing."""
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(yard.net("ward-a")) for _ in range(45)]
        time.sleep(0.5)
        assert all(one.linked() for one in sessions)
        assert not refused(yard)


def test_who_calls_while_the_gate_opens_anew_waits_for_it(yard: Yard) -> None:
    port = int(yard.gate.listen.rpartition(":")[2])
    yard.gate.door.towards(None)
    with call(yard) as one:
        one.sendall(hello())
        one.settimeout(0.5)
        with pytest.raises(TimeoutError):
            one.recv(1)
        yard.gate.door.towards(port)
        one.settimeout(10.0)
        one.recv(1000)  # the gate has something to say of this hello
    assert not refused(yard)


def test_a_caller_still_learns_from_tls_why_it_is_not_let_in(yard: Yard) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(yard.folder / "keys" / "ca.pem")
    with (
        call(yard) as raw,
        pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"),
        context.wrap_socket(raw, server_hostname=HOME) as link,
    ):
        link.recv(1)


def test_a_door_whose_port_is_taken_says_so(yard: Yard) -> None:
    with pytest.raises(InvalidInput, match=f"nobody can listen on 127.0.0.1:{yard.port}"):
        Door(HOME, yard.port, yard.said.append).open()


def test_the_gate_is_found_where_it_was_and_elsewhere_if_that_is_taken(yard: Yard) -> None:
    before = yard.gate.listen
    yard.gate.close()

    def again() -> str:
        gate = Gate(yard.folder / "keys", yard.folder / "hub", HOME, free_port(), print)
        try:
            gate.look()
            return gate.listen
        finally:
            gate.close()

    assert again() == before
    with socket.create_server((HOME, int(before.rpartition(":")[2]))):
        assert again() != before


def test_who_stops_reading_does_not_hold_a_place(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gate of ours sends without end, and a caller takes nothing."""
    monkeypatch.setattr(doors, "STUCK", 0.5)
    monkeypatch.setattr(doors, "GOODBYE", 0.2)
    with socket.create_server((HOME, 0)) as gate, call(yard) as one:
        yard.gate.door.towards(gate.getsockname()[1])
        one.sendall(hello())
        with gate.accept()[0] as link, contextlib.suppress(OSError):
            link.settimeout(5.0)
            for _ in range(1000):
                link.sendall(bytes(1 << 20))
        until(lambda: not yard.gate.door._visits)


def test_a_large_message_comes_through_whole(yard: Yard) -> None:
    large = 8 << 20
    enrol(yard.folder / "hub", PLAN, Enrolled(CLIENTS, 2 * large))
    yard.gate.look()
    of_hub, of_a = yard.net(HUB, CLIENTS).address, yard.net("ward-a").address
    with Net(of_hub, 2 * large) as hub, Net(of_a, 2 * large) as a:
        payload = os.urandom(large)
        assert asks(hub, a, payload) == b"from ward-a" + payload
