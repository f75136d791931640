"""Revocation and renewal, and what TLS makes of it."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from coterie.core.errors import InvalidInput
from coterie.deploy.keys import authority as keys
from coterie.deploy.keys.authority import NodeIdentity, Revocations


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    keys.init(tmp_path / "lab", "lab")
    return tmp_path / "lab"


def test_revocation_reaches_whoever_reads_the_list(lab: Path, tmp_path: Path) -> None:
    a, b = keys.issue(lab, "a"), keys.issue(lab, "b")
    carried = shutil.copytree(a, tmp_path / "carried")
    serial = NodeIdentity.load(a).serial
    watching = NodeIdentity.load(b).revocations()
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
    assert [i.status() for i in keys.listed(lab)] == ["revoked", "valid"]
    with pytest.raises(InvalidInput, match="'a' is revoked"):
        NodeIdentity.load(a)
    NodeIdentity.load(carried)  # its own list does not know yet
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
        NodeIdentity.load(place),
        (place / "flower.pub").read_text(),
        keys.load_certificate(place / "node.pem"),
    )
    with pytest.raises(InvalidInput, match=r"issued already: .* --renew"):
        keys.issue(lab, "a")
    assert keys.issue(lab, "a", ["a.org"], renew=True) == place
    new = NodeIdentity.load(place)
    assert new.serial != old.serial
    assert (place / "flower.pub").read_text() != old_flower
    assert [i.serial for i in keys.listed(lab)] == [new.serial]
    assert not [p for p in (lab / "nodes").iterdir() if p.name != "a"]
    watching = new.revocations()
    assert watching.refuses(old.serial)
    assert watching.refuses(old_certificate)
    assert not watching.refuses(new.certificate)
    assert not watching.refuses("a")  # the name lives on
    assert [i.status() for i in keys.listed(lab)] == ["valid"]
    keys.revoke(lab, "a")
    assert watching.current() == {old.serial, new.serial}
    assert watching.refuses("a")
    keys.issue(lab, "first-time", renew=True)  # nothing to replace: as without
    before = keys.issue(lab, "p", ["p.org"], ["10.0.0.1"], role="peer")
    role, (first, *_) = NodeIdentity.load(before).role, keys.listed(lab)[::-1]
    keys.issue(lab, "p", renew=True)  # for what it was before
    again = keys.listed(lab)[-1]
    assert (again.role, again.hosts, again.ips) == (role, first.hosts, first.ips)
    assert again.serial != first.serial


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
    elsewhere = keys.issue(lab, "elsewhere", ["hub.example.org"], role="peer")
    assert shake(hub, client) == "client-1"
    assert shake(elsewhere, hub, "hub.example.org") == "hub"
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):  # a client is no hub
        shake(client, hub, "127.0.0.1")
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
    client, other = (keys.issue(lab, name) for name in ("client-1", "client-2"))
    hub = keys.issue(lab, "hub", role="hub")
    assert shake(hub, client, crl=lab / "crl.pem") == "client-1"
    keys.revoke(lab, "client-1")
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        shake(hub, client, crl=hub / "crl.pem")
    assert shake(hub, other, crl=hub / "crl.pem") == "client-2"
