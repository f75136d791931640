"""The gate of a hub: who may say and hear what, with real sessions and no processes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from coterie.deploy.chaos.proxy import Proxies
from coterie.deploy.keys import authority as keys
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh.conduct import enter
from coterie.deploy.zenoh.gate import Gate, enrol
from coterie.deploy.zenoh.net import Answered, Asked, Net, Published, Seen, opened
from coterie.deploy.zenoh.spokes import HUB, Enrolled, Spoke, Unreachable, gate

PLAN, CLIENTS = "plan", ("ward-a", "ward-b")


class Yard:
    """A gate in this process, and whoever comes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        keys.init(folder / "keys", "yard", now=datetime.now(UTC) - timedelta(days=3))
        for name in (*CLIENTS, "outsider"):
            keys.issue(folder / "keys", name)
        hub = keys.issue(folder / "keys", "hub", role="hub")
        self.said: list[str] = []
        (folder / "hub").mkdir()
        enrol(folder / "hub", PLAN, Enrolled(CLIENTS, 1000))
        self.gate = Gate(hub, folder / "hub", "127.0.0.1", self.port, self.said.append)
        self.gate.look()

    def net(
        self, name: str, near: tuple[str, ...] = (HUB,), identity: Any = None, door: int = 0
    ) -> Net:
        """`name` is what it says it is; its keys say who it is."""
        folder = self.folder / "keys" / "nodes" / ("hub" if name == HUB else name)
        who = identity or keys.NodeIdentity.load(folder)
        return Net(Spoke(PLAN, name, f"127.0.0.1:{door or self.port}", near, who), 1000)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path)
    yield made
    made.gate.close()


def came(net: Net, what: Callable[[Any], bool], seconds: float = 20.0) -> Any:
    """The first event that is so; everything before it is dropped."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (event := net.next(0.2)) is not None and what(event):
            return event
    raise AssertionError(f"it did not come within {seconds} s")


def sees(net: Net, name: str, alive: bool = True) -> None:
    came(net, lambda event: event == Seen(name, alive))


def asks(hub: Net, client: Net, payload: bytes = b"?") -> bytes | None:
    """The client's answer; again while its address is not known yet."""
    end = time.monotonic() + 20
    with answering(client):
        while time.monotonic() < end:
            hub.ask(client.address.name, "q", payload, 20.0)
            event = came(hub, lambda event: isinstance(event, Answered))
            if event.payload is not None:
                return bytes(event.payload)
    return None


@contextlib.contextmanager
def answering(client: Net, words: bytes = b"") -> Iterator[None]:
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            if isinstance(event := client.next(0.05), Asked):
                event.answer(words or b"from " + client.address.name.encode() + event.payload)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_hub_asks_and_its_clients_answer_and_see_nobody_else(yard: Yard) -> None:
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a, yard.net("ward-b") as b:
        sees(a, HUB)
        assert asks(hub, a) == b"from ward-a?"
        assert asks(hub, b) == b"from ward-b?"
        assert a.other_ends() == {"hub"}
        with yard.net("ward-a", (HUB, "ward-b")) as curious:
            assert curious.next(0.5) == Seen(HUB, True)
            assert curious.next(1.0) is None  # not that ward-b is there
        hub.send("ward-a", {"over": True}, b"")
        assert came(a, lambda event: isinstance(event, Published)).facts == b'{"over": true}'


def test_nobody_speaks_under_another_name(yard: Yard) -> None:
    """With keys of the federation: a client as another, as the hub, and somebody of no plan."""
    own = keys.NodeIdentity.load(yard.folder / "keys" / "nodes" / "ward-b")
    outsider = keys.NodeIdentity.load(yard.folder / "keys" / "nodes" / "outsider")
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a:
        sees(a, HUB)
        assert asks(hub, a) == b"from ward-a?"
        for thief in (own, outsider):
            with yard.net("ward-a", identity=thief) as forged:
                assert asks(hub, a, b"!") == b"from ward-a!"
                with answering(forged):
                    hub.ask("ward-a", "q", b"!", 1.0)  # a is silent
                    answer = came(hub, lambda event: isinstance(event, Answered))
                    assert answer == Answered("ward-a", "q", None)
            with yard.net(HUB, CLIENTS, identity=thief) as forged:
                forged.send("ward-a", {"over": True}, b"")
                forged.ask("ward-a", "q", b"!", 1.0)
                assert came(forged, lambda event: isinstance(event, Answered)).payload is None
                assert not isinstance(forged.next(0.0), Seen)
        while (event := a.next(0.5)) is not None:
            assert not isinstance(event, (Published, Seen)), event


def test_strangers_are_not_let_in(yard: Yard, tmp_path: Path) -> None:
    """Another federation's keys, and none."""
    keys.init(tmp_path / "other", "yard")
    other = keys.NodeIdentity.load(keys.issue(tmp_path / "other", "ward-a"))
    with pytest.raises(Unreachable, match="cannot be reached"), yard.net("ward-a", identity=other):
        pass
    bare = {"endpoints": [f"tcp/127.0.0.1:{yard.port}"], "timeout_ms": 1000}
    with pytest.raises(Unreachable):
        opened({"mode": "client", "connect": bare}, Unreachable)


def test_with_a_client_s_keys_nobody_is_let_into_a_gate(yard: Yard) -> None:
    """A client that listens where the hub should: its certificate is not for that, TLS says."""
    thief = keys.NodeIdentity.load(yard.folder / "keys" / "nodes" / "ward-b")
    yard.gate.close()
    listen = f"tls/127.0.0.1:{yard.port}"
    false = opened(gate(thief, listen, {PLAN: Enrolled(CLIENTS, 1000)}), Unreachable)
    try:
        with pytest.raises(Unreachable, match="cannot be reached"), yard.net("ward-a"):
            pass
    finally:
        false.close()


def test_who_is_revoked_is_shut_out_and_the_others_come_back(yard: Yard) -> None:
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a, yard.net("ward-b") as b:
        assert asks(hub, a) == b"from ward-a?"
        assert asks(hub, b) == b"from ward-b?"
        keys.revoke(yard.folder / "keys", "ward-b")
        yard.gate.look()
        assert yard.said[-1] == "plan: ward-a may take part."
        sees(hub, "ward-a", False)
        sees(hub, "ward-a")
        assert asks(hub, a) == b"from ward-a?"
        while (event := hub.next(1.0)) is not None:
            assert event != Seen("ward-b", True)
        hub.ask("ward-b", "q", b"?", 1.0)
        with answering(b):
            answer = came(hub, lambda event: isinstance(event, Answered))
            assert answer == Answered("ward-b", "q", None)


def test_a_gate_that_comes_back_is_found_again(yard: Yard) -> None:
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a:
        assert asks(hub, a) == b"from ward-a?"
        yard.gate.close()
        sees(hub, "ward-a", False)
        assert not hub.other_ends()
        again = Gate(
            yard.folder / "keys", yard.folder / "hub", "127.0.0.1", yard.port, yard.said.append
        )
        try:
            again.look()
            sees(hub, "ward-a")
            assert asks(hub, a) == b"from ward-a?"
        finally:
            again.close()


def test_two_answers_under_one_name_are_told_apart(yard: Yard) -> None:
    with yard.net(HUB, CLIENTS) as hub, yard.net("ward-a") as a:
        assert asks(hub, a) == b"from ward-a?"
        with yard.net("ward-a") as twin:
            with answering(a, b"alike"), answering(twin, b"alike"):
                hub.ask("ward-a", "q", b"?", 20.0)
                alike = came(hub, lambda event: isinstance(event, Answered))
            with answering(a, b"one thing"), answering(twin, b"another"):
                hub.ask("ward-a", "q", b"?", 20.0)
                unlike = came(hub, lambda event: isinstance(event, Answered))
        assert alike == Answered("ward-a", "q", b"alike")
        assert unlike.disputed


@pytest.mark.parametrize("delay", [0.2, 0.3, 0.4])
def test_who_shakes_hands_while_the_gate_opens_anew_is_seen_after_it(
    yard: Yard, delay: float
) -> None:
    """Zenoh goes on with a handshake when its session is closed: the client had a link to a session
    that was no more, and waited for ever.
    """
    proxies, door = Proxies(), free_port()
    try:
        proxies.open("ward-a", door, yard.port)
        proxies.set("ward-a", "slow")  # a handshake takes half a second
        client = yard.net("ward-a", door=door)
        coming = threading.Thread(target=enter, args=(client, yard.said.append), daemon=True)
        coming.start()
        time.sleep(delay)
        enrol(yard.folder / "hub", "another", Enrolled(CLIENTS, 1000))
        yard.gate.look()
        proxies.set("ward-a", "open")
        with yard.net(HUB, CLIENTS) as hub:
            sees(hub, "ward-a")
        coming.join(10)
        client.__exit__()
    finally:
        proxies.close()
