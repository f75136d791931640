"""A participant's address in a Zenoh network, and the session's configuration: links to its
neighbours and to nobody else.

Keys, for a plan `P` and participants k and l:

    coterie/P/k/to/l       what k tells l
    coterie/P/k/ask/l      where l asks k, who answers
    coterie/P/k/live       there while k is

Links are TLS with certificates on both sides. Access control refuses everything but these keys,
each in one direction and for one certificate name: so who tells and who asks is known by its
certificate, and a neighbour that writes under another's key is ignored. Zenoh knows no revocation
lists: who is revoked is left out when a session opens, and what it says later is not looked at.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from coterie.core.errors import CoterieError, InvalidInput
from coterie.core.hosts import is_here
from coterie.deploy.plan import NAME

LEASE_MS = 10_000
"""A link that is silent for so long is closed; a process that is stopped is noticed then."""
KEEP_ALIVE = 2
"""How often a link says in that time that it stands, when there is nothing else to say. Links are
TCP, which loses nothing; Zenoh's own 4 would double what participants send that talk rarely.
"""
SMALLEST_LIMIT = 64 << 20
"""Peers also pass on what they know of others, which no plan says the size of."""
_ENDPOINT = re.compile(r"(tls|tcp)/(\[[0-9a-fA-F:.]+\]|[^:/\s]+):(\d{1,5})")


def transport(identity: Any, limit: int, *, by_name: bool = True) -> dict[str, Any]:
    """Links of a session. What has more bytes than `limit` is thrown away piece by piece as it
    comes; by_name: whoever is called must have a certificate for the host that is called.
    """
    link: dict[str, Any] = {
        "protocols": ["tcp" if identity is None else "tls"],
        "tx": {"lease": LEASE_MS, "keep_alive": KEEP_ALIVE},
        "rx": {"max_message_size": limit},
    }
    if identity is not None:
        mine = {"private_key": str(identity.key), "certificate": str(identity.certificate)}
        link["tls"] = {
            f"{side}_{what}": path for side in ("listen", "connect") for what, path in mine.items()
        } | {
            "root_ca_certificate": str(identity.ca),
            "enable_mtls": True,
            "verify_name_on_connect": by_name,
            "close_link_on_expiration": True,
        }
    return {"link": link, "shared_memory": {"enabled": False}}


def common(discovers: bool = False) -> dict[str, Any]:
    """What all sessions have: nobody is looked for, nothing is shown."""
    return {
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": discovers}},
        "adminspace": {"enabled": False},
    }


def allowed(
    flow: Literal["ingress", "egress"], kinds: list[str], keys: list[str], of: str
) -> dict[str, Any]:
    """A rule of access control, with a name of its own: `of` says whose it is."""
    return {
        "id": f"{of} {flow} {' '.join(kinds)}",
        "permission": "allow",
        "flows": [flow],
        "messages": kinds,
        "key_exprs": keys,
    }


RETRY = {"period_init_ms": 200, "period_max_ms": 2000, "period_increase_factor": 1.5}


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a participant stands: its name, what it listens on, and its neighbours' endpoints (""
    for those that call).
    """

    plan: str
    name: str
    listen: str
    neighbours: Mapping[str, str]
    identity: Any = None
    """coterie.deploy.keys.authority.Identity; nothing: plain TCP, which is allowed on this machine
    only.
    """
    discovers: bool = False
    """Whether it may hear from those it calls where the others are, and call them."""
    tells: ClassVar[bool] = True
    """Whether it sends its neighbours messages; whether it hears theirs; whether they may ask it.
    """
    hears: ClassVar[bool] = True
    answers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in (self.name, *self.neighbours):
            if not NAME.fullmatch(name):
                raise InvalidInput(
                    f"the name {name!r} must be lower-case letters, digits and dashes, at most 63."
                )
        if not self.neighbours:
            raise InvalidInput("there are no [[neighbours]], so there is nobody to talk to.")
        if self.identity is not None and self.identity.name != self.name:
            raise InvalidInput(
                f"the keys are of {self.identity.name!r}, but this is {self.name!r}; a certificate"
                " is for one name."
            )
        if self.listen and self.identity is not None and not self.identity.serves:
            raise InvalidInput(
                f"listen is {self.listen!r}, but the keys of {self.name!r} are for calling only:"
                " peers that listen need keys issued with --role peer."
            )
        if not self.listen and not any(self.neighbours.values()):
            raise InvalidInput(
                "nothing is given to listen on, and no neighbour has an endpoint: nobody could"
                " meet."
            )
        for endpoint in (self.listen, *self.neighbours.values()):
            if endpoint:
                self._check(endpoint)

    def _check(self, endpoint: str) -> None:
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None or not 0 < int(found[3]) < 65536:
            raise InvalidInput(
                f"an endpoint is {endpoint!r}, but must be of the form tls/host:port."
            )
        if self.identity is not None and found[1] != "tls":
            raise InvalidInput(
                f"an endpoint is {endpoint!r}, but with keys all endpoints must be tls/…."
            )
        if self.identity is None and not (found[1] == "tcp" and is_here(found[2])):
            raise InvalidInput(
                f"an endpoint is {endpoint!r}, but without keys only tcp/127.0.0.1:port is allowed;"
                " make keys with `coterie keys`."
            )

    def unopened(self, reason: str) -> CoterieError:
        """What is said when the session cannot be opened."""
        return InvalidInput(
            f"cannot open the network (listening on {self.listen or 'nothing'}): {reason}."
        )

    def key(self, *parts: str) -> str:
        return "/".join(("coterie", self.plan, *parts))

    def config(self, largest: int) -> dict[str, Any]:
        """Of the Zenoh session. `largest` is the size of the largest message that is ever sent."""
        calls = [endpoint for endpoint in self.neighbours.values() if endpoint]
        return common(self.discovers) | {
            "mode": "peer",
            "listen": {"endpoints": [self.listen] if self.listen else [], "exit_on_failure": True},
            "connect": {
                "endpoints": calls,
                "timeout_ms": -1,
                "exit_on_failure": False,
                "retry": RETRY,
            },
            "transport": transport(self.identity, max(SMALLEST_LIMIT, 4 * largest)),
            "access_control": self.access(),
        }

    def access(self) -> dict[str, Any]:
        """Default deny; for every neighbour what may come from it and what may go to it."""
        if self.identity is None:
            return {"enabled": False}
        rules, subjects, policies = [], [], []
        for name in self.neighbours:
            flows: tuple[tuple[Literal["ingress", "egress"], str, str], ...] = (
                ("ingress", name, self.name),
                ("egress", self.name, name),
            )
            subjects.append({"id": name, "cert_common_names": [name]})
            mine = []
            for flow, sender, receiver in flows:
                may = {
                    self.key(sender, "to", receiver): ["put"],
                    self.key(receiver, "to", sender): ["declare_subscriber"],
                    self.key(receiver, "ask", sender): ["query"],
                    self.key(sender, "ask", receiver): ["reply", "declare_queryable"],
                    self.key(sender, "live"): ["liveliness_token"],
                    self.key(receiver, "live"): [
                        "liveliness_query",
                        "declare_liveliness_subscriber",
                    ],
                }
                mine += [allowed(flow, kinds, [key], name) for key, kinds in may.items()]
            rules += mine
            ids = [rule["id"] for rule in mine]
            policies.append({"rules": ids, "subjects": [name]})
        return {
            "enabled": True,
            "default_permission": "deny",
            "rules": rules,
            "subjects": subjects,
            "policies": policies,
        }
