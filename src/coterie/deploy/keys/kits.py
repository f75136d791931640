"""The operator's side of join kits: keys for everybody in a plan, and a file for each."""

from __future__ import annotations

from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.authority import Issued, issue, listed
from coterie.deploy.keys.checks import is_ip
from coterie.deploy.kit import pack
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh.spokes import endpoint


def write_kits(folder: Path, plan: Path, hub: str, out: Path, days: int = 365) -> list[Path]:
    """Kits for the hub and for every client of a plan, in `out`; keys are issued to those that
    have none.

    Raises InvalidInput when somebody is revoked, or has keys whose private part is not here.
    """
    endpoint(hub, "hub")
    read = Plan.from_file(plan)
    if read.peers or isinstance(read.clients, int):
        raise InvalidInput(
            f"{plan}: kits are for a hub and its clients by name, but"
            + (
                f" {read.method.name} has no hub: peers need --peers."
                if read.peers
                else " clients is a number."
            )
        )
    known = {one.name: one for one in listed(folder)}
    named = _hub_name(folder, known, hub, days)
    if named in read.clients:
        raise InvalidInput(f"{plan}: {named!r} is a client, but has the keys of the hub.")
    for name in read.clients:
        if name not in known:
            issue(folder, name, days=days)
        elif known[name].revoked is not None:
            raise InvalidInput(f"{plan}: the client {name!r} is revoked; give it another name.")
    made = []
    for name in (named, *read.clients):
        node = folder / "nodes" / name
        if not (node / "node.key").is_file():
            raise InvalidInput(
                f"the private key of {name!r} is not in {node} any more: coterie keys issue"
                f" {folder} {name} --renew makes a new one."
            )
        pack(out / f"{name}.zip", node, plan, {"hub": hub})
        made.append(out / f"{name}.zip")
    return made


def _hub_name(folder: Path, known: dict[str, Issued], hub: str, days: int) -> str:
    """Whose certificate the gate has: issued for the host that clients call."""
    host = hub.rpartition(":")[0].strip("[]")
    hubs = [one for one in known.values() if one.role == "hub" and one.revoked is None]
    if not hubs:
        by_ip = is_ip(host)
        issue(
            *(folder, "hub", () if by_ip else (host,), (host,) if by_ip else (), days),
            role="hub",
        )
        return "hub"
    for one in hubs:
        if host.lower() in (*one.hosts, *one.ips):
            return one.name
    reached = ", ".join((*hubs[0].hosts, *hubs[0].ips))
    raise InvalidInput(
        f"hub is {hub!r}, but the certificate of {hubs[0].name!r} is for {reached}: coterie keys"
        f" issue {folder} {hubs[0].name} --role hub --renew --host or --ip {host} makes another."
    )
