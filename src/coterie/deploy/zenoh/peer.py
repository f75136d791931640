"""A peer of a site: from its config to its models."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, own_folder
from coterie.deploy.log import GaveUp
from coterie.deploy.peer import Peer
from coterie.deploy.peer_record import KEPT_ROUNDS
from coterie.deploy.site import Site
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.driver import Driver
from coterie.deploy.zenoh.net import Net
from coterie.deploy.zenoh.roaming import Roamer
from coterie.deploy.zenoh.sight import listed

if TYPE_CHECKING:
    from coterie.deploy.keys.identity import NodeIdentity

__all__ = ["Driver", "GaveUp", "Passport", "address_of", "at_work", "run_peer"]


@dataclasses.dataclass(frozen=True)
class Passport:
    """A site's identity, if it has keys, and who is revoked."""

    identity: Any
    revocations: Any

    @classmethod
    def of(cls, site: Site, say: Callable[[str], None]) -> Passport:
        if site.keys is None:
            say("no keys are given: plain TCP, without certificates, on this machine only.")
            return cls(None, None)
        from coterie.deploy.keys.authority import NodeIdentity

        return cls.shown(NodeIdentity.load(site.keys), say)

    @classmethod
    def shown(cls, identity: NodeIdentity, say: Callable[[str], None]) -> Passport:
        return cls(identity, identity.revocations(say))

    def refused(self) -> frozenset[str]:
        """The names that are revoked, by a list that is read again when it changes."""
        return frozenset() if self.revocations is None else self.revocations.revoked_names()

    def check(self) -> None:
        """Raises InvalidInput when this site's own certificate is of no use any more."""
        if self.identity is None:
            return
        if datetime.now(UTC) >= self.identity.expires:
            raise InvalidInput(
                f"the certificate of {self.identity.name!r} expired on"
                f" {self.identity.expires:%Y-%m-%d %H:%M} UTC; this participant stops: put a new"
                " one in its place and start again."
            )
        if self.revocations.refuses(self.identity.serial) or self.revocations.refuses(
            self.identity.name
        ):
            raise InvalidInput(
                f"the certificate of {self.identity.name!r} is revoked; this participant stops."
            )


@contextlib.contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """One process at a time in a participant's folder."""
    own_folder(folder)
    with locked(folder):
        yield


def address_of(site: Site, passport: Passport) -> Address:
    refused = passport.refused()
    ends = {n.who.name: n.endpoint for n in site.neighbours}
    if not set(ends) - refused:
        raise InvalidInput(
            "all neighbours are revoked."
            if ends
            else "there are no [[neighbours]], so there is nobody to talk to."
        )
    return Address(
        site.plan.name,
        site.name,
        site.listen,
        {name: end for name, end in ends.items() if name not in refused},
        passport.identity,
    )


def open_to_all(site: Site, passport: Passport) -> Address:
    """The address of a peer that may meet every participant of the plan; [[neighbours]] are those
    that it calls, and through them it hears where the others are.
    """
    plan, refused = site.plan, passport.refused()
    assert not isinstance(plan.clients, int)
    if site.name not in plan.clients or plan.number(site.name) != site.number:
        raise InvalidInput(
            f"this is {site.name!r} with the number {site.number}, but the plan's clients have it"
            " otherwise; peers that find their kin go by the plan's list."
        )
    ends = {n.who.name: n.endpoint for n in site.neighbours}
    for name in ends:
        plan.number(name)
    others = {n: ends.get(n, "") for n in plan.clients if n != site.name and n not in refused}
    if not others:
        raise InvalidInput("there is nobody else in the plan, or all others are revoked.")
    return Address(plan.name, site.name, site.listen, others, passport.identity, discovers=True)


def run_seeking_peer(site: Site, say: Callable[[str], None]) -> Peer:
    """A peer that finds its neighbours itself, from its config to its models."""
    with at_work(site.folder):
        passport = Passport.of(site, say)
        address, worker, plan = open_to_all(site, passport), site.worker(), site.plan
        most = worker.largest_up * (KEPT_ROUNDS + plan.rules.staleness + 1)
        with Net(address, most) as net:
            roamer = Roamer(
                *(plan, site.number, worker, site.folder, net),
                say=say,
                refused=passport.refused,
                check_self=passport.check,
            )
            peer = roamer.run()
            say(f"this process sent its neighbours {roamer.carried} bytes.")
        say(f"done: {plan.exchanges} rounds, {peer.ledger.up} bytes up, {peer.ledger.down} down.")
        return peer


def run_peer(site: Site, say: Callable[[str], None]) -> Peer:
    """A peer from its config to its models."""
    if site.plan.rule is not None:
        return run_seeking_peer(site, say)
    with at_work(site.folder):
        passport = Passport.of(site, say)
        address = address_of(site, passport)
        peer = Peer(
            site.plan,
            site.name,
            site.number,
            [n.who for n in site.neighbours],
            site.worker(),
            site.folder,
            say=say,
        )
        with Net(address, peer.largest * (peer.remembered + 1)) as net:
            say(f"round {peer.t} of {peer.plan.exchanges}, with {listed(address.neighbours)}.")
            driver = Driver(peer, net, say=say, refused=passport.refused, check_self=passport.check)
            driver.run()
            say(f"this process sent its neighbours {driver.carried.total()} bytes.")
        say(
            f"done: {peer.plan.exchanges} rounds, {peer.ledger.up} bytes up,"
            f" {peer.ledger.down} down."
        )
        return peer
