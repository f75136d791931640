"""What names, hosts, addresses, days and dates must be."""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.library import ExtendedKeyUsageOID, InvalidSignature, x509

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def whole_seconds(now: datetime | None) -> datetime:
    return (
        (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
    )  # certificates know whole seconds


def after(now: datetime, days: int) -> datetime:
    if not 1 <= days <= 36500:
        raise InvalidInput(f"days is {days}, but must be a whole number from 1 to 36500.")
    return now + timedelta(days=days)


def check_name(what: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} is {name!r}, but must be 1 to 63 of a-z, 0-9 and '-', and begin with a letter"
            " or digit."
        )


def checked_host(host: str) -> str:
    lowered = host.lower()
    if is_ip(lowered):
        raise InvalidInput(f"host is {host!r}, which is an IP address: give it as --ip.")
    if len(lowered) > 253 or not all(_LABEL.fullmatch(label) for label in lowered.split(".")):
        raise InvalidInput(f"host is {host!r}, but must be a DNS name such as hub.example.org.")
    return lowered


def checked_ip(ip: str) -> str:
    if not is_ip(ip):
        raise InvalidInput(
            f"ip is {ip!r}, but must be an IPv4 or IPv6 address; a DNS name is given as --host."
        )
    return str(ipaddress.ip_address(ip))


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 address's zone means something on one machine only


def check_dates(path: Path, certificate: x509.Certificate, now: datetime, remedy: str) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        raise InvalidInput(
            f"{path} is valid only from {start:%Y-%m-%d %H:%M} UTC, and this machine's clock says"
            f" {now:%Y-%m-%d %H:%M}: check the clock."
        )
    if now >= end:
        raise InvalidInput(f"{path} expired on {end:%Y-%m-%d}: {remedy}.")


def _uses(certificate: x509.Certificate) -> set[str]:
    known = {
        ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth",
        ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth",
    }
    try:
        listed = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return set(known.values())
    return {name for use, name in known.items() if use in listed}


def serves_too(certificate: x509.Certificate) -> bool:
    """Whether it is for being called as well as for calling."""
    return "serverAuth" in _uses(certificate)


def check_use(path: Path, certificate: x509.Certificate, role: str) -> None:
    """What a certificate says that it is for must be what its holder does: a client calls; a hub
    and a peer are called as well. What says nothing is for everything.
    """
    uses, found = _uses(certificate), certificate.extensions
    needed = ("clientAuth",) if role == "client" else ("serverAuth", "clientAuth")
    if lacking := [use for use in needed if use not in uses]:
        raise InvalidInput(
            f"{path} is not for {' and '.join(lacking)} (extended key usage), which a {role} needs."
        )
    try:
        signs = found.get_extension_for_class(x509.KeyUsage).value.digital_signature
    except x509.ExtensionNotFound:
        signs = True
    if not signs:
        raise InvalidInput(f"{path} is not for signatures (key usage), which TLS needs.")


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def attribute(name: x509.Name, oid: x509.ObjectIdentifier) -> str:
    found = name.get_attributes_for_oid(oid)
    return str(found[0].value) if found else ""
