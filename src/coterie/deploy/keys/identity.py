"""A node's side: its folder, checked, and who is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.books import SOON
from coterie.deploy.keys.certificates import node_name_of, reason_of
from coterie.deploy.keys.checks import (
    attribute,
    check_dates,
    check_name,
    check_use,
    is_issued_by,
    serves_too,
    whole_seconds,
)
from coterie.deploy.keys.files import (
    load_ca,
    load_certificate,
    load_key,
    openssh_text,
    read_bytes,
    writable,
    write_bytes,
)
from coterie.deploy.keys.library import UnsupportedAlgorithm, x509
from coterie.report.units import days_text

NODE_FILES = ("node.pem", "node.key", "ca.pem", "crl.pem", "flower.key", "flower.pub")
OWN = "own-pki.json"
"""Where certificates are of a public key infrastructure of the user's own: it says the role."""
LARGEST_LIST = 8 << 20
NAMES = "refused-names.txt"
"""Names that are refused besides those of the list, one a line; for lists that have no names."""


@dataclass(frozen=True)
class NodeIdentity:
    """A node's folder, checked. Engines take the paths; nothing secret is kept in memory."""

    folder: Path
    name: str
    role: str
    serial: int
    expires: datetime
    ca_expires: datetime
    serves: bool = True
    """Whether it may be called, and not only call."""

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

    def warning(self, now: datetime | None = None) -> str:
        """A sentence when the certificate, or the CA's, ends within 30 days; else nothing."""
        now = now or datetime.now(UTC)
        for whose, end, remedy in (
            (
                f"the certificate of {self.name!r}",
                self.expires,
                f"ask its operator for a new one (coterie keys issue FOLDER {self.name} --renew)",
            ),
            ("the federation's CA", self.ca_expires, "its operator has to make new keys for all"),
        ):
            if end - now < SOON:
                when = days_text((end - now).total_seconds())
                return f"{whose} ends {when} ({end:%Y-%m-%d %H:%M} UTC): {remedy}."
        return ""

    def revocations(self, warn: Callable[[str], None] | None = None) -> Revocations:
        return Revocations(self.ca, self.crl, warn, needed=not (self.folder / OWN).is_file())

    @classmethod
    def load(cls, folder: Path, *, now: datetime | None = None) -> NodeIdentity:
        """Check all that would otherwise fail later, inside a handshake, with a message that helps
        nobody.
        """
        folder, now = Path(folder).absolute(), whole_seconds(now)
        own = (folder / OWN).is_file()
        needed = NODE_FILES[:3] if own else NODE_FILES
        if missing := [f for f in needed if not (folder / f).is_file()]:
            raise InvalidInput(
                f"the node's folder {str(folder)!r} has no {', '.join(missing)}: carry over the"
                f" whole folder that `coterie keys {'import' if own else 'issue'}` wrote."
            )
        path = folder / "node.pem"
        certificate, ca = load_certificate(path), load_ca(folder / "ca.pem")
        if load_key(folder / "node.key").public_key() != certificate.public_key():
            raise InvalidInput(
                f"{folder / 'node.key'} is not the key of {path}: carry over both from the same"
                " `coterie keys issue`."
            )
        if (
            not own
            and openssh_text(load_key(folder / "flower.key", openssh=True).public_key())
            != read_bytes(folder / "flower.pub").decode(errors="replace").strip()
        ):
            raise InvalidInput(
                f"{folder / 'flower.key'} is not the key of {folder / 'flower.pub'}: carry over"
                " both from the same `coterie keys issue`."
            )
        if not is_issued_by(certificate, ca):
            raise InvalidInput(
                f"{path} was not issued by the CA in {folder / 'ca.pem'}: both must come from the"
                " same federation."
            )
        check_dates(folder / "ca.pem", ca, now, "the federation needs a new CA")
        name = attribute(certificate.subject, x509.NameOID.COMMON_NAME)
        check_dates(
            path,
            certificate,
            now,
            f"ask its operator for a new one (coterie keys issue FOLDER {name} --renew)",
        )
        listed = Revocations(folder / "ca.pem", folder / "crl.pem", needed=not own)
        if listed.refuses(certificate):
            raise InvalidInput(
                f"{path} of {name!r} is revoked, says {folder / 'crl.pem'}: ask the federation's"
                " operator for another identity."
            )
        unit = attribute(certificate.subject, x509.NameOID.ORGANIZATIONAL_UNIT_NAME)
        role = own_role(folder / OWN) if own else unit
        check_name(f"the common name in {path}", name)
        check_use(path, certificate, role)
        ends = certificate.not_valid_after_utc, ca.not_valid_after_utc
        serves = serves_too(certificate)
        return cls(folder, name, role, certificate.serial_number, *ends, serves)


def own_role(path: Path) -> str:
    """What the certificate in a folder of `coterie keys import` is used for."""
    try:
        role = json.loads(read_bytes(path))["role"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{path} is damaged: repeat `coterie keys import`.") from None
    return str(role)


def newer_list(given: bytes, there: Path) -> bytes:
    """Of two revocation lists the one with the larger number; `there` need not be there."""
    try:
        here = there.read_bytes()
        return here if _number(here) > _number(given) else given
    except (OSError, ValueError, x509.ExtensionNotFound):
        return given


def is_later(there: Path, given: bytes) -> bool:
    """Whether the certificate in a file was issued to the same node after the one that is given."""
    try:
        mine, theirs = load_certificate(there), x509.load_pem_x509_certificate(given)
    except ValueError:  # InvalidInput is one
        return False
    same = (mine.subject, mine.issuer) == (theirs.subject, theirs.issuer)
    return same and mine.not_valid_before_utc > theirs.not_valid_before_utc


def _number(data: bytes) -> int:
    crl = x509.load_pem_x509_crl(data)
    return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


class Revocations:
    """Who is refused, by a crl.pem that may be replaced at any time; it is read again when the file
    has changed.

    A list that cannot be read, is not signed by the CA or is older than the one in use is not
    taken: the last good one stays, and `warn` is told once. At the start there is no last good one,
    so a bad list is an error.
    """

    def __init__(
        self,
        ca: Path,
        crl: Path,
        warn: Callable[[str], None] | None = None,
        *,
        needed: bool = True,
    ) -> None:
        self._ca, self._path, self._warn = (
            load_ca(Path(ca)),
            Path(crl),
            warn or (lambda sentence: None),
        )
        self._stamp: tuple[int, ...] | None = None
        self._number, self._serials, self._names = -1, frozenset[int](), frozenset[str]()
        self._superseded, self._data = frozenset[int](), b""
        if needed or self._path.is_file():
            stamp, data = self._open()
            self._take(data)
            self._stamp = stamp
        else:
            self._stamp = ()

    def current(self) -> frozenset[int]:
        """The serial numbers that are refused."""
        self._refresh()
        return self._serials

    def superseded(self) -> frozenset[int]:
        """Those of them that were replaced by renewed ones, and for no other reason."""
        self._refresh()
        return self._superseded

    def newest(self) -> tuple[int, bytes]:
        """The number of the list in use, and the list."""
        self._refresh()
        return self._number, self._data

    def offer(self, data: bytes) -> bool:
        """Take a list that somebody passes on, and put it in the file's place, if the CA has signed
        it and it is newer; True when it was taken. Raises InvalidInput when it is no such list.
        """
        if len(data) > LARGEST_LIST:
            raise InvalidInput(f"a list of the revoked has {len(data)} bytes, which is too many.")
        before = self.newest()[0]
        self._take(data)
        if self._number == before:
            return False
        with writable(self._path.parent):
            write_bytes(self._path, data)
        return True

    def revoked_names(self) -> frozenset[str]:
        """The names that are refused.

        A renewed node's name is not among them, though its former serial number is refused.
        """
        self._refresh()
        return self._names | self._more_names()

    def _more_names(self) -> frozenset[str]:
        try:
            text = self._path.with_name(NAMES).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return frozenset()
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        return frozenset(line for line in lines if line)

    def refuses(self, who: x509.Certificate | Path | int | str) -> bool:
        """By certificate (or its PEM file), serial number or name.

        A certificate of another CA is always refused; dates are TLS's business.
        """
        if isinstance(who, str):
            return who in self.revoked_names()
        if isinstance(who, int):
            return who in self.current()
        certificate = load_certificate(who) if isinstance(who, Path) else who
        return (
            not is_issued_by(certificate, self._ca) or certificate.serial_number in self.current()
        )

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
            entries = [(e.serial_number, reason_of(e), node_name_of(e)) for e in crl]
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
        self._number, self._data = number, data
        self._serials = frozenset(serial for serial, _, _ in entries)
        replaced = x509.ReasonFlags.superseded
        self._superseded = frozenset(serial for serial, why, _ in entries if why is replaced)
        self._names = frozenset(
            name for _, reason, name in entries if name and reason is not replaced
        )
