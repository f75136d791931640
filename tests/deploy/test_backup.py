"""Copies of a hub that runs: sound at any moment, and a hub that was restored goes on."""

from __future__ import annotations

import io
import json
import shutil
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coterie.cli.hub import hub_app
from coterie.core.errors import InvalidInput
from coterie.core.files import write_json
from coterie.deploy.backup import backup, restore
from coterie.deploy.hub import Hub
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.hub import LIST
from coterie.deploy.plan import Plan
from tests.support import former
from tests.support.room import Room, assert_same, make_plan


class Office:
    """A hub in a folder with its plans, and clients that answer it."""

    def __init__(self, folder: Path) -> None:
        self.fed, self.folder = former.federation(), folder
        self.plan = make_plan(self.fed, "fedu", rounds=6)
        self.room = Room(self.plan, self.fed, folder)
        self.reopen(folder / "hubs")

    def reopen(self, hubs: Path) -> None:
        self.hubs = hubs
        self.room.hub = Hub(self.plan, hubs / "test", say=lambda sentence: None)


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def restored(copy: Path, folder: Path, plan: Plan) -> Hub:
    assert set(restore(copy, folder)) == {"test"}
    return Hub(plan, folder / "test", say=lambda sentence: None)


def test_a_restored_hub_goes_on_and_ends_as_the_simulator_does(office: Office) -> None:
    room, folder = office.room, office.folder
    for _ in range(2):
        room.round()
    assert backup(office.hubs, folder / "copy.zip") == {"test": 2}
    assert (folder / "copy.zip").stat().st_mode & 0o777 == 0o600
    shutil.rmtree(office.hubs)
    args = ["restore", str(folder / "copy.zip"), "--folder", str(folder / "again")]
    done = CliRunner().invoke(hub_app, args)
    assert done.exit_code == 0, done.output
    assert "test: round 2" in done.output
    office.reopen(folder / "again")
    assert room.hub.t == 2
    room.run()
    assert_same(room, office.fed)


def test_copies_are_sound_while_the_hub_works(office: Office) -> None:
    """One after another, as fast as they can be taken, in the middle of whatever the hub does."""
    room, copies, over = office.room, list[Path](), threading.Event()
    room.round()

    def take() -> None:
        while not over.is_set():
            path = office.folder / f"copy{len(copies)}.zip"
            backup(office.hubs, path)
            copies.append(path)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        while not room.hub.done:
            room.round()
    finally:
        over.set()
        thread.join()
    rows, seen = room.hub.ledger.rows(), set()
    assert len(copies) > 3
    for k, path in enumerate(copies):
        hub = restored(path, office.folder / f"from{k}", office.plan)
        seen.add(hub.t)
        assert hub.ledger.rows()[:, 0].max() == hub.t - 1
        np.testing.assert_array_equal(hub.ledger.rows(), rows[rows[:, 0] < hub.t])
    assert len(seen) > 1, "no copy was taken between rounds; the test shows nothing"


def with_entry(path: Path, name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(path) as f, zipfile.ZipFile(out, "w") as g:
        for one in f.namelist():
            g.writestr(one, data if one == name else f.read(one))
        if name not in f.namelist():
            g.writestr(name, data)
    return out.getvalue()


def test_what_is_no_copy_is_refused_and_leaves_nothing(office: Office) -> None:
    office.room.round()
    good = office.folder / "good.zip"
    backup(office.hubs, good)
    bad = {
        "no zip file": b"hello",
        "damaged": with_entry(good, "test/ledger.rows", b"other"),
        "other files": with_entry(good, "../evil", b""),
        "other files than": with_entry(good, "test/node.key", b""),
        "no zip file, or": good.read_bytes()[:-40],
    }
    for sentence, data in bad.items():
        path, target = office.folder / "bad.zip", office.folder / "target"
        path.write_bytes(data)
        with pytest.raises(InvalidInput, match=sentence):
            restore(path, target)
        assert not target.exists()
    with pytest.raises(InvalidInput, match="is not empty"):
        restore(good, office.hubs)
    with pytest.raises(InvalidInput, match="there already"):
        backup(office.hubs, good)
    with pytest.raises(InvalidInput, match="holds no plan"):
        backup(office.folder / "hub" / "test", office.folder / "x.zip")
    assert not [p for p in (office.hubs / "test").iterdir() if p.name.startswith("tmp")]


@pytest.fixture
def lab(office: Office) -> Path:
    """Keys, and a hub that is up with some of them."""
    keys.init(office.folder / "keys", "lab")
    node = keys.issue(office.folder / "keys", "hub", role="hub")
    keys.issue(office.folder / "keys", "site-1")
    place = shutil.copytree(node, office.hubs / "kit" / "keys")
    write_json(office.hubs / "hub.json", {"keys": str(place), "place": "127.0.0.1:1"})
    return office.folder / "keys"


def test_a_copy_has_the_newest_list_of_the_revoked(office: Office, lab: Path) -> None:
    """And a copy of the restored folder has it as well, before the hub is up again."""
    office.room.round()
    keys.revoke(lab, "site-1")
    newer = (lab / "crl.pem").read_bytes()
    (office.hubs / "kit" / "keys" / "crl.pem").write_bytes(newer)
    backup(office.hubs, office.folder / "copy.zip")
    with zipfile.ZipFile(office.folder / "copy.zip") as f:
        assert not [name for name in f.namelist() if name.endswith((".key", "node.pem"))]
    args = ["restore", str(office.folder / "copy.zip"), "--folder", str(office.folder / "again")]
    done = CliRunner().invoke(hub_app, args)
    assert "`hub up` takes it if that of the keys is older" in " ".join(done.output.split())
    assert (office.folder / "again" / LIST).read_bytes() == newer
    backup(office.folder / "again", office.folder / "second.zip")
    restored(office.folder / "second.zip", office.folder / "third", office.plan)
    assert (office.folder / "third" / LIST).read_bytes() == newer


def test_a_list_that_nobody_has_signed_is_in_no_copy(office: Office, lab: Path) -> None:
    office.room.round()
    (office.hubs / "kit" / "keys" / "crl.pem").write_bytes(b"nobody")
    with pytest.raises(InvalidInput, match=r"crl\.pem is not a revocation list"):
        backup(office.hubs, office.folder / "copy.zip")
    assert not (office.folder / "copy.zip").exists()


def test_a_copy_of_the_former_format_is_read(office: Office) -> None:
    office.room.round()
    good, old = office.folder / "good.zip", office.folder / "old.zip"
    backup(office.hubs, good)
    with zipfile.ZipFile(good) as f:
        index = json.loads(f.read("backup.json"))
    old.write_bytes(with_entry(good, "backup.json", json.dumps(index | {"format": 1}).encode()))
    assert restored(old, office.folder / "again", office.plan).t == 1
    assert not (office.folder / "again" / LIST).exists()
    old.write_bytes(with_entry(good, "backup.json", json.dumps(index | {"format": 3}).encode()))
    with pytest.raises(InvalidInput, match="its format is 3, and this version reads 1 and 2"):
        restore(old, office.folder / "never")
