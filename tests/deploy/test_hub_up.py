"""`coterie hub up`: where it listens, whom it refuses, and what it leaves when it fails."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("zenoh")

from coterie import Federation
from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.files import locked
from coterie.deploy import hub_up
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.hub import LIST
from coterie.deploy.keys.identity import NodeIdentity
from coterie.deploy.keys.kits import write_kits
from coterie.deploy.kit import hub_keys
from coterie.deploy.ports import free_port
from coterie.deploy.zenoh import gate
from tests.conftest import Cli
from tests.support.hub_lab import make_plan

Up = Callable[..., str]


class Office:
    """The operator's machine, with kits for a hub at a port that is not the usual one."""

    def __init__(self, folder: Path, fed: Federation) -> None:
        self.folder, self.port = folder, free_port()
        keys.init(folder / "keys", "lab")
        (folder / "plan.toml").write_text(make_plan(fed, "fedu", "wards").to_toml())
        place = f"127.0.0.1:{self.port}"
        write_kits(folder / "keys", folder / "plan.toml", place, folder / "kits")
        self.kit, self.hub = folder / "kits" / "hub.zip", folder / "new" / "hub"

    def revoked(self, name: str) -> bytes:
        """The list after that."""
        keys.revoke(self.folder / "keys", name)
        return (self.folder / "keys" / "crl.pem").read_bytes()


@pytest.fixture
def office(tmp_path: Path, fed: Federation) -> Office:
    return Office(tmp_path, fed)


@pytest.fixture
def up(office: Office, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Up:
    """What the command says; it ends once it is up."""

    def stay(self: gate.Gate) -> None:
        try:
            self.look()
            self.say(f"the hub is up at {self.outside}.")
        finally:
            self.close()

    monkeypatch.setattr(gate.Gate, "stay", stay)

    def run(*options: str, keys: Path | None = None) -> str:
        chosen = ["--keys", str(keys or office.kit), "--folder", str(office.hub)]
        code, out, said = cli("hub", "up", *chosen, *options)
        assert code == 0, said
        return " ".join((out + said).split())

    return run


def test_a_hub_listens_on_the_port_of_its_kit(office: Office, up: Up) -> None:
    said = up()
    assert f"the hub is up at 127.0.0.1:{office.port}." in said
    assert "by their kits" not in said
    assert "by their kits" not in up("--port", str(office.port))


def test_another_port_is_taken_and_told_of(office: Office, up: Up) -> None:
    other = free_port()
    said = up("--port", str(other))
    assert f"the hub is up at 127.0.0.1:{other}." in said
    assert f"on port {other}, but by their kits clients call 127.0.0.1:{office.port}" in said


def test_without_a_kit_it_is_the_usual_port(office: Office) -> None:
    said: list[str] = []
    assert hub_up.port_of(office.folder / "keys", None, said.append) == 9092
    assert hub_up.port_of(office.folder / "keys", 7000, said.append) == 7000
    assert said == []


def test_a_restored_list_of_the_revoked_is_taken_where_it_is_newer(office: Office) -> None:
    """From a kit, which has the first list."""
    newer = office.revoked("ward-c")
    office.hub.mkdir(parents=True)
    (office.hub / LIST).write_bytes(newer)
    said: list[str] = []
    place = hub_keys(office.kit, office.hub, said.append)
    assert (place / "crl.pem").read_bytes() == newer
    assert NodeIdentity.load(place).revocations().revoked_names() == {"ward-c"}
    assert len(said) == 1
    assert "that of the restored copy (number 2), which is newer than that of the keys" in said[0]
    assert said[0].endswith("revoked ward-c.")
    assert hub_keys(office.kit, office.hub, said.append) == place
    newest = office.revoked("ward-b")
    (place / "crl.pem").write_bytes(newest)
    hub_keys(office.kit, office.hub, said.append)
    assert (place / "crl.pem").read_bytes() == newest
    assert len(said) == 1


def test_the_hub_refuses_whom_the_restored_list_refuses(office: Office, up: Up) -> None:
    own = shutil.copytree(office.folder / "keys" / "nodes" / "hub", office.folder / "own")
    newer = office.revoked("ward-c")
    (office.hub / "plans").mkdir(parents=True)
    (office.hub / LIST).write_bytes(newer)
    facts = '{"clients": ["ward-a", "ward-b", "ward-c"], "largest": 1000}'
    (office.hub / "plans" / "wards.json").write_text(facts)
    assert "wards: ward-a, ward-b may take part." in up()
    # With its own folder of keys as well.
    assert "wards: ward-a, ward-b may take part." in up("--port", str(office.port), keys=own)
    assert (own / "crl.pem").read_bytes() == newer


@pytest.mark.parametrize("bad", ["another CA's", "damaged"])
def test_a_list_that_the_ca_has_not_signed_is_not_taken(office: Office, bad: str) -> None:
    office.hub.mkdir(parents=True)
    other = office.folder / "other"
    keys.init(other, "lab")
    for name in ("a", "b"):
        keys.issue(other, name)
        keys.revoke(other, name)
    data = (other / "crl.pem").read_bytes()
    (office.hub / LIST).write_bytes(data if bad == "another CA's" else data[:200])
    said: list[str] = []
    place = hub_keys(office.kit, office.hub, said.append)
    assert NodeIdentity.load(place).revocations().revoked_names() == frozenset()
    assert len(said) == 1
    assert f"not taken: {office.hub / LIST} is not" in said[0]


@pytest.mark.parametrize("there", [False, True], ids=["new folder", "restored folder"])
@pytest.mark.parametrize("why", ["port taken", "host", "metrics"])
def test_a_hub_that_does_not_come_up_leaves_nothing(office: Office, there: bool, why: str) -> None:
    if there:
        (office.hub / "wards").mkdir(parents=True)
        (office.hub / "wards" / "status.json").touch()
    before = sorted(office.folder.rglob("*"))
    host = "192.0.2.7" if why == "host" else "127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = port if why == "port taken" else office.port
        metrics = port if why == "metrics" else None
        with pytest.raises(CoterieError):
            hub_up.up(office.kit, office.hub, host, chosen, say=print, metrics=metrics)
    assert sorted(office.folder.rglob("*")) == before


def test_keys_that_are_none_leave_no_folder(office: Office) -> None:
    for wrong in ("keys/nodes/ward-a", "nowhere", "kits/ward-a.zip"):
        with pytest.raises(InvalidInput):
            hub_up.up(office.folder / wrong, office.hub, "127.0.0.1", office.port, say=print)
    assert not office.hub.parent.exists()


def test_a_hub_that_was_up_keeps_its_folder(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate ends, say: runs and keys stay where they are."""

    def stay(self: gate.Gate) -> None:
        try:
            self.look()
            raise InvalidInput("it expired.")
        finally:
            self.close()

    monkeypatch.setattr(gate.Gate, "stay", stay)
    with pytest.raises(InvalidInput, match="it expired"):
        hub_up.up(office.kit, office.hub, "127.0.0.1", office.port, say=print)
    assert (office.hub / "hub.json").is_file()
    assert (office.hub / "kit" / "keys" / "node.key").is_file()


def test_another_hub_that_comes_up_there_meanwhile_keeps_its_keys(office: Office) -> None:
    lock, place = office.hub / "locks" / "gate", office.hub / "kit"
    lock.mkdir(parents=True)
    place.mkdir()
    with locked(lock):
        hub_up._take_away(office.hub, [place])
    assert place.is_dir()
    hub_up._take_away(office.hub, [place])
    assert not place.exists()
