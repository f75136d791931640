"""A hub that is up: the gate through which clients come, and what runs plans.

Clients call the door (`door.py`), which passes them on to the gate; the gate listens on this
machine only, and what runs plans calls it there.

The hub's folder: hub.json (where both are, and the keys), plans/ (what the gate knows of each
plan), and per plan NAME/ (see `Hub`) and NAME.log. The gate itself keeps nothing: it may be killed
and started again at any time, and everybody connects again by itself.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked, make_folder, own_folder, write_json
from coterie.core.hosts import is_here
from coterie.deploy.board import Board, shown
from coterie.deploy.keys.hub import hub_identity
from coterie.deploy.kit import hub_keys
from coterie.deploy.ports import free_ports
from coterie.deploy.statuses import note_certificate, statuses
from coterie.deploy.zenoh.door import Door
from coterie.deploy.zenoh.leftovers import hang_up
from coterie.deploy.zenoh.net import opened
from coterie.deploy.zenoh.passport import Passport
from coterie.deploy.zenoh.sight import LOOK_AGAIN
from coterie.deploy.zenoh.spokes import Enrolled, endpoint, gate

Say = Callable[[str], None]
LOOK = 0.25
"""Seconds between looks for new plans."""
EACH = 64
"""Connections with one certificate, and two more for every plan that is run: a client has one for
every plan that it has joined, also for those that are not run yet.
"""


class Taken(CoterieError):
    """Something else listens there."""


def read_hub(folder: Path) -> dict[str, Any]:
    """Where door and gate are, and their keys."""
    try:
        facts: dict[str, Any] = json.loads((folder / "hub.json").read_text())
        found = {key: str(facts[key]) for key in ("keys", "place")}
        return found | {"inside": str(facts.get("inside", ""))}  # earlier versions had none
    except (OSError, ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"no hub was started in {str(folder)!r}; start one with `coterie hub up --keys KEYS"
            f" --folder {folder}`."
        ) from None


def enrol(folder: Path, plan: str, enrolled: Enrolled) -> None:
    """Tell the gate of a plan."""
    make_folder(folder / "plans", force=True)
    facts = {"clients": list(enrolled.clients), "largest": enrolled.largest}
    write_json(folder / "plans" / f"{plan}.json", facts)


class Gate:
    """Listens for as long as it is open; opens anew when plans or revocations change."""

    def __init__(self, keys: Path, folder: Path, host: str, port: int, say: Say) -> None:
        self.folder, self.say = folder.absolute(), say
        self.outside = endpoint(f"{host}:{port}", "the hub's host and port").removeprefix("tls/")
        self.door = Door(host, port, say)
        self.listen = ""
        self.identity = hub_identity(keys.absolute())
        self.passport = Passport.shown(self.identity, say)
        everywhere = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
        self.place = f"{everywhere.get(host, host)}:{port}"
        self.session: Any = None
        self._listener: Any = None
        self._admitted: dict[str, Enrolled] | None = None
        self._bad: set[Path] = set()

    def plans(self) -> dict[str, Enrolled]:
        """Those that were run here, without clients that are revoked."""
        refused, found = self.passport.refused(), {}
        for path in sorted((self.folder / "plans").glob("*.json")):
            try:
                facts = json.loads(path.read_text())
                names = tuple(str(name) for name in facts["clients"])
                largest = int(facts["largest"])
            except (OSError, ValueError, KeyError, TypeError):
                if path not in self._bad:
                    self.say(f"{path.name} in plans is damaged; `coterie hub run` writes it anew.")
                self._bad.add(path)
                continue
            here = tuple(name for name in names if name not in refused)
            if here:
                found[path.stem] = Enrolled(here, largest)
        return found

    def look(self) -> None:
        """Open anew if anything has changed since."""
        now, fresh = self.plans(), self.passport.renewed()
        if now == self._admitted and fresh is None:
            return
        if fresh is not None:
            self.passport, self.identity = fresh, fresh.identity
            note_certificate(self.folder, self.identity)
        self.door.open()
        self._shut()
        self._open(now)
        before, self._admitted = self._admitted, now
        for plan, one in now.items():
            if (before or {}).get(plan) != one:
                self.say(f"{plan}: {', '.join(one.clients)} may take part.")

    def _open(self, plans: dict[str, Enrolled]) -> None:
        """Where it was before, so that what runs plans finds it; elsewhere if that is taken."""
        for port in [*self._before(), *free_ports(3)]:
            self.listen = f"tls/127.0.0.1:{port}"
            try:
                self.session = opened(gate(self.identity, self.listen, plans), Taken)
                break
            except Taken as error:
                reason = error
        else:
            raise InvalidInput(f"the gate cannot listen on this machine: {reason}.")
        self.door.strangers.with_one = EACH + 2 * len(plans)
        self._listener = self.session.info.declare_link_events_listener(self._linked, history=True)
        self.door.towards(port)
        self._note()

    def _before(self) -> list[int]:
        if self.listen:
            return [int(self.listen.rpartition(":")[2])]
        with contextlib.suppress(InvalidInput, ValueError):
            return [int(read_hub(self.folder)["inside"].rpartition(":")[2])]
        return []

    def _linked(self, event: Any) -> None:
        """On a thread of Zenoh's."""
        name, port = event.link.auth_identifier, event.link.dst.rpartition(":")[2]
        if name and port.isdigit():
            self.door.proven(int(port), name)

    def listens(self) -> bool:
        return self.session is not None

    def close(self) -> None:
        self._shut()
        self.door.close()

    def _shut(self) -> None:
        if self.session is not None:
            self.door.towards(None)
            self.session.close()
            self.session = None
            hang_up(self.listen)

    def stay(self) -> None:
        """Until an exception, such as Ctrl-C."""
        checked = time.monotonic()
        try:
            self.look()
            note_certificate(self.folder, self.identity)
            self.say(f"the hub is up at {self.outside}.")
            while True:
                time.sleep(LOOK)
                self.look()
                if time.monotonic() - checked > LOOK_AGAIN:
                    checked = time.monotonic()
                    self.passport.check()
        finally:
            self.close()

    def _note(self) -> None:
        inside = self.listen.removeprefix("tls/")
        facts = {"keys": str(self.identity.folder), "place": self.place, "inside": inside}
        write_json(self.folder / "hub.json", facts)


def up(
    keys: Path, folder: Path, host: str, port: int, *, say: Say = print, metrics: int | None = None
) -> None:
    """Bring a hub up and keep it up until Ctrl-C or SIGTERM; `metrics` is a port (board.py)."""
    own_folder(folder)
    make_folder(folder / "locks" / "gate", force=True)
    with locked(folder / "locks" / "gate"):  # before anything of another hub is touched
        gate = Gate(hub_keys(keys, folder, say), folder, host, port, say)
        if is_here(host):
            say(f"it listens on {host}, which only this machine can reach; --host says where else.")
        _allow_many_links()
        board = Board("hub", gate.identity.name, gate.identity.expires, gate.listens)
        board.statuses = lambda: statuses(folder)
        board.refused = lambda: gate.door.strangers.refused
        with contextlib.suppress(KeyboardInterrupt), shown(board, metrics):
            gate.stay()


def _allow_many_links() -> None:
    """As many open files as this user may have, up to 65536: idle strangers use them up first."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
