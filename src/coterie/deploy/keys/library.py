"""What is used of the package cryptography; a sentence says what to install when it is missing."""

from __future__ import annotations

from coterie.core.errors import InvalidInput

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError:  # only real federations need it
    raise InvalidInput(
        "keys and certificates need the package cryptography: pip install 'coterie[deploy]'."
    ) from None

__all__ = [
    "ExtendedKeyUsageOID",
    "InvalidSignature",
    "UnsupportedAlgorithm",
    "ec",
    "hashes",
    "serialization",
    "x509",
]
