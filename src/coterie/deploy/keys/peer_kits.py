"""Join kits of peers: the operator says once who is where and who is whose neighbour.

    [[peers]]
    name = "ward-a"
    place = "ward-a.example.org:7447"    # where the others reach it
    [[edges]]
    between = ["ward-a", "ward-b"]
    weight = 1.0                         # a_kl; 1 if it is left out

A plan in which peers find their neighbours themselves has no edges: everybody then knows where all
others are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput, shown, unknown
from coterie.deploy.keys.authority import issue, listed
from coterie.deploy.keys.checks import is_ip
from coterie.deploy.kit import pack
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh.spokes import endpoint
from coterie.runs.experiment import Experiment


@dataclasses.dataclass(frozen=True)
class Town:
    """Who is where, by name and in order, and the weight of every edge."""

    places: dict[str, str]
    weights: dict[frozenset[str], float]

    @classmethod
    def from_file(cls, path: Path) -> Town:
        config = Experiment.read(path, "file of peers")
        try:
            return cls._from_config(config)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Town:
        for key in config:
            if key not in ("peers", "edges"):
                raise unknown("the key", key, ("peers", "edges"))
        places: dict[str, str] = {}
        for one in _tables(config, "peers", ("name", "place")):
            name, place = one.get("name"), one.get("place")
            if not isinstance(name, str) or name in places:
                raise InvalidInput(f"name of a peer is {shown(name)}, but must be one of its own.")
            if not isinstance(place, str):
                raise InvalidInput(
                    f"place of {name!r} is {shown(place)}, but must be a host and a port."
                )
            endpoint(place, f"place of {name!r}")
            places[name] = place
        if len(places) < 2:
            raise InvalidInput(f"there are {len(places)} [[peers]], but must be at least 2.")
        weights: dict[frozenset[str], float] = {}
        for one in _tables(config, "edges", ("between", "weight")):
            ends, weight = one.get("between"), one.get("weight", 1.0)
            if (
                not isinstance(ends, list)
                or len(ends) != 2
                or not all(isinstance(end, str) and end in places for end in ends)
                or ends[0] == ends[1]
            ):
                raise InvalidInput(
                    f"between of an edge is {shown(ends)}, but must be two names of [[peers]]."
                )
            if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight > 0:
                raise InvalidInput(
                    f"weight of the edge {ends[0]}-{ends[1]} is {shown(weight)}, but must be a"
                    " number > 0."
                )
            if frozenset(ends) in weights:
                raise InvalidInput(f"the edge between {ends[0]!r} and {ends[1]!r} is given twice.")
            weights[frozenset(ends)] = float(weight)
        return cls(places, weights)


def _tables(config: Mapping[str, Any], key: str, known: tuple[str, ...]) -> list[dict[str, Any]]:
    given = config.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise InvalidInput(f"{key} is {shown(given)}, but must be tables [[{key}]].")
    for one in given:
        for name in one:
            if name not in known:
                raise unknown(f"the key of [[{key}]],", name, known)
    return given


def write_peer_kits(
    folder: Path, plan: Path, peers: Path, out: Path, days: int = 365
) -> list[Path]:
    """A kit for every peer, in `out`; keys are issued to those that have none.

    Raises InvalidInput when somebody is revoked, or has keys whose private part is not here or
    which are for another place.
    """
    read, town = Plan.from_file(plan), Town.from_file(peers)
    numbers = _numbers(plan, read, peers, town)
    near = {name: _neighbours(name, peers, read, town, numbers) for name in town.places}
    known = {one.name: one for one in listed(folder)}
    for name, place in town.places.items():
        host = place.rpartition(":")[0].strip("[]")
        if name not in known:
            by_ip = is_ip(host)
            hosts, ips = ((), (host,)) if by_ip else ((host,), ())
            issue(folder, name, hosts, ips, days, role="peer")
            continue
        one = known[name]
        if one.revoked is not None:
            raise InvalidInput(f"{peers}: {name!r} is revoked; give it another name.")
        if one.role != "peer" or host.lower() not in (*one.hosts, *one.ips):
            raise InvalidInput(
                f"{peers}: place of {name!r} is {place!r}, but its certificate is that of a"
                f" {one.role} for {', '.join((*one.hosts, *one.ips))}: coterie keys issue {folder}"
                f" {name} --role peer --renew --host or --ip {host} makes another."
            )
    for name in town.places:
        if not (folder / "nodes" / name / "node.key").is_file():
            raise InvalidInput(
                f"the private key of {name!r} is not in {folder / 'nodes' / name} any more: coterie"
                f" keys issue {folder} {name} --role peer --renew makes a new one."
            )
    made = []
    for name, place in town.places.items():
        port = place.rpartition(":")[2]
        facts = {
            "number": numbers[name],
            "listen": f"tls/0.0.0.0:{port}",
            "neighbours": near[name],
        }
        pack(out / f"{name}.zip", folder / "nodes" / name, plan, {"peer": facts})
        made.append(out / f"{name}.zip")
    return made


def _numbers(path: Path, plan: Plan, peers: Path, town: Town) -> dict[str, int]:
    """By name, those of the plan; a plan without names takes them in their order."""
    if not plan.peers:
        raise InvalidInput(
            f"{path}: {plan.method.name} needs a hub, so kits need --hub and not --peers."
        )
    if len(town.places) != plan.size:
        raise InvalidInput(
            f"{peers}: there are {len(town.places)} [[peers]], but the plan has {plan.size}."
        )
    if isinstance(plan.clients, int):
        return {name: k for k, name in enumerate(town.places)}
    return {name: plan.number(name) for name in town.places}


def _neighbours(
    name: str, path: Path, plan: Plan, town: Town, numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    if plan.rule is not None and town.weights:
        raise InvalidInput(
            f"{path}: there are [[edges]], but by the plan peers find their neighbours themselves."
        )
    found = []
    for other, place in town.places.items():
        weight = town.weights.get(frozenset((name, other)))
        if other == name or (plan.rule is None and weight is None):
            continue
        facts = {"name": other, "number": numbers[other], "endpoint": f"tls/{place}"}
        found.append(facts | ({} if weight is None else {"weight": weight}))
    if not found:
        raise InvalidInput(f"{path}: {name!r} has no edge, so it has nobody to talk to.")
    return found
