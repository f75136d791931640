"""A star: participants with one link each, to the hub's gate, which carries messages between the
process that runs a plan (`coterie hub run`) and its clients.

Keys, for a plan `P` and a client k:

    coterie/P/k/ask/_hub   where the hub asks k, who answers
    coterie/P/_hub/to/k    what the hub tells k: that the run is over
    coterie/P/k/live       there while k is
    coterie/P/_hub/live    there while the plan is run

The gate (`coterie hub up`) listens, with TLS and certificates on both sides. Its access control
refuses everything but these keys, each in one direction and for one certificate name: only who has
the hub's certificate asks, and k alone answers as k. Clients see neither each other nor what others
are asked. Who is revoked is left out, and the gate opens anew.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

from coterie.core.errors import CoterieError, InvalidInput
from coterie.deploy.zenoh.address import RETRY, allowed, common, transport

HUB = "_hub"
"""What the hub is called in keys; no name of a participant begins so."""
MARGIN = 1 << 20
"""Bytes that a message may have beyond its frames: the envelope, and what is worth being rejected
by name rather than thrown away unseen.
"""
HANDSHAKE_MS = 5000
"""Who has not shown a certificate after so long is hung up on."""
CONNECT_MS = 1500
"""How long a participant tries to connect before it says that it cannot."""
_PLACE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:/\s\[\]]+):(\d{1,5})")


class Unreachable(CoterieError):
    """The hub's gate does not answer, or does not let this participant in."""

    exit_code = 4


def endpoint(place: str, what: str) -> str:
    """`host:port` as Zenoh writes it. Raises InvalidInput; `what` names the field."""
    found = _PLACE.fullmatch(place)
    if found is None or not 0 < int(found[2]) < 65536:
        raise InvalidInput(f"{what} is {place!r}, but must be like hub.example.org:9092.")
    return f"tls/{place}"


def key(plan: str, *parts: str) -> str:
    return "/".join(("coterie", plan, *parts))


@dataclasses.dataclass(frozen=True)
class Spoke:
    """Where a client stands in a star, or the process that runs the plan (whose name is HUB)."""

    plan: str
    name: str
    place: str
    """host:port of the gate."""
    neighbours: Collection[str]
    identity: Any
    listen: str = ""
    inside: str = ""
    """host:port by which the process that runs the plan reaches the gate without its door."""

    @property
    def tells(self) -> bool:
        return self.name == HUB

    @property
    def hears(self) -> bool:
        return self.name != HUB

    @property
    def answers(self) -> bool:
        return self.name != HUB

    def key(self, *parts: str) -> str:
        return key(self.plan, *parts)

    def config(self, largest: int) -> dict[str, Any]:
        """Of the Zenoh session.

        The process that runs a plan calls the gate on its own machine, by an address that the
        hub's certificate need not name.
        """
        return common() | {
            "mode": "client",
            "connect": {
                "endpoints": [endpoint(p, "hub") for p in (self.inside, self.place) if p],
                "timeout_ms": CONNECT_MS,
                "exit_on_failure": True,
                "retry": RETRY,
            },
            "transport": transport(self.identity, largest + MARGIN, by_name=self.name != HUB),
        }

    def unopened(self, reason: str) -> CoterieError:
        return Unreachable(f"the hub at {self.place} cannot be reached: {reason}.")


@dataclasses.dataclass(frozen=True)
class Enrolled:
    """What a gate knows of a plan."""

    clients: tuple[str, ...]
    largest: int
    """Bytes of its largest message, without the envelope: all that is in it follows from the plan.
    """


def gate(identity: Any, listen: str, plans: Mapping[str, Enrolled]) -> dict[str, Any]:
    """The configuration of the gate's session, for these plans.

    Before a certificate is shown nothing is read but the handshake, for as long as that may take.
    After it, a link holds no more than a message that a plan allows; and no plan's message may be
    larger than its own.
    """
    largest = max((one.largest for one in plans.values()), default=0)
    clients = sum(len(one.clients) for one in plans.values())
    limits = {
        "accept_timeout": HANDSHAKE_MS,
        "max_sessions": 256 + 4 * clients,
    }
    return common() | {
        "mode": "router",
        "listen": {
            "endpoints": [f"{listen}#tls_handshake_timeout_ms={HANDSHAKE_MS}"],
            "exit_on_failure": True,
        },
        "connect": {"endpoints": []},
        "transport": transport(identity, largest + MARGIN) | {"unicast": limits},
        "low_pass_filter": [
            {
                "id": plan,
                "flows": ["ingress"],
                "messages": ["put", "delete", "query", "reply"],
                "key_exprs": [key(plan, "**")],
                "size_limit": one.largest + MARGIN,
            }
            for plan, one in plans.items()
        ],
        "access_control": access(identity.name, plans),
    }


def access(hub: str, plans: Mapping[str, Enrolled]) -> dict[str, Any]:
    """Default deny; what may come from everybody, and what may go to them."""
    rules: dict[str, list[dict[str, Any]]] = {hub: []}
    watch = ["liveliness_query", "declare_liveliness_subscriber"]
    for plan, one in plans.items():
        asks = {k: key(plan, k, "ask", HUB) for k in one.clients}
        tells = {k: key(plan, HUB, "to", k) for k in one.clients}
        lives, here = {k: key(plan, k, "live") for k in one.clients}, key(plan, HUB, "live")
        all_asks, all_tells, all_lives = ([*some.values()] for some in (asks, tells, lives))
        of = f"{plan} {HUB}"
        rules[hub] += [
            allowed("ingress", ["query"], all_asks, of),
            allowed("ingress", ["put"], all_tells, of),
            allowed("ingress", ["liveliness_token"], [here], of),
            allowed("ingress", watch, all_lives, of),
            allowed("egress", ["reply", "declare_queryable"], all_asks, of),
            allowed("egress", ["declare_subscriber"], all_tells, of),
            allowed("egress", ["liveliness_token"], all_lives, of),
        ]
        for k in one.clients:
            of = f"{plan} {k}"
            rules.setdefault(k, []).extend(
                [
                    allowed("ingress", ["reply", "declare_queryable"], [asks[k]], of),
                    allowed("ingress", ["declare_subscriber"], [tells[k]], of),
                    allowed("ingress", ["liveliness_token"], [lives[k]], of),
                    allowed("ingress", watch, [here], of),
                    allowed("egress", ["query"], [asks[k]], of),
                    allowed("egress", ["put"], [tells[k]], of),
                    allowed("egress", ["liveliness_token"], [here], of),
                ]
            )
    rules = {name: some for name, some in rules.items() if some}
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [rule for some in rules.values() for rule in some],
        "subjects": [{"id": name, "cert_common_names": [name]} for name in rules],
        "policies": [
            {"rules": [rule["id"] for rule in some], "subjects": [name]}
            for name, some in rules.items()
        ],
    }
