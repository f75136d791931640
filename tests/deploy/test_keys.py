"""An authority of one's own: what it makes, issues and refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from coterie.cli.keys import keys_app
from coterie.core.errors import InvalidInput
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.authority import NodeIdentity, Revocations

NOW = datetime.now(UTC)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    keys.init(tmp_path / "lab", "lab")
    return tmp_path / "lab"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.name.startswith(".lock")
    }


def test_init_makes_a_ca_that_only_its_owner_reads(lab: Path) -> None:
    assert mode(lab) == mode(lab / "nodes") == 0o700
    assert mode(lab / "ca.key") == 0o600
    assert set(contents(lab)) == {"ca.key", "ca.pem", "crl.pem", "nodes.json"}
    ca = keys.Authority.load(lab)
    assert ca.name == "lab"
    assert 3649 <= (ca.expires - NOW).days <= 3650
    limits = ca.certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert limits.critical
    assert limits.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = ca.certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert usage.crl_sign
    assert not usage.digital_signature
    assert Revocations(lab / "ca.pem", lab / "crl.pem").current() == frozenset()


def test_init_never_overwrites(lab: Path, tmp_path: Path) -> None:
    before = contents(lab)
    with pytest.raises(InvalidInput, match="never overwritten"):
        keys.init(lab, "lab")
    assert contents(lab) == before
    (lab / "ca.pem").unlink()
    with pytest.raises(InvalidInput, match=r"without ca\.pem"):
        keys.init(lab, "lab")
    (tmp_path / "papers").mkdir(mode=0o755)
    (tmp_path / "papers" / "thesis.tex").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        keys.init(tmp_path / "papers", "lab")
    assert mode(tmp_path / "papers") == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written"):
        keys.init(tmp_path / "file", "lab")


def test_issue_writes_all_that_a_node_needs_and_not_the_ca_key(lab: Path) -> None:
    place = keys.issue(lab, "hub", ["Hub.Example.org"], ["10.0.0.7", "::1"], role="hub")
    assert place == lab / "nodes" / "hub"
    assert mode(place) == 0o700
    assert {p.name: mode(p) for p in place.iterdir()} == {
        "node.pem": 0o644,
        "node.key": 0o600,
        "ca.pem": 0o644,
        "crl.pem": 0o644,
        "flower.key": 0o600,
        "flower.pub": 0o644,
    }
    assert (lab / "ca.key").read_bytes() not in contents(place).values()
    certificate = keys.load_certificate(place / "node.pem")
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["hub.example.org"]
    assert [str(i) for i in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.7", "::1"]
    assert (
        len(list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)) == 2
    )
    flower = serialization.load_ssh_private_key((place / "flower.key").read_bytes(), password=None)
    assert isinstance(flower, ec.EllipticCurvePrivateKey)
    assert isinstance(flower.curve, ec.SECP384R1)
    assert flower.public_key() == serialization.load_ssh_public_key(
        (place / "flower.pub").read_bytes()
    )

    me = NodeIdentity.load(place)
    assert (me.name, me.role, me.serial, me.expires) == (
        "hub",
        "hub",
        certificate.serial_number,
        certificate.not_valid_after_utc,
    )
    assert all(
        p.is_file()
        for p in (me.certificate, me.key, me.ca, me.crl, me.flower_key, me.flower_public_key)
    )
    (listed,) = keys.listed(lab)
    assert (listed.name, listed.hosts, listed.ips, listed.serial) == (
        "hub",
        ("hub.example.org",),
        ("10.0.0.7", "::1"),
        me.serial,
    )
    assert listed.expires == me.expires
    assert keys.listed(lab)[0].flower_key == (place / "flower.pub").read_text().strip()


def test_secrets_are_closed_from_the_first_byte(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a file gets its final name or its final rights, no one else could have read it
    before.
    """
    seen = []
    fchmod = os.fchmod

    def watched(handle: int, rights: int) -> None:
        seen.append(os.fstat(handle).st_mode & 0o777)
        fchmod(handle, rights)

    monkeypatch.setattr(os, "fchmod", watched)
    old = os.umask(0)
    try:
        keys.issue(lab, "a")
    finally:
        os.umask(old)
    assert len(seen) == 7  # six files and nodes.json
    assert set(seen) == {0o600}
    assert mode(lab / "nodes" / "a" / "node.key") == 0o600


def test_nothing_is_left_behind_when_writing_fails(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys.issue(lab, "a")
    before = contents(lab / "nodes")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left"):
        keys.issue(lab, "b")
    assert contents(lab / "nodes") == before
    assert [i.name for i in keys.listed(lab)] == ["a"]
    assert not [
        p for p in lab.iterdir() if p.name.startswith(".") and not p.name.startswith(".lock")
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"name": "Hospital 1"}, "the node's name is 'Hospital 1', but must be 1 to 63"),
        ({"name": "../x"}, "must be 1 to 63"),
        ({"name": "a" * 64}, "must be 1 to 63"),
        ({"name": "a\n"}, "must be 1 to 63"),
        ({"name": "a", "role": "hubb"}, "the role 'hubb' is unknown; did you mean 'hub'"),
        ({"name": "a", "hosts": ["10.0.0.1"]}, "give it as --ip"),
        ({"name": "a", "hosts": ["a_b..c"]}, "must be a DNS name"),
        ({"name": "a", "ips": ["hub.org"]}, "ip is 'hub.org', but must be an IPv4 or IPv6 address"),
        ({"name": "a", "days": 0}, "days is 0, but must be a whole number from 1"),
        ({"name": "a", "days": 4000}, "at most 36.. days are possible"),
    ],
)
def test_what_cannot_be_issued(lab: Path, arguments: dict, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        keys.issue(lab, **arguments)
    assert keys.listed(lab) == []


def test_folders_that_hold_no_federation(lab: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no federation \(no ca.pem\)"):
        keys.listed(tmp_path)
    keys.init(tmp_path / "other", "other")
    shutil.copy(tmp_path / "other" / "ca.key", lab / "ca.key")
    with pytest.raises(InvalidInput, match="not the key of"):
        keys.issue(lab, "a")
    (lab / "nodes.json").write_text("{")
    with pytest.raises(InvalidInput, match=r"nodes\.json is damaged"):
        keys.listed(lab)


def test_expiry_is_told_with_file_and_date(lab: Path, tmp_path: Path) -> None:
    keys.init(tmp_path / "old", "old", now=NOW - timedelta(days=100))
    place = keys.issue(tmp_path / "old", "a", days=10, now=NOW - timedelta(days=50))
    with pytest.raises(
        InvalidInput, match=rf"node.pem expired on {NOW - timedelta(days=40):%Y-%m-%d}: .*--renew"
    ):
        NodeIdentity.load(place)
    with pytest.raises(InvalidInput, match=r"valid only from .* check the clock"):
        NodeIdentity.load(place, now=NOW - timedelta(days=51))
    NodeIdentity.load(place, now=NOW - timedelta(days=45))
    assert [i.status() for i in keys.listed(tmp_path / "old")] == ["expired"]

    keys.init(tmp_path / "older", "older", days=60, now=NOW - timedelta(days=100))
    place = keys.issue(tmp_path / "older", "a", days=60, now=NOW - timedelta(days=100))
    with pytest.raises(InvalidInput, match=r"ca\.pem expired on"):
        NodeIdentity.load(place)
    with pytest.raises(InvalidInput, match="the federation's CA itself expires on"):
        keys.issue(tmp_path / "older", "b")

    keys.issue(lab, "soon", days=20)
    assert [i.status() for i in keys.listed(lab)] == ["expires soon"]


def test_identities_that_are_not_sound(lab: Path, tmp_path: Path) -> None:
    keys.init(tmp_path / "other", "lab")  # the same name, another key
    a, b = keys.issue(lab, "a"), keys.issue(lab, "b")
    stranger = keys.issue(tmp_path / "other", "a")

    def spoilt(source: Path, file: str) -> Path:
        place = tmp_path / "spoilt"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(a, place)
        shutil.copy(source / file, place / file)
        return place

    with pytest.raises(InvalidInput, match=r"node.key is not the key of .*node.pem"):
        NodeIdentity.load(spoilt(b, "node.key"))
    with pytest.raises(InvalidInput, match=r"flower.key is not the key of .*flower.pub"):
        NodeIdentity.load(spoilt(b, "flower.pub"))
    with pytest.raises(InvalidInput, match="not issued by the CA"):
        NodeIdentity.load(spoilt(stranger, "ca.pem"))
    with pytest.raises(InvalidInput, match=r"crl.pem is not signed by the federation's CA"):
        NodeIdentity.load(spoilt(stranger, "crl.pem"))
    place = spoilt(a, "ca.pem")
    shutil.copy(place / "node.pem", place / "ca.pem")
    with pytest.raises(InvalidInput, match="not that of a CA"):
        NodeIdentity.load(place)
    place = spoilt(a, "node.key")
    (place / "node.key").chmod(0o640)
    with pytest.raises(InvalidInput, match=r"open to other users \(mode 0640\).*chmod 600"):
        NodeIdentity.load(place)
    place = spoilt(a, "node.key")
    (place / "node.key").write_text("no key")
    with pytest.raises(InvalidInput, match="not an unencrypted private key in PEM form"):
        NodeIdentity.load(place)
    place = spoilt(a, "node.pem")
    (place / "node.pem").write_text("no certificate")
    with pytest.raises(InvalidInput, match="not a certificate in PEM form"):
        NodeIdentity.load(place)
    (place / "node.pem").unlink()
    (place / "crl.pem").unlink()
    with pytest.raises(InvalidInput, match=r"has no node.pem, crl.pem"):
        NodeIdentity.load(place)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        result = CliRunner().invoke(keys_app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "valid until" in call("init", "lab", "--name", "lab", "--days", "400")
    assert "localhost and 127.0.0.1 only" in call("issue", "lab", "client-1")
    said = call(
        "issue",
        "lab",
        "hub",
        "--host",
        "hub.org",
        "--host",
        "hub.local",
        "--ip",
        "10.0.0.1",
        "--role",
        "hub",
        "--days",
        "20",
    )
    assert "lab/nodes/hub" in said
    assert "localhost" not in said
    call("issue", "lab", "client-2")
    said = call("revoke", "lab", "client-2", "--reason", "key-compromise")
    assert "nothing was sent: copy crl.pem" in said
    assert "former certificate is revoked" in call("issue", "lab", "client-1", "--renew")

    table = call("list", "lab")
    assert "lab: CA expires" in table
    assert "(in 399 days)" in table
    row = {line.split()[1]: line for line in table.splitlines() if "│" in line and "20" in line}
    assert "(in 364 days)" in row["client-1"]
    assert "valid" in row["client-1"]
    assert "hub.org, hub.local, 10.0.0.1" in row["hub"]
    assert "(in 19 days)" in row["hub"]
    assert "expires soon" in row["hub"]
    assert "revoked (key-compromise)" in row["client-2"]
    told = json.loads(call("list", "lab", "--json"))
    assert told["federation"] == "lab"
    assert {n["name"]: n["status"] for n in told["nodes"]} == {
        "client-1": "valid",
        "client-2": "revoked",
        "hub": "expires soon",
    }
    with pytest.raises(InvalidInput, match="issued already"):
        call("issue", "lab", "client-1")
    assert (tmp_path / "lab" / "ca.key").read_text() not in table


def test_without_cryptography_one_sentence_says_what_to_install() -> None:
    code = "import sys; sys.modules['cryptography'] = None; import coterie.deploy.keys.authority"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "InvalidInput: keys and certificates need the package cryptography" in told.stderr
    assert "pip install 'coterie[deploy]'" in told.stderr
