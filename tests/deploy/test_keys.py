"""Identities: what is written and with which rights, what is refused and in which words, and that
real TLS agrees.
"""

from __future__ import annotations

import json
import runpy
import shutil
import socket
import ssl
import sys
import threading
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
from coterie.deploy.keys.authority import Identity, Revocations

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
        if p.is_file() and p.name != ".lock"
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

    me = Identity.load(place)
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
    assert keys.flower_keys(lab) == {"hub": (place / "flower.pub").read_text().strip()}


def test_secrets_are_closed_from_the_first_byte(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a file gets its final name or its final rights, no one else could have read it
    before.
    """
    seen = []
    fchmod = keys.os.fchmod

    def watched(handle: int, rights: int) -> None:
        seen.append(keys.os.fstat(handle).st_mode & 0o777)
        fchmod(handle, rights)

    monkeypatch.setattr(keys.os, "fchmod", watched)
    old = keys.os.umask(0)
    try:
        keys.issue(lab, "a")
    finally:
        keys.os.umask(old)
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

    monkeypatch.setattr(keys.os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left"):
        keys.issue(lab, "b")
    assert contents(lab / "nodes") == before
    assert [i.name for i in keys.listed(lab)] == ["a"]
    assert not [p for p in lab.iterdir() if p.name.startswith(".") and p.name != ".lock"]


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
        Identity.load(place)
    with pytest.raises(InvalidInput, match=r"valid only from .* check the clock"):
        Identity.load(place, now=NOW - timedelta(days=51))
    Identity.load(place, now=NOW - timedelta(days=45))
    assert [i.status() for i in keys.listed(tmp_path / "old")] == ["expired"]
    assert keys.flower_keys(tmp_path / "old") == {}
    assert keys.is_refused(tmp_path / "old", "a")

    keys.init(tmp_path / "older", "older", days=60, now=NOW - timedelta(days=100))
    place = keys.issue(tmp_path / "older", "a", days=60, now=NOW - timedelta(days=100))
    with pytest.raises(InvalidInput, match=r"ca\.pem expired on"):
        Identity.load(place)
    with pytest.raises(InvalidInput, match="the federation's CA itself expires on"):
        keys.issue(tmp_path / "older", "b")

    keys.issue(lab, "soon", days=20)
    assert [i.status() for i in keys.listed(lab)] == ["expires soon"]
    assert not keys.is_refused(lab, "soon")
    assert keys.is_refused(lab, "never-issued")


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
        Identity.load(spoilt(b, "node.key"))
    with pytest.raises(InvalidInput, match=r"flower.key is not the key of .*flower.pub"):
        Identity.load(spoilt(b, "flower.pub"))
    with pytest.raises(InvalidInput, match="not issued by the CA"):
        Identity.load(spoilt(stranger, "ca.pem"))
    with pytest.raises(InvalidInput, match=r"crl.pem is not signed by the federation's CA"):
        Identity.load(spoilt(stranger, "crl.pem"))
    place = spoilt(a, "ca.pem")
    shutil.copy(place / "node.pem", place / "ca.pem")
    with pytest.raises(InvalidInput, match="not that of a CA"):
        Identity.load(place)
    place = spoilt(a, "node.key")
    (place / "node.key").chmod(0o640)
    with pytest.raises(InvalidInput, match=r"open to other users \(mode 0640\).*chmod 600"):
        Identity.load(place)
    place = spoilt(a, "node.key")
    (place / "node.key").write_text("no key")
    with pytest.raises(InvalidInput, match="not an unencrypted private key in PEM form"):
        Identity.load(place)
    place = spoilt(a, "node.pem")
    (place / "node.pem").write_text("no certificate")
    with pytest.raises(InvalidInput, match="not a certificate in PEM form"):
        Identity.load(place)
    (place / "node.pem").unlink()
    (place / "crl.pem").unlink()
    with pytest.raises(InvalidInput, match=r"has no node.pem, crl.pem"):
        Identity.load(place)


def test_revocation_reaches_whoever_reads_the_list(lab: Path, tmp_path: Path) -> None:
    a, b = keys.issue(lab, "a"), keys.issue(lab, "b")
    carried = shutil.copytree(a, tmp_path / "carried")
    serial = Identity.load(a).serial
    watching = Identity.load(b).revocations()
    assert not watching.refuses("a")
    issued = keys.revoke(lab, "a", "key-compromise")
    assert (issued.status(), issued.reason) == ("revoked", "key-compromise")
    assert watching.current() == {serial}
    assert watching.revoked_names() == {"a"}
    assert watching.refuses("a")
    assert watching.refuses(serial)
    assert watching.refuses(a / "node.pem")
    assert watching.refuses(keys.load_certificate(a / "node.pem"))
    assert not watching.refuses("b")
    assert not watching.refuses(b / "node.pem")
    assert keys.is_refused(lab, "a")
    assert set(keys.flower_keys(lab)) == {"b"}
    with pytest.raises(InvalidInput, match="'a' is revoked"):
        Identity.load(a)
    Identity.load(carried)  # its own list does not know yet
    with pytest.raises(InvalidInput, match="the node 'c' is unknown"):
        keys.revoke(lab, "c")
    with pytest.raises(InvalidInput, match="the reason 'stolen' is unknown"):
        keys.revoke(lab, "b", "stolen")
    for renew in (False, True):
        with pytest.raises(InvalidInput, match="stays refused"):
            keys.issue(lab, "a", renew=renew)


def test_an_interrupted_revocation_is_completed_by_repeating_it(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = keys.issue(lab, "a")
    with monkeypatch.context() as patch:
        patch.setattr(keys, "_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            keys.revoke(lab, "a", "privilege-withdrawn")
    watching = Revocations(lab / "ca.pem", lab / "crl.pem")
    assert not watching.refuses("a")
    assert keys.revoke(lab, "a").reason == "privilege-withdrawn"
    assert watching.refuses("a")
    assert (place / "crl.pem").read_bytes() == (lab / "crl.pem").read_bytes()


def test_renewed_certificates(lab: Path) -> None:
    place = keys.issue(lab, "a", ["a.org"])
    old, old_flower, old_certificate = (
        Identity.load(place),
        keys.flower_keys(lab)["a"],
        keys.load_certificate(place / "node.pem"),
    )
    with pytest.raises(InvalidInput, match=r"issued already: .* --renew"):
        keys.issue(lab, "a")
    assert keys.issue(lab, "a", ["a.org"], renew=True) == place
    new = Identity.load(place)
    assert new.serial != old.serial
    assert keys.flower_keys(lab)["a"] != old_flower
    assert [i.serial for i in keys.listed(lab)] == [new.serial]
    assert not [p for p in (lab / "nodes").iterdir() if p.name != "a"]
    watching = new.revocations()
    assert watching.refuses(old.serial)
    assert watching.refuses(old_certificate)
    assert not watching.refuses(new.certificate)
    assert not watching.refuses("a")  # the name lives on
    assert not keys.is_refused(lab, "a")
    keys.revoke(lab, "a")
    assert watching.current() == {old.serial, new.serial}
    assert watching.refuses("a")
    keys.issue(lab, "first-time", renew=True)  # nothing to replace: as without


def test_a_list_that_is_not_the_cas_is_not_taken(lab: Path, tmp_path: Path) -> None:
    keys.init(tmp_path / "other", "lab")
    keys.issue(lab, "a")
    path, said = tmp_path / "crl.pem", list[str]()
    empty = (lab / "crl.pem").read_bytes()
    keys.revoke(lab, "a")
    good = (lab / "crl.pem").read_bytes()
    path.write_bytes(good)
    watching = Revocations(lab / "ca.pem", path, said.append)

    def tampered() -> bytes:
        der = bytearray(x509.load_pem_x509_crl(good).public_bytes(serialization.Encoding.DER))
        place = der.index(keys.listed(lab)[0].serial.to_bytes(20, "big").lstrip(b"\0"))
        der[place + 3] ^= 1
        return x509.load_der_x509_crl(bytes(der)).public_bytes(serialization.Encoding.PEM)

    for bad, sentence in (
        (tampered(), "not signed by the federation's CA"),
        ((tmp_path / "other" / "crl.pem").read_bytes(), "not signed by the federation's CA"),
        (good[: len(good) // 2], "not a revocation list"),
        (empty, "is list number 1, older than number 2"),
        (None, "cannot be read: No such file"),
    ):
        path.unlink()
        if bad is not None:
            path.write_bytes(bad)
        for _ in range(3):
            assert watching.refuses("a")
        assert len(said) == 1  # once, not every round
        assert sentence in said[0]
        assert said.pop().endswith("; the list read before stays in use.")
        if bad is not None and bad != empty:
            with pytest.raises(InvalidInput, match=sentence):
                Revocations(lab / "ca.pem", path)
        path.write_bytes(good)
        assert watching.refuses("a")
        assert not said
    stranger = keys.issue(tmp_path / "other", "b")
    assert watching.refuses(stranger / "node.pem")
    with pytest.raises(InvalidInput, match="cannot be read"):
        Revocations(lab / "ca.pem", tmp_path / "nothing")


def shake(server: Path, client: Path, host: str = "localhost", crl: Path | None = None) -> str:
    """A handshake on loopback where both ends verify; gives the client's common name as the server
    sees it, or raises what either end met.
    """
    answering = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=server / "ca.pem")
    answering.verify_mode = ssl.CERT_REQUIRED
    answering.load_cert_chain(server / "node.pem", server / "node.key")
    if crl is not None:
        answering.load_verify_locations(crl)
        answering.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    calling = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=client / "ca.pem")
    calling.load_cert_chain(client / "node.pem", client / "node.key")
    seen: list[str] = []
    failed: list[Exception] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(5)

        def serve() -> None:
            try:
                with (
                    door.accept()[0] as plain,
                    answering.wrap_socket(plain, server_side=True) as link,
                ):
                    subject = dict(pair for (pair,) in link.getpeercert()["subject"])  # type: ignore[index]
                    seen.append(subject["commonName"])
                    link.sendall(b"welcome")
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(door.getsockname(), 5) as plain,
                calling.wrap_socket(plain, server_hostname=host) as link,
            ):
                assert link.recv(7) == b"welcome"
        except OSError as error:
            failed.insert(0, error)
        thread.join()
    refusals = [f for f in failed if isinstance(f, ssl.SSLCertVerificationError)] or failed
    if refusals:
        raise refusals[0]
    return seen[0]


def test_mutual_tls(lab: Path, tmp_path: Path) -> None:
    hub, client = keys.issue(lab, "hub", role="hub"), keys.issue(lab, "client-1")
    elsewhere = keys.issue(lab, "elsewhere", ["hub.example.org"])
    assert shake(hub, client) == "client-1"
    assert shake(client, hub, "127.0.0.1") == "hub"
    assert shake(elsewhere, client, "hub.example.org") == "client-1"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(elsewhere, client)
    keys.init(tmp_path / "other", "lab")
    stranger = keys.issue(tmp_path / "other", "client-1")
    with pytest.raises(ssl.SSLCertVerificationError):  # the client does not know the hub's CA
        shake(hub, stranger)
    shutil.copy(lab / "ca.pem", stranger / "ca.pem")
    with pytest.raises(ssl.SSLCertVerificationError):  # the hub does not know the client's
        shake(hub, stranger)


def test_plain_tls_understands_the_list(lab: Path) -> None:
    hub, client, other = (keys.issue(lab, name) for name in ("hub", "client-1", "client-2"))
    assert shake(hub, client, crl=lab / "crl.pem") == "client-1"
    keys.revoke(lab, "client-1")
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake(hub, client, crl=hub / "crl.pem")
    assert shake(hub, other, crl=hub / "crl.pem") == "client-2"


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


def test_without_cryptography_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(InvalidInput, match=r"pip install 'coterie\[deploy\]'"):
        runpy.run_path(str(keys.__file__))
