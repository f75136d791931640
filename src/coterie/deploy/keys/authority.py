"""Identities of a real federation: a certificate authority (CA) of its own, a folder of keys per
node, and revocation.

The operator's folder (0700) holds ca.key, ca.pem, crl.pem, nodes.json (all that was ever issued)
and nodes/NAME, which is carried to that machine: node.pem and node.key for mutual TLS, flower.key
and flower.pub for Flower's SuperNode authentication, ca.pem and crl.pem. ca.key never leaves.

What a revocation is known by. TLS knows serial numbers, Zenoh tells only common names, Flower only
registered names and public keys. So:

- crl.pem is a plain X.509 list of serials, and each entry also carries the node's name in a
  non-critical extension: one signed file answers for both.
- A renewed certificate's predecessor is listed as *superseded*: its serial is refused, its name is
  not. For any other reason the name is refused too.
- A name that was revoked is not issued again. Where only the common name is seen, the new holder
  could not be told from a thief of the old key; a node that comes back gets another name. For the
  same reason `--renew` is no remedy for a stolen key: revoke it.

A list is made when something is revoked, not by the calendar: its next update is the CA's own end.
Its number only grows, so an old copy is noticed. nodes.json is written first and crl.pem is made
from it: killed in between, the same command completes the work when repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import locked
from coterie.deploy.keys.books import SUPERSEDED, Issued, read_books, write_books
from coterie.deploy.keys.certificates import (
    REASONS,
    Authority,
    new_certificate,
    signed_certificate,
    signed_list,
    subject_of,
    usage,
)
from coterie.deploy.keys.checks import after, check_name, checked_host, checked_ip, whole_seconds
from coterie.deploy.keys.files import (
    fill_folder,
    load_certificate,
    openssh_text,
    private_pem,
    writable,
    write_bytes,
)
from coterie.deploy.keys.identity import NodeIdentity, Revocations
from coterie.deploy.keys.library import ec, hashes, serialization, x509

__all__ = [
    "REASONS",
    "ROLES",
    "Authority",
    "Issued",
    "NodeIdentity",
    "Revocations",
    "init",
    "issue",
    "listed",
    "load_certificate",
    "revoke",
]


ROLES = ("hub", "client", "peer")


def init(folder: Path, name: str, days: int = 3650, *, now: datetime | None = None) -> Authority:
    """Make a federation's CA in a new or empty folder."""
    folder, now = Path(folder), whole_seconds(now)
    check_name("the federation's name", name)
    expires = after(now, days)
    with writable(folder):
        if (folder / "ca.key").exists() and not (folder / "ca.pem").exists():
            raise InvalidInput(
                f"the folder {str(folder)!r} holds a ca.key without ca.pem, as an interrupted"
                " `coterie keys init` leaves it: delete it first."
            )
        if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
            raise InvalidInput(
                f"the folder {str(folder)!r} already holds a federation's keys, which are never"
                " overwritten: choose another folder."
            )
        if folder.is_dir() and any(p.name != ".lock" for p in folder.iterdir()):
            raise InvalidInput(
                f"the folder {str(folder)!r} is not empty, but keys get a folder of their own:"
                " choose another."
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        with locked(folder):
            if (folder / "ca.key").exists():  # another process was quicker
                raise InvalidInput(
                    f"the folder {str(folder)!r} already holds a federation's keys, which are never"
                    " overwritten."
                )
            key = ec.generate_private_key(ec.SECP256R1())
            subject = subject_of(
                (x509.NameOID.ORGANIZATION_NAME, name),
                (x509.NameOID.COMMON_NAME, f"{name[:50]} CA"),
            )
            builder = new_certificate(
                subject,
                subject,
                key.public_key(),
                key.public_key(),
                serial=x509.random_serial_number(),
                now=now,
                expires=expires,
            )
            builder = builder.add_extension(
                x509.BasicConstraints(ca=True, path_length=0), critical=True
            )
            builder = builder.add_extension(usage(authority=True), critical=True)
            ca = Authority(folder, builder.sign(key, hashes.SHA256()))
            (folder / "nodes").mkdir(mode=0o700, exist_ok=True)
            write_bytes(folder / "ca.key", private_pem(key), 0o600)
            write_books(folder, [])
            write_bytes(folder / "crl.pem", signed_list(ca, key, [], now))
            write_bytes(folder / "ca.pem", ca.certificate.public_bytes(serialization.Encoding.PEM))
    return ca


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str] = (),
    ips: Sequence[str] = (),
    days: int = 365,
    role: str | None = None,
    *,
    renew: bool = False,
    now: datetime | None = None,
) -> Path:
    """Write nodes/NAME: all that the node needs on its machine.

    Without hosts and ips it can be reached as localhost and 127.0.0.1 only. A role is client if it
    is not given. Renewed keys are for what the former ones were, if nothing else is given.
    """
    folder, now = Path(folder), whole_seconds(now)
    check_name("the node's name", name)
    if renew and (former := [i for i in _books(folder) if i.name == name]):
        role = role or former[-1].role
        if not hosts and not ips:
            hosts, ips = former[-1].hosts, former[-1].ips
    role = role or "client"
    if role not in ROLES:
        raise unknown("the role", role, ROLES)
    hosts, ips = (
        tuple(dict.fromkeys(map(checked_host, hosts))),
        tuple(dict.fromkeys(map(checked_ip, ips))),
    )
    if not hosts and not ips:
        hosts, ips = ("localhost",), ("127.0.0.1",)
    ca, expires = Authority.load(folder), after(now, days)
    if expires > ca.expires:
        left = max(0, (ca.expires - now).days)
        raise InvalidInput(
            f"days is {days}, but the federation's CA itself expires on {ca.expires:%Y-%m-%d}: at"
            f" most {left} days are possible."
        )
    node_folder = folder / "nodes" / name
    with writable(folder), locked(folder):
        ca_key, books = ca.key(), read_books(folder)
        earlier = [i for i in books if i.name == name]
        gone = next((i for i in earlier if i.revoked is not None and i.reason != SUPERSEDED), None)
        if gone is not None:
            raise InvalidInput(
                f"the name {name!r} was revoked on {gone.revoked:%Y-%m-%d} and stays refused, since"
                " peers know each other by name: choose another."
            )
        if (earlier or node_folder.exists()) and not renew:
            raise InvalidInput(
                f"the name {name!r} has been issued already: choose another, or replace its keys"
                " with --renew."
            )
        key, flower = (
            ec.generate_private_key(ec.SECP256R1()),
            ec.generate_private_key(ec.SECP384R1()),
        )
        issued = Issued(
            name,
            role,
            hosts,
            ips,
            x509.random_serial_number(),
            now,
            expires,
            openssh_text(flower.public_key()),
        )
        certificate = signed_certificate(ca, ca_key, issued, key.public_key())
        # The books come first: a certificate that they do not know could never be revoked.
        books = [
            (
                replace(i, revoked=now, reason=SUPERSEDED)
                if i.name == name and i.revoked is None
                else i
            )
            for i in books
        ]
        write_books(folder, [*books, issued])
        if earlier:
            _publish(ca, ca_key, books, now)
        fill_folder(
            node_folder,
            {
                "node.key": (private_pem(key), 0o600),
                "node.pem": (certificate.public_bytes(serialization.Encoding.PEM), 0o644),
                "flower.key": (private_pem(flower, serialization.PrivateFormat.OpenSSH), 0o600),
                "flower.pub": (f"{issued.flower_key}\n".encode(), 0o644),
                "ca.pem": ((folder / "ca.pem").read_bytes(), 0o644),
                "crl.pem": ((folder / "crl.pem").read_bytes(), 0o644),
            },
        )
    return node_folder


def revoke(
    folder: Path, name: str, reason: str = "unspecified", *, now: datetime | None = None
) -> Issued:
    """Put a node's certificate on the list and refresh the local copies.

    The other machines need crl.pem from you.

    Revoking again changes nothing but writes the list anew, so an interrupted revocation is
    completed by repeating it.
    """
    folder, now = Path(folder), whole_seconds(now)
    if reason not in REASONS:
        raise unknown("the reason", reason, REASONS)
    ca = Authority.load(folder)
    with writable(folder), locked(folder):
        books, key = read_books(folder), ca.key()
        if name not in {i.name for i in books}:
            raise unknown("the node", name, {i.name for i in books})
        books = [
            replace(i, revoked=now, reason=reason) if i.name == name and i.revoked is None else i
            for i in books
        ]
        write_books(folder, books)
        _publish(ca, key, books, now)
    return [i for i in books if i.name == name][-1]


def listed(folder: Path) -> list[Issued]:
    """The latest certificate of every name, in order of name."""
    Authority.load(folder)
    latest = {i.name: i for i in read_books(Path(folder))}
    return [latest[name] for name in sorted(latest)]


def _books(folder: Path) -> list[Issued]:
    Authority.load(folder)
    return read_books(folder)


def _publish(
    ca: Authority, key: ec.EllipticCurvePrivateKey, books: Sequence[Issued], now: datetime
) -> None:
    """crl.pem and its copies in the node folders that lie here."""
    data = signed_list(ca, key, books, now)
    write_bytes(ca.folder / "crl.pem", data)
    for copy in sorted(ca.folder.glob("nodes/[a-z0-9]*/crl.pem")):
        write_bytes(copy, data)
