"""Why a hub's gate does not let a participant in: found out by a handshake of one's own, since what
Zenoh tells of its own helps nobody.
"""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime
from typing import Any

PATIENCE = 3.0
NOT_YET, EXPIRED, OTHER_HOST, OTHER_IP = 9, 10, 62, 64
"""OpenSSL's numbers for what is wrong with a certificate."""


def why_not(place: str, identity: Any, *, by_name: bool = True) -> str:
    """What is wrong between this participant and the gate at host:port, as half a sentence."""
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    try:
        raw = socket.create_connection((host, int(port)), PATIENCE)
    except OSError as error:
        return f"the hub at {place} cannot be reached ({error.strerror or error})"
    clock = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    with raw:
        raw.settimeout(PATIENCE)
        try:
            _shake_hands(raw, host, identity, by_name)
        except ssl.SSLCertVerificationError as error:
            return f"the hub at {place} is not let in here: {_wrong(error, clock)}"
        except ssl.SSLError as error:
            if "INTERNAL_ERROR" in str(error.reason or ""):  # its door (door.py)
                return (
                    f"the hub at {place} lets nobody in from this address for now: too many callers"
                    " were there at once, or failed"
                )
            return f"the hub at {place} lets nobody in with these keys: {_refused(error, clock)}"
        except TimeoutError:
            return (
                f"the hub at {place} cannot be reached: something takes its bytes there and answers"
                " nothing (a line that is cut, or a gate that strangers keep busy)"
            )
        except OSError as error:
            return f"the hub at {place} hangs up ({error.strerror or error})"
    return f"the hub at {place} would let these keys in, but has not answered in time"


def _shake_hands(raw: socket.socket, host: str, identity: Any, by_name: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = by_name
    context.load_verify_locations(identity.ca)
    context.load_cert_chain(identity.certificate, identity.key)
    with context.wrap_socket(raw, server_hostname=host) as link:
        try:
            link.recv(1)  # what the other side thinks of our certificate comes after the handshake
        except TimeoutError:  # nothing
            return


def _wrong(error: ssl.SSLCertVerificationError, clock: str) -> str:
    """With the hub's certificate."""
    if error.verify_code == NOT_YET:
        return (
            f"its certificate is not valid yet by this machine's clock ({clock}): check the clock"
        )
    if error.verify_code == EXPIRED:
        return (
            f"its certificate has expired by the clock here ({clock}): check the clock, or"
            " the hub needs a new one"
        )
    if error.verify_code in (OTHER_HOST, OTHER_IP):
        return "its certificate is for another host than the one that is called"
    return "its certificate is of another federation"


def _refused(error: ssl.SSLError, clock: str) -> str:
    """What the gate says of this participant's certificate."""
    reason = str(error.reason or "")
    if "EXPIRED" in reason:
        return (
            f"it finds them expired or not valid yet, but by the clock here ({clock}) they are"
            " valid: one of the two clocks is wrong"
        )
    return "they are of another federation, or revoked"
