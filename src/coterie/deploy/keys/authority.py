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
- A Flower hub compares with nodes.json: `flower_keys` gives the public keys that may take part,
  `is_refused` answers by name.

A list is made when something is revoked, not by the calendar: its next update is the CA's own end.
Its number only grows, so an old copy is noticed. nodes.json is written first and crl.pem is made
from it: killed in between, the same command completes the work when repeated.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput, unknown
from coterie.core.files import locked

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID
except (
    ImportError
):  # only real federations need it: whoever imports this module is told what to install
    raise InvalidInput(
        "keys and certificates need the package cryptography: pip install 'coterie[deploy]'."
    ) from None

ROLES = ("hub", "client", "peer")
REASONS = {
    "unspecified": x509.ReasonFlags.unspecified,
    "key-compromise": x509.ReasonFlags.key_compromise,
    "affiliation-changed": x509.ReasonFlags.affiliation_changed,
    "cessation-of-operation": x509.ReasonFlags.cessation_of_operation,
    "privilege-withdrawn": x509.ReasonFlags.privilege_withdrawn,
}
SUPERSEDED = "superseded"
SOON = timedelta(days=30)
SKEW = timedelta(
    minutes=5
)  # clocks of machines differ: what is issued now is valid from a little earlier

# An object identifier under 2.25 needs no registration: it is uuid5(NAMESPACE_DNS, "coterie").
_NODE_NAME = x509.ObjectIdentifier("2.25.340278507768786904968122215150803977275")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NODE_FILES = ("node.pem", "node.key", "ca.pem", "crl.pem", "flower.key", "flower.pub")


@dataclass(frozen=True)
class Issued:
    """One certificate, as nodes.json keeps it."""

    name: str
    role: str
    hosts: tuple[str, ...]
    ips: tuple[str, ...]
    serial: int
    created: datetime
    expires: datetime
    flower_key: str
    revoked: datetime | None = None
    reason: str | None = None

    def status(self, now: datetime | None = None) -> str:
        """valid, expires soon (in less than 30 days), expired or revoked."""
        now = _clock(now)
        if self.revoked is not None:
            return "revoked"
        return (
            "expired"
            if self.expires <= now
            else "expires soon"
            if self.expires - now < SOON
            else "valid"
        )

    def plain(self) -> dict[str, Any]:
        """As JSON keeps it. The serial is text: 160 bits are more than a JSON number may have."""
        times = {
            k: None if (t := getattr(self, k)) is None else t.isoformat()
            for k in ("created", "expires", "revoked")
        }
        return asdict(self) | times | {"serial": f"{self.serial:x}"}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Issued:
        times = {
            k: None if plain[k] is None else datetime.fromisoformat(plain[k])
            for k in ("created", "expires", "revoked")
        }
        return cls(
            **plain
            | times
            | {
                "serial": int(plain["serial"], 16),
                "hosts": tuple(plain["hosts"]),
                "ips": tuple(plain["ips"]),
            }
        )


@dataclass(frozen=True)
class Authority:
    """The federation's CA, without its key."""

    folder: Path
    certificate: x509.Certificate

    @property
    def name(self) -> str:
        return _attribute(self.certificate.subject, x509.NameOID.ORGANIZATION_NAME)

    @property
    def expires(self) -> datetime:
        return self.certificate.not_valid_after_utc

    @classmethod
    def load(cls, folder: Path) -> Authority:
        folder = Path(folder)
        if not (folder / "ca.pem").exists():
            raise InvalidInput(
                f"the folder {str(folder)!r} holds no federation (no ca.pem): make one with"
                " `coterie keys init`."
            )
        return cls(folder, _load_ca(folder / "ca.pem"))

    def key(self) -> ec.EllipticCurvePrivateKey:
        path = self.folder / "ca.key"
        key = _load_key(path)
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self.certificate.public_key()
        ):
            raise InvalidInput(
                f"{path} is not the key of {self.folder / 'ca.pem'}: restore both from the same"
                " copy."
            )
        return key


# --- the operator's side --------------------------------------------------------------------------


def init(folder: Path, name: str, days: int = 3650, *, now: datetime | None = None) -> Authority:
    """Make a federation's CA in a new or empty folder."""
    folder, now = Path(folder), _clock(now)
    _check_name("the federation's name", name)
    expires = _after(now, days)
    with _writable(folder):
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
            subject = _subject(
                (x509.NameOID.ORGANIZATION_NAME, name),
                (x509.NameOID.COMMON_NAME, f"{name[:50]} CA"),
            )
            builder = _builder(
                subject,
                subject,
                key.public_key(),
                key.public_key(),
                x509.random_serial_number(),
                now,
                expires,
            )
            builder = builder.add_extension(
                x509.BasicConstraints(ca=True, path_length=0), critical=True
            )
            builder = builder.add_extension(_usage(authority=True), critical=True)
            ca = Authority(folder, builder.sign(key, hashes.SHA256()))
            (folder / "nodes").mkdir(mode=0o700, exist_ok=True)
            _write(folder / "ca.key", _private_pem(key), 0o600)
            _write_books(folder, [])
            _write(folder / "crl.pem", _revocation_list(ca, key, [], now))
            _write(folder / "ca.pem", ca.certificate.public_bytes(serialization.Encoding.PEM))
    return ca


def issue(
    folder: Path,
    name: str,
    hosts: Sequence[str] = (),
    ips: Sequence[str] = (),
    days: int = 365,
    role: str = "client",
    renew: bool = False,
    *,
    now: datetime | None = None,
) -> Path:
    """Write nodes/NAME: all that the node needs on its machine.

    Without hosts and ips it can be reached as localhost and 127.0.0.1 only.
    """
    folder, now = Path(folder), _clock(now)
    _check_name("the node's name", name)
    if role not in ROLES:
        raise unknown("the role", role, ROLES)
    hosts, ips = tuple(dict.fromkeys(map(_host, hosts))), tuple(dict.fromkeys(map(_ip, ips)))
    if not hosts and not ips:
        hosts, ips = ("localhost",), ("127.0.0.1",)
    ca, expires = Authority.load(folder), _after(now, days)
    if expires > ca.expires:
        left = max(0, (ca.expires - now).days)
        raise InvalidInput(
            f"days is {days}, but the federation's CA itself expires on {ca.expires:%Y-%m-%d}: at"
            f" most {left} days are possible."
        )
    place = folder / "nodes" / name
    with _writable(folder), locked(folder):
        ca_key, books = ca.key(), _books(folder)
        earlier = [i for i in books if i.name == name]
        gone = next((i for i in earlier if i.revoked is not None and i.reason != SUPERSEDED), None)
        if gone is not None:
            raise InvalidInput(
                f"the name {name!r} was revoked on {gone.revoked:%Y-%m-%d} and stays refused, since"
                " peers know each other by name: choose another."
            )
        if (earlier or place.exists()) and not renew:
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
            _openssh(flower.public_key()),
        )
        certificate = _certificate(ca, ca_key, issued, key.public_key())
        # The books come first: a certificate that they do not know could never be revoked.
        books = [
            (
                replace(i, revoked=now, reason=SUPERSEDED)
                if i.name == name and i.revoked is None
                else i
            )
            for i in books
        ]
        _write_books(folder, [*books, issued])
        if earlier:
            _publish(ca, ca_key, books, now)
        _fill(
            place,
            {
                "node.key": (_private_pem(key), 0o600),
                "node.pem": (certificate.public_bytes(serialization.Encoding.PEM), 0o644),
                "flower.key": (_private_pem(flower, serialization.PrivateFormat.OpenSSH), 0o600),
                "flower.pub": (f"{issued.flower_key}\n".encode(), 0o644),
                "ca.pem": ((folder / "ca.pem").read_bytes(), 0o644),
                "crl.pem": ((folder / "crl.pem").read_bytes(), 0o644),
            },
        )
    return place


def revoke(
    folder: Path, name: str, reason: str = "unspecified", *, now: datetime | None = None
) -> Issued:
    """Put a node's certificate on the list and refresh the local copies.

    The other machines need crl.pem from you.

    Revoking again changes nothing but writes the list anew, so an interrupted revocation is
    completed by repeating it.
    """
    folder, now = Path(folder), _clock(now)
    if reason not in REASONS:
        raise unknown("the reason", reason, REASONS)
    ca = Authority.load(folder)
    with _writable(folder), locked(folder):
        books, key = _books(folder), ca.key()
        if name not in {i.name for i in books}:
            raise unknown("the node", name, {i.name for i in books})
        books = [
            replace(i, revoked=now, reason=reason) if i.name == name and i.revoked is None else i
            for i in books
        ]
        _write_books(folder, books)
        _publish(ca, key, books, now)
    return [i for i in books if i.name == name][-1]


def listed(folder: Path) -> list[Issued]:
    """The latest certificate of every name, in order of name."""
    Authority.load(folder)
    latest = {i.name: i for i in _books(Path(folder))}
    return [latest[name] for name in sorted(latest)]


def flower_keys(folder: Path, *, now: datetime | None = None) -> dict[str, str]:
    """name → OpenSSH public key, of the nodes whose certificate is neither revoked nor expired."""
    return {
        i.name: i.flower_key for i in listed(folder) if i.status(now) in ("valid", "expires soon")
    }


def is_refused(folder: Path, name: str, *, now: datetime | None = None) -> bool:
    """True for a name that is revoked, expired or was never issued."""
    return name not in flower_keys(folder, now=now)


# --- a node's side --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """A node's folder, checked. Engines take the paths; nothing secret is kept in memory."""

    folder: Path
    name: str
    role: str
    serial: int
    expires: datetime

    @property
    def certificate(self) -> Path:
        return self.folder / "node.pem"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def crl(self) -> Path:
        return self.folder / "crl.pem"

    @property
    def flower_key(self) -> Path:
        return self.folder / "flower.key"

    @property
    def flower_public_key(self) -> Path:
        return self.folder / "flower.pub"

    def revocations(self, warn: Callable[[str], None] | None = None) -> Revocations:
        return Revocations(self.ca, self.crl, warn)

    @classmethod
    def load(cls, folder: Path, *, now: datetime | None = None) -> Identity:
        """Check all that would otherwise fail later, inside a handshake, with a message that helps
        nobody.
        """
        folder, now = Path(folder).absolute(), _clock(now)
        if missing := [f for f in _NODE_FILES if not (folder / f).is_file()]:
            raise InvalidInput(
                f"the node's folder {str(folder)!r} has no {', '.join(missing)}: carry over the"
                " whole folder that `coterie keys issue` wrote."
            )
        path = folder / "node.pem"
        certificate, ca = load_certificate(path), _load_ca(folder / "ca.pem")
        if _load_key(folder / "node.key").public_key() != certificate.public_key():
            raise InvalidInput(
                f"{folder / 'node.key'} is not the key of {path}: carry over both from the same"
                " `coterie keys issue`."
            )
        if (
            _openssh(_load_key(folder / "flower.key", openssh=True).public_key())
            != _read(folder / "flower.pub").decode(errors="replace").strip()
        ):
            raise InvalidInput(
                f"{folder / 'flower.key'} is not the key of {folder / 'flower.pub'}: carry over"
                " both from the same `coterie keys issue`."
            )
        if not _chains(certificate, ca):
            raise InvalidInput(
                f"{path} was not issued by the CA in {folder / 'ca.pem'}: both must come from the"
                " same federation."
            )
        _check_dates(folder / "ca.pem", ca, now, "the federation needs a new CA")
        name = _attribute(certificate.subject, x509.NameOID.COMMON_NAME)
        _check_dates(
            path,
            certificate,
            now,
            f"ask its operator for a new one (coterie keys issue FOLDER {name} --renew)",
        )
        if Revocations(folder / "ca.pem", folder / "crl.pem").refuses(certificate):
            raise InvalidInput(
                f"{path} of {name!r} is revoked, says {folder / 'crl.pem'}: ask the federation's"
                " operator for another identity."
            )
        role = _attribute(certificate.subject, x509.NameOID.ORGANIZATIONAL_UNIT_NAME)
        return cls(folder, name, role, certificate.serial_number, certificate.not_valid_after_utc)


class Revocations:
    """Who is refused, by a crl.pem that may be replaced at any time; it is read again when the file
    has changed.

    A list that cannot be read, is not signed by the CA or is older than the one in use is not
    taken: the last good one stays, and `warn` is told once. At the start there is no last good one,
    so a bad list is an error.
    """

    def __init__(self, ca: Path, crl: Path, warn: Callable[[str], None] | None = None) -> None:
        self._ca, self._path, self._warn = (
            _load_ca(Path(ca)),
            Path(crl),
            warn or (lambda sentence: None),
        )
        self._stamp: tuple[int, ...] | None = None
        self._number, self._serials, self._names = -1, frozenset[int](), frozenset[str]()
        stamp, data = self._open()
        self._take(data)
        self._stamp = stamp

    def current(self) -> frozenset[int]:
        """The serial numbers that are refused."""
        self._refresh()
        return self._serials

    def revoked_names(self) -> frozenset[str]:
        """The names that are refused.

        A renewed node's name is not among them, though its former serial number is refused.
        """
        self._refresh()
        return self._names

    def refuses(self, who: x509.Certificate | Path | int | str) -> bool:
        """By certificate (or its PEM file), serial number or name.

        A certificate of another CA is always refused; dates are TLS's business.
        """
        if isinstance(who, str):
            return who in self.revoked_names()
        if isinstance(who, int):
            return who in self.current()
        certificate = load_certificate(who) if isinstance(who, Path) else who
        return not _chains(certificate, self._ca) or certificate.serial_number in self.current()

    def _open(self) -> tuple[tuple[int, ...], bytes]:
        try:
            with self._path.open("rb") as f:
                facts = os.fstat(
                    f.fileno()
                )  # of the file that is read, even if another takes its place meanwhile
                return (facts.st_mtime_ns, facts.st_size, facts.st_ino), f.read()
        except OSError as error:
            raise InvalidInput(f"{self._path} cannot be read: {error.strerror or error}.") from None

    def _refresh(self) -> None:
        try:
            facts = self._path.stat()
            stamp: tuple[int, ...] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except OSError:
            stamp = ()
        if stamp == self._stamp:
            return
        self._stamp = stamp  # a bad list is told of once, not every round
        try:
            self._stamp, data = self._open()
            self._take(data)
        except InvalidInput as error:
            self._warn(f"{str(error).rstrip('.')}; the list read before stays in use.")

    def _take(self, data: bytes) -> None:
        """Use a list, or raise and leave everything as it is."""
        try:
            crl = x509.load_pem_x509_crl(data)
            key: Any = self._ca.public_key()
            signed = crl.issuer == self._ca.subject and crl.is_signature_valid(key)
            number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            entries = [(e.serial_number, _reason(e), _node_name(e)) for e in crl]
        except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
            raise InvalidInput(
                f"{self._path} is not a revocation list (X.509 CRL in PEM) as `coterie keys`"
                " writes it."
            ) from None
        if not signed:
            raise InvalidInput(f"{self._path} is not signed by the federation's CA.")
        if number < self._number:
            raise InvalidInput(
                f"{self._path} is list number {number}, older than number {self._number}."
            )
        self._number = number
        self._serials = frozenset(serial for serial, _, _ in entries)
        self._names = frozenset(
            name
            for _, reason, name in entries
            if name and reason is not x509.ReasonFlags.superseded
        )


def load_certificate(path: Path) -> x509.Certificate:
    """A PEM certificate, or one sentence about why not."""
    data = _read(path)
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise InvalidInput(f"{path} is not a certificate in PEM form.") from None


# --- checks ---------------------------------------------------------------------------------------


def _clock(now: datetime | None) -> datetime:
    return (
        (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    )  # certificates know whole seconds


def _after(now: datetime, days: int) -> datetime:
    if not 1 <= days <= 36500:
        raise InvalidInput(f"days is {days}, but must be a whole number from 1 to 36500.")
    return now + timedelta(days=days)


def _check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} is {name!r}, but must be 1 to 63 of a-z, 0-9 and '-', and begin with a letter"
            " or digit."
        )


def _host(host: str) -> str:
    lowered = host.lower()
    if _is_ip(lowered):
        raise InvalidInput(f"host is {host!r}, which is an IP address: give it as --ip.")
    if len(lowered) > 253 or not all(_LABEL.fullmatch(label) for label in lowered.split(".")):
        raise InvalidInput(f"host is {host!r}, but must be a DNS name such as hub.example.org.")
    return lowered


def _ip(ip: str) -> str:
    if not _is_ip(ip):
        raise InvalidInput(
            f"ip is {ip!r}, but must be an IPv4 or IPv6 address; a DNS name is given as --host."
        )
    return str(ipaddress.ip_address(ip))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 address's zone means something on one machine only


def _check_dates(path: Path, certificate: x509.Certificate, now: datetime, remedy: str) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        raise InvalidInput(
            f"{path} is valid only from {start:%Y-%m-%d %H:%M} UTC, and this machine's clock says"
            f" {now:%Y-%m-%d %H:%M}: check the clock."
        )
    if now >= end:
        raise InvalidInput(f"{path} expired on {end:%Y-%m-%d}: {remedy}.")


def _chains(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    found = name.get_attributes_for_oid(oid)
    return str(found[0].value) if found else ""


# --- making certificates and lists ----------------------------------------------------------------


def _subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    expires: datetime,
) -> x509.CertificateBuilder:
    """What a CA's and a node's certificate have in common."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - SKEW)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
        )
    )


def _certificate(
    ca: Authority,
    ca_key: ec.EllipticCurvePrivateKey,
    issued: Issued,
    key: ec.EllipticCurvePublicKey,
) -> x509.Certificate:
    subject = _subject(
        (x509.NameOID.ORGANIZATION_NAME, ca.name),
        (x509.NameOID.ORGANIZATIONAL_UNIT_NAME, issued.role),
        (x509.NameOID.COMMON_NAME, issued.name),
    )
    names: list[x509.GeneralName] = [x509.DNSName(h) for h in issued.hosts]
    names += [x509.IPAddress(ipaddress.ip_address(i)) for i in issued.ips]
    both = [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]  # a peer is called and calls
    return (
        _builder(
            subject,
            ca.certificate.subject,
            key,
            ca_key.public_key(),
            issued.serial,
            issued.created,
            issued.expires,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _revocation_list(
    ca: Authority, key: ec.EllipticCurvePrivateKey, books: Sequence[Issued], now: datetime
) -> bytes:
    revoked = [i for i in books if i.revoked is not None]
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.certificate.subject)
        .last_update(now - SKEW)
        .next_update(max(ca.expires, now))  # an expired CA can still revoke
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .add_extension(
            x509.CRLNumber(len(revoked) + 1), critical=False
        )  # the books never forget, so this grows with every change
    )
    for i in revoked:
        assert i.revoked is not None
        text = i.name.encode()
        entry = x509.RevokedCertificateBuilder().serial_number(i.serial).revocation_date(i.revoked)
        entry = entry.add_extension(
            x509.UnrecognizedExtension(_NODE_NAME, b"\x0c" + bytes([len(text)]) + text),
            critical=False,
        )  # a UTF8String
        flag = (
            x509.ReasonFlags.superseded
            if i.reason == SUPERSEDED
            else REASONS[i.reason or "unspecified"]
        )
        if flag is not x509.ReasonFlags.unspecified:  # RFC 5280: then better left out
            entry = entry.add_extension(x509.CRLReason(flag), critical=False)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _reason(entry: x509.RevokedCertificate) -> x509.ReasonFlags:
    try:
        return entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        return x509.ReasonFlags.unspecified


def _node_name(entry: x509.RevokedCertificate) -> str:
    try:
        value = entry.extensions.get_extension_for_oid(_NODE_NAME).value
    except x509.ExtensionNotFound:
        return ""
    return value.value[2:].decode() if isinstance(value, x509.UnrecognizedExtension) else ""


def _publish(
    ca: Authority, key: ec.EllipticCurvePrivateKey, books: Sequence[Issued], now: datetime
) -> None:
    """crl.pem and its copies in the node folders that lie here."""
    data = _revocation_list(ca, key, books, now)
    _write(ca.folder / "crl.pem", data)
    for copy in sorted(ca.folder.glob("nodes/[a-z0-9]*/crl.pem")):
        _write(copy, data)


# --- files ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"{error.filename or folder} cannot be written: {error.strerror or error}."
        ) from None


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Atomic. mkstemp makes files that only their owner may read, so a secret is never open to
    others, not even for a moment.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fchmod(f.fileno(), mode)
            os.fsync(f.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _fill(place: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """A node's folder at once, so that a key and a certificate that do not belong together never
    lie in it.
    """
    place.parent.mkdir(mode=0o700, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))  # 0700
    former = fresh.with_name(f"{fresh.name}.former")
    try:
        for name, (data, mode) in files.items():
            _write(fresh / name, data, mode)
        if place.exists():
            place.rename(former)
        fresh.rename(place)
        _sync(place.parent)
        if former.exists():
            shutil.rmtree(former)
    except BaseException:
        if former.exists() and not place.exists():
            former.rename(place)
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _books(folder: Path) -> list[Issued]:
    path = folder / "nodes.json"
    data = _read(path)
    try:
        return [Issued.from_plain(i) for i in json.loads(data)["issued"]]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"{path} is damaged: restore it from a copy, since without it nothing can be revoked."
        ) from None


def _write_books(folder: Path, books: Sequence[Issued]) -> None:
    _write(
        folder / "nodes.json",
        (json.dumps({"format": 1, "issued": [i.plain() for i in books]}, indent=2) + "\n").encode(),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}.") from None


def _load_ca(path: Path) -> x509.Certificate:
    ca = load_certificate(path)
    try:
        if ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return ca
    except (x509.ExtensionNotFound, ValueError):
        pass
    raise InvalidInput(f"{path} is a certificate, but not that of a CA.")


def _load_key(path: Path, *, openssh: bool = False) -> Any:
    data = _read(path)
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise InvalidInput(
            f"the private key {path} is open to other users (mode {mode:04o}), but must be its"
            f" owner's alone: chmod 600 {path}."
        )
    try:
        return (
            serialization.load_ssh_private_key if openssh else serialization.load_pem_private_key
        )(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InvalidInput(
            f"{path} is not an unencrypted private key in {'OpenSSH' if openssh else 'PEM'} form."
        ) from None


def _private_pem(
    key: ec.EllipticCurvePrivateKey,
    form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8,
) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _openssh(key: Any) -> str:
    return str(
        key.public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        ).decode()
    )
