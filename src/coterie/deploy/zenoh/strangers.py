"""Who may come through a hub's door, by address: certificates are shown behind it.

Zenoh (1.10) accepts nobody for 0.1 s after each handshake that fails, so that strangers who fail
often keep everybody out. Here an address that fails is in debt. Debts are forgiven with time, and
an address whose debt is too large is not let in until then. An address from which somebody has
shown a certificate is known; those that are not share a debt of their own, so that many of them
together cannot do what one may not. And no certificate has all the connections.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections import Counter, OrderedDict

FAILURES, FORGIVEN = 20.0, 1.0
"""Handshakes that may fail at one address, and how many are forgiven a second."""
TOGETHER, FORGIVEN_TOGETHER = 40.0, 2.0
"""The same for all addresses that are not known."""
KNOWN, FORGIVEN_KNOWN = 100.0, 4.0
"""The same for an address that is known: where a hub has too much to do, honest clients give up and
call again.
"""
AT_ONCE = 48
"""Handshakes that may be under way from a known address, and from all others together: Zenoh has
100 at once.
"""
REMEMBERED = 4096
"""Addresses; those that were heard of longest ago are forgotten first."""


def whose(host: str) -> str:
    """The address, or the network of an IPv6 address: one machine has all of a /64.

    >>> whose("::ffff:192.0.2.7"), whose("2001:db8::1") == whose("2001:db8::2")
    ('192.0.2.7', True)
    """
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


@dataclasses.dataclass
class Debt:
    """Grows with every failure, shrinks with time."""

    most: float
    forgiven: float
    size: float = 0.0
    at: float = 0.0

    def now(self, now: float) -> float:
        self.size = max(0.0, self.size - self.forgiven * (now - self.at))
        self.at = now
        return self.size

    def grow(self, now: float) -> None:
        self.size = self.now(now) + 1.0

    def too_large(self, now: float) -> bool:
        return self.now(now) >= self.most


@dataclasses.dataclass
class Caller:
    """An address."""

    debt: Debt
    connections: int = 0
    unproven: int = 0
    """Those of them that have not shown a certificate yet."""
    known: bool = False
    told: float = float("-inf")
    """When it was last said that it is kept waiting."""


class Strangers:
    """Keeps count. Nothing here knows of sockets or clocks."""

    def __init__(self) -> None:
        self.with_one = AT_ONCE
        """The most connections with one certificate."""
        self.refused = Counter[str]()
        self._together = Debt(TOGETHER, FORGIVEN_TOGETHER)
        self._unproven = 0
        """Handshakes under way from addresses that are not known."""
        self._callers: OrderedDict[str, Caller] = OrderedDict()
        self._names = Counter[str]()

    def caller(self, address: str, now: float) -> Caller:
        found = self._callers.setdefault(address, Caller(Debt(FAILURES, FORGIVEN, at=now)))
        self._callers.move_to_end(address)
        if len(self._callers) > REMEMBERED:
            for name, one in self._callers.items():
                if not one.connections:
                    del self._callers[name]
                    break
        return found

    def refuses(self, address: str, now: float) -> str:
        """Why nobody is let in from there now; nothing: come in."""
        found = self.caller(address, now)
        if found.debt.too_large(now):
            return "too many failures"
        if (found.unproven if found.known else self._unproven) >= AT_ONCE:
            return "too many handshakes at once"
        if not found.known and self._together.too_large(now):
            return "too many failures of strangers"
        return ""

    def enters(self, address: str, now: float) -> None:
        found = self.caller(address, now)
        found.connections += 1
        self._count(found, 1)

    def shows(self, address: str, name: str, now: float) -> bool:
        """A caller has shown the certificate of `name`; False: there are enough with it."""
        found = self.caller(address, now)
        self._count(found, -1)
        if not found.known:
            self._unproven -= found.unproven
            found.known = True
            found.debt = dataclasses.replace(found.debt, most=KNOWN, forgiven=FORGIVEN_KNOWN)
        self._names[name] += 1
        return self._names[name] <= self.with_one

    def leaves(self, address: str, name: str | None, now: float, *, failed: bool = True) -> None:
        """A caller is gone, with the name that it has shown, if any; `failed`: it is to blame where
        it has shown none.
        """
        found = self.caller(address, now)
        found.connections -= 1
        if name is not None:
            self._names[name] -= 1
            return
        self._count(found, -1)
        if failed:
            found.debt.grow(now)
            if not found.known:
                self._together.grow(now)

    def _count(self, caller: Caller, more: int) -> None:
        caller.unproven += more
        if not caller.known:
            self._unproven += more

    def tell(self, who: str, now: float, every: float = 60.0) -> bool:
        """Whether it is time to say that an address is kept waiting."""
        found = self.caller(who, now)
        if now - found.told < every:
            return False
        found.told = now
        return True
