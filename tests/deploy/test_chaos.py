"""Faults by a schedule: who is struck, links that can be cut, and federations that come through."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

from coterie.deploy.chaos import KINDS, carry_out, schedule
from coterie.deploy.chaos.proxy import Proxies
from coterie.deploy.chaos.schedule import rounds_for
from coterie.deploy.demo.outcome import verdict
from coterie.deploy.ports import free_ports
from tests.conftest import Cli

ALL, LINKED = ("hub", "gate", "a", "b", "c"), ("a", "b", "c")


def test_a_seed_gives_a_schedule_in_which_everything_happens_to_everybody() -> None:
    events = schedule(7, 300, ALL, LINKED, 5)
    assert events == schedule(7, 300, ALL, LINKED, 5) != schedule(8, 300, ALL, LINKED, 5)
    assert {event.kind for event in events} == set(KINDS)
    assert {event.who for event in events} == set(ALL)
    assert {e.who for e in events if e.kind in ("cut", "hold", "slow")} == set(LINKED)
    assert {e.who for e in events if e.kind == "disk"} == {"hub", "a", "b", "c"}
    together = Counter(event.at for event in events)
    assert set(together.values()) == {1, 2}
    for at in together:
        struck = [event.who for event in events if event.at == at]
        assert len(set(struck)) == len(struck)
    assert rounds_for(events, 5) > max(together)


@pytest.fixture
def line() -> Iterator[tuple[Proxies, int]]:
    """A server that says everything back, behind a proxy; the proxy's port."""
    server = socket.create_server(("127.0.0.1", 0))
    (door,) = free_ports(1)

    def back(connection: socket.socket) -> None:
        with connection:
            while part := connection.recv(1024):
                connection.sendall(part)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=back, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    proxies = Proxies()
    proxies.open("a", door, server.getsockname()[1])
    yield proxies, door
    proxies.close()
    server.close()


def test_a_link_is_held_slowed_and_cut(line: tuple[Proxies, int]) -> None:
    proxies, door = line
    with socket.create_connection(("127.0.0.1", door), timeout=5) as here:
        here.sendall(b"one")
        assert here.recv(10) == b"one"
        proxies.set("a", "hold")
        here.sendall(b"two")
        here.settimeout(0.3)
        with pytest.raises(TimeoutError):
            here.recv(10)
        here.settimeout(5)
        proxies.set("a", "slow")
        assert here.recv(10) == b"two"
        begun = time.monotonic()
        here.sendall(b"3" * 1000)
        assert here.recv(1) == b"3"
        assert time.monotonic() - begun > 0.1  # twice 50 ms
        proxies.set("a", "cut")
        assert lost(here)
    with socket.create_connection(("127.0.0.1", door), timeout=5) as here:
        assert lost(here)
    proxies.set("a", "open")
    with socket.create_connection(("127.0.0.1", door), timeout=5) as here:
        here.sendall(b"four")
        assert here.recv(10) == b"four"


def test_a_link_is_struck_with_either_end_and_as_badly_as_the_worse(
    line: tuple[Proxies, int],
) -> None:
    proxies, _ = line
    (door,) = free_ports(1)
    (towards,) = (link.towards for link in proxies.links.values())
    proxies.open("b", door, towards, "a")
    state = lambda: [link.state for link in proxies.links.values()]
    proxies.set("b", "slow")
    assert state() == ["open", "slow"]
    proxies.set("a", "hold")
    assert state() == ["hold", "hold"]
    proxies.set("a", "open")
    assert state() == ["open", "slow"]
    with socket.create_connection(("127.0.0.1", door), timeout=5) as here:
        here.sendall(b"one")
        assert here.recv(10) == b"one"
        proxies.set("a", "cut")
        assert lost(here)


def lost(connection: socket.socket) -> bool:
    """Whether the other side ends it."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def test_a_folder_with_something_in_it_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    code, _, errors = cli("chaos", "--events", "1", "-o", str(tmp_path))
    assert code == 2
    assert "not empty" in errors
    assert (tmp_path / "mine.txt").read_text() == "keep me"


@pytest.mark.slow
@pytest.mark.parametrize("peers", [False, True], ids=["hub", "peers"])
def test_a_hundred_faults(tmp_path: Path, *, peers: bool) -> None:
    """After each a round follows; in the end every model is the simulator's."""
    ended, rows = carry_out(tmp_path / "town", 11, 100, print, peers=peers)
    assert len(ended) == 100
    assert "simulator's model" in verdict(rows)
