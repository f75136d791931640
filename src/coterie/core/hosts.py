"""Which hosts are this machine."""

from __future__ import annotations

import ipaddress


def is_here(host: str) -> bool:
    """Whether what is sent to this host stays on this machine.

    >>> is_here("localhost"), is_here("127.0.0.2"), is_here("[::1]"), is_here("10.0.0.1")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
