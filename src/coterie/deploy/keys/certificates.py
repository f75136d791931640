"""Certificates and revocation lists: how they are made and read.

A revocation list is a plain X.509 list of serials; each entry also carries the node's name in a
non-critical extension, since Zenoh tells only names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.books import SUPERSEDED, Issued
from coterie.deploy.keys.checks import attribute
from coterie.deploy.keys.files import load_ca, load_key
from coterie.deploy.keys.library import ExtendedKeyUsageOID, ec, hashes, serialization, x509

REASONS = {
    "unspecified": x509.ReasonFlags.unspecified,
    "key-compromise": x509.ReasonFlags.key_compromise,
    "affiliation-changed": x509.ReasonFlags.affiliation_changed,
    "cessation-of-operation": x509.ReasonFlags.cessation_of_operation,
    "privilege-withdrawn": x509.ReasonFlags.privilege_withdrawn,
}
SKEW = timedelta(
    minutes=5
)  # clocks of machines differ: what is issued now is valid from a little earlier
# An object identifier under 2.25 needs no registration: it is uuid5(NAMESPACE_DNS, "coterie").
NODE_NAME = x509.ObjectIdentifier("2.25.340278507768786904968122215150803977275")


@dataclass(frozen=True)
class Authority:
    """The federation's CA, without its key."""

    folder: Path
    certificate: x509.Certificate

    @property
    def name(self) -> str:
        return attribute(self.certificate.subject, x509.NameOID.ORGANIZATION_NAME)

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
        return cls(folder, load_ca(folder / "ca.pem"))

    def key(self) -> ec.EllipticCurvePrivateKey:
        path = self.folder / "ca.key"
        key = load_key(path)
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != self.certificate.public_key()
        ):
            raise InvalidInput(
                f"{path} is not the key of {self.folder / 'ca.pem'}: restore both from the same"
                " copy."
            )
        return key


def subject_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def usage(*, authority: bool) -> x509.KeyUsage:
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


def new_certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    *,
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


def signed_certificate(
    ca: Authority,
    ca_key: ec.EllipticCurvePrivateKey,
    issued: Issued,
    key: ec.EllipticCurvePublicKey,
) -> x509.Certificate:
    subject = subject_of(
        (x509.NameOID.ORGANIZATION_NAME, ca.name),
        (x509.NameOID.ORGANIZATIONAL_UNIT_NAME, issued.role),
        (x509.NameOID.COMMON_NAME, issued.name),
    )
    names: list[x509.GeneralName] = [x509.DNSName(h) for h in issued.hosts]
    names += [x509.IPAddress(ipaddress.ip_address(i)) for i in issued.ips]
    # A client only calls: with its keys nobody can pass for a hub. The others are called and call.
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if issued.role != "client":
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, *uses]
    return (
        new_certificate(
            subject,
            ca.certificate.subject,
            key,
            ca_key.public_key(),
            serial=issued.serial,
            now=issued.created,
            expires=issued.expires,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def signed_list(
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
            x509.UnrecognizedExtension(NODE_NAME, b"\x0c" + bytes([len(text)]) + text),
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


def reason_of(entry: x509.RevokedCertificate) -> x509.ReasonFlags:
    try:
        return entry.extensions.get_extension_for_class(x509.CRLReason).value.reason
    except x509.ExtensionNotFound:
        return x509.ReasonFlags.unspecified


def node_name_of(entry: x509.RevokedCertificate) -> str:
    try:
        value = entry.extensions.get_extension_for_oid(NODE_NAME).value
    except x509.ExtensionNotFound:
        return ""
    return value.value[2:].decode() if isinstance(value, x509.UnrecognizedExtension) else ""
