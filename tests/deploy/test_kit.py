"""Join kits: one file per machine, and what is not one is refused before anything is written."""

from __future__ import annotations

import io
import json
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coterie import Federation
from coterie.cli.hub import client_app
from coterie.cli.keys import keys_app
from coterie.core.errors import InvalidInput
from coterie.deploy import kit
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.hub import hub_identity
from coterie.deploy.keys.identity import NodeIdentity
from coterie.deploy.keys.kits import write_kits
from coterie.deploy.site import Site, save_own
from tests.support.hub_lab import NAMES, Lab, make_plan, wait_for

HUB = "hub.example.org:9092"


@pytest.fixture
def office(tmp_path: Path, fed: Federation) -> Path:
    """The operator's machine: keys, a plan and kits."""
    keys.init(tmp_path / "keys", "lab")
    (tmp_path / "plan.toml").write_text(make_plan(fed, "fedu", "wards").to_toml())
    write_kits(tmp_path / "keys", tmp_path / "plan.toml", HUB, tmp_path / "kits")
    return tmp_path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def told(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as f:
        return set(f.namelist())


def test_a_kit_for_everybody_with_all_that_is_needed_and_not_the_ca_key(office: Path) -> None:
    made = sorted((office / "kits").iterdir())
    assert [path.name for path in made] == ["hub.zip", *(f"{name}.zip" for name in NAMES)]
    secret = (office / "keys" / "ca.key").read_bytes()
    for path in made:
        assert mode(path) == 0o600
        assert told(path) == {*kit.NEEDED, *kit.KEYS}
        assert secret not in kit.read(path).files.values()
    issued = {one.name: one for one in keys.listed(office / "keys")}
    assert issued["hub"].role == "hub"
    assert issued["hub"].hosts == ("hub.example.org",)
    # Once more: the same keys, and kits that say the same.
    before = kit.read(made[1])
    write_kits(office / "keys", office / "plan.toml", HUB, office / "kits")
    assert kit.read(made[1]) == before


@pytest.mark.parametrize(
    ("hub", "hosts", "ips"),
    [
        ("hub.example.org:1", ("hub.example.org",), ()),
        ("192.0.2.7:9092", (), ("192.0.2.7",)),
        ("[2001:db8::7]:9092", (), ("2001:db8::7",)),
    ],
)
def test_the_hub_has_a_name_or_an_address(
    tmp_path: Path, fed: Federation, hub: str, hosts: tuple[str, ...], ips: tuple[str, ...]
) -> None:
    keys.init(tmp_path / "keys", "lab")
    (tmp_path / "plan.toml").write_text(make_plan(fed, "fedu").to_toml())
    write_kits(tmp_path / "keys", tmp_path / "plan.toml", hub, tmp_path / "kits")
    issued = next(one for one in keys.listed(tmp_path / "keys") if one.role == "hub")
    assert (issued.hosts, issued.ips) == (hosts, ips)
    with pytest.raises(InvalidInput, match=r"but the certificate of 'hub' is for .*--renew"):
        write_kits(tmp_path / "keys", tmp_path / "plan.toml", "other.org:1", tmp_path / "kits")


def test_a_client_types_the_kit_and_its_data(office: Path, fed: Federation) -> None:
    save_own(fed, 1, office / "data.npz")
    path, said = office / "kits" / "ward-b.zip", []
    (office / "here").mkdir(mode=0o755)  # by hand
    site_path = kit.site_file(path, office / "data.npz", office / "here", say=said.append)
    site = Site.from_file(site_path)
    assert (site.name, site.number, site.hub, site.share_scores) == ("ward-b", 1, HUB, False)
    assert site.keys is not None
    assert NodeIdentity.load(site.keys).name == "ward-b"
    assert site.load_data().clients == 1
    assert mode(office / "here") == mode(site.keys) == 0o700
    assert {mode(p) for p in site.keys.iterdir()} == {0o600}
    assert said == []
    # Again, after a revocation that reached this machine by another way: it is not undone.
    keys.revoke(office / "keys", "ward-c")
    newer = (office / "keys" / "crl.pem").read_bytes()
    (site.keys / "crl.pem").write_bytes(newer)
    path.chmod(0o644)
    kit.site_file(path, office / "data.npz", office / "here", say=said.append)
    assert (site.keys / "crl.pem").read_bytes() == newer
    assert len(said) == 1
    assert "holds a private key, and other users of this machine may read it" in said[0]
    # Renewed keys come in a new kit.
    keys.issue(office / "keys", "ward-b", renew=True)
    kit.pack(path, office / "keys" / "nodes" / "ward-b", office / "plan.toml", {"hub": HUB})
    former = NodeIdentity.load(site.keys).serial
    kit.site_file(path, office / "data.npz", office / "here", say=said.append)
    assert NodeIdentity.load(site.keys).serial != former


def test_an_old_kit_does_not_undo_a_renewal(office: Path) -> None:
    """Keys that were renewed by copying files, and then a start with the kit of before."""
    path = office / "kits" / "hub.zip"
    place = kit.hub_keys(path, office / "hub", print)
    later = datetime.now(UTC) + timedelta(seconds=2)
    new = keys.issue(office / "keys", "hub", renew=True, now=later)
    for name in ("node.pem", "node.key", "flower.key", "flower.pub", "crl.pem"):
        shutil.copy(new / name, place)
    assert kit.hub_keys(path, office / "hub", print) == place
    assert hub_identity(place).serial == NodeIdentity.load(new).serial


def test_a_hub_comes_up_with_its_kit_alone(office: Path) -> None:
    found = hub_identity(kit.hub_keys(office / "kits" / "hub.zip", office / "hub", print))
    assert (found.name, found.role) == ("hub", "hub")
    assert not [*(office / "hub").rglob("ca.key")]
    with pytest.raises(InvalidInput, match="is the kit of the client 'ward-a'"):
        kit.hub_keys(office / "kits" / "ward-a.zip", office / "hub", print)
    with pytest.raises(InvalidInput, match="is the kit of a hub"):
        kit.site_file(office / "kits" / "hub.zip", office / "plan.toml", say=print)


def changed(path: Path, **files: bytes | None) -> bytes:
    """A kit with other files; None leaves one out."""
    with zipfile.ZipFile(path) as f:
        parts: dict[str, bytes | None] = {name: f.read(name) for name in f.namelist()}
    parts |= {name.replace("_", "."): data for name, data in files.items()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as g:
        for name, data in parts.items():
            if data is not None:
                g.writestr(name, data)
    return out.getvalue()


def lying(path: Path) -> bytes:
    """Claims that a file is small which is not: 64 MiB of zeros, said to have 10 bytes."""
    whole = bytearray(changed(path, plan_toml=bytes(64 << 20)))
    real, small = struct.pack("<I", 64 << 20), struct.pack("<I", 10)
    assert whole.count(real) == 2
    return bytes(whole.replace(real, small))


BAD = {
    "nothing": (lambda path: b"", "no zip file"),
    "text": (lambda path: b"name,age\n", "no zip file"),
    "cut": (lambda path: path.read_bytes()[:-30], "no zip file"),
    "above": (lambda path: changed(path, **{"../evil": b""}), "holds '../evil'"),
    "root": (lambda path: changed(path, **{"/etc/evil": b""}), "holds '/etc/evil'"),
    "folder": (lambda path: changed(path, **{"keys/": b""}), "holds 'keys/'"),
    "ca key": (lambda path: changed(path, ca_key=b"x"), r"holds 'ca\.key'"),
    "large": (lambda path: changed(path, node_pem=bytes(1 << 17)), "larger than 65536 bytes"),
    "bomb": (lambda path: changed(path, plan_toml=bytes(64 << 20)), "larger than 1048576"),
    "lying bomb": (lying, "larger than|no zip file"),
    "no key": (lambda path: changed(path, node_key=None), r"has no node\.key"),
    "no facts": (lambda path: changed(path, kit_json=b"{}"), "kit.json or plan.toml is damaged"),
    "format": (
        lambda path: changed(
            path, kit_json=json.dumps({"format": 9, "name": "a", "role": "b", "hub": HUB}).encode()
        ),
        "of the format 9, and this version reads 1",
    ),
    "hub": (
        lambda path: changed(
            path, kit_json=json.dumps({"format": 1, "name": "a", "role": "b", "hub": "x"}).encode()
        ),
        "must be like hub.example.org:9092",
    ),
}


@pytest.mark.parametrize("which", BAD)
def test_what_is_no_kit_is_refused(office: Path, which: str) -> None:
    make, sentence = BAD[which]
    path = office / "bad.zip"
    path.write_bytes(make(office / "kits" / "ward-a.zip"))
    with pytest.raises(InvalidInput, match=sentence):
        kit.site_file(path, office / "plan.toml", office / "here", say=print)
    assert not (office / "here").exists()
    assert not (office.parent / "evil").exists()


def test_kits_are_for_those_who_may_take_part(office: Path) -> None:
    args = (office / "keys", office / "plan.toml", HUB, office / "kits")
    (office / "keys" / "nodes" / "ward-a" / "node.key").unlink()
    with pytest.raises(InvalidInput, match=r"the private key of 'ward-a' is not in .*--renew"):
        write_kits(*args)
    keys.revoke(office / "keys", "ward-a")
    with pytest.raises(InvalidInput, match="the client 'ward-a' is revoked"):
        write_kits(*args)
    result = CliRunner().invoke(keys_app, ["kit", *map(str, args[:2]), "--hub", "nowhere"])
    assert isinstance(result.exception, InvalidInput)
    assert "must be like hub.example.org:9092" in str(result.exception)


def test_a_missing_file_is_named_before_a_missing_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("coterie.deploy.zenoh.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(name, raising=False)  # which the package remembers, too
    monkeypatch.setitem(sys.modules, "zenoh", None)
    gone = str(tmp_path / "site.toml")
    result = CliRunner().invoke(client_app, ["join", gone])
    assert str(result.exception) == f"{gone!r} is not there."
    Path(gone).touch()
    result = CliRunner().invoke(client_app, ["join", gone])
    assert "pip install 'coterie[deploy]'" in str(result.exception)


@pytest.mark.slow
def test_a_federation_of_kits_ends_as_the_simulator_does(
    hub_lab: Callable[..., Lab], fed: Federation
) -> None:
    """Every process has its kit and its data; the operator's folder is gone."""
    plan = make_plan(fed, "fedu", rounds=3)
    l = hub_lab(plan)
    place = f"127.0.0.1:{l.port}"
    write_kits(l.folder / "keys", l.folder / "fedu.toml", place, l.folder / "kits")
    keys.issue(l.folder / "keys", "ward-d")
    keys.revoke(l.folder / "keys", "ward-d")
    newer = (l.folder / "keys" / "crl.pem").read_bytes()
    shutil.rmtree(l.folder / "keys")
    l.start("up", *("hub", "up", "--keys", l.folder / "kits" / "hub.zip"), *l.at_hub())
    for name in NAMES:
        here = l.folder / name
        command = ("client", "join", l.folder / "kits" / f"{name}.zip", here / "data.npz")
        l.start(name, *command, "--folder", here / "fedu-kit", "--share-scores")
    hub = l.folder / "hub" / "kit" / "keys" / "crl.pem"
    wait_for(hub.is_file)
    hub.write_bytes(newer)
    l.run(plan)
    for label in ("run", *NAMES):
        assert l.finish(label, 300) == 0, l.logs()
    l.assert_equal(plan, state="fedu-kit/state")
    for name in NAMES:  # the hub has passed it on
        assert "the list of the revoked is new (number 2)" in l.said(name)
        assert (l.folder / name / "fedu-kit" / "keys" / "crl.pem").read_bytes() == newer
