"""A peer of a site: from its config to its models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, own_folder
from coterie.deploy.board import Board, shown
from coterie.deploy.log import GaveUp
from coterie.deploy.peer import Peer
from coterie.deploy.peer_record import KEPT_ROUNDS
from coterie.deploy.site import Site
from coterie.deploy.statuses import note_certificate, statuses
from coterie.deploy.zenoh.address import Address
from coterie.deploy.zenoh.driver import Driver
from coterie.deploy.zenoh.net import Net
from coterie.deploy.zenoh.passing_on import PassingOn
from coterie.deploy.zenoh.passport import Passport
from coterie.deploy.zenoh.roaming import Roamer
from coterie.deploy.zenoh.sight import listed

__all__ = ["Driver", "GaveUp", "Passport", "address_of", "at_work", "run_peer"]


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


def keeping(
    site: Site, net: PassingOn, place: Callable[[Site, Passport], Address]
) -> Callable[[], None]:
    """What a peer does every few seconds for its certificate: a new one means a new session; and
    its neighbours get the list of the revoked.
    """

    def check() -> None:
        if (fresh := net.passport.renewed()) is not None:
            net.renewed(fresh)
            net.net.move(place(site, fresh))
            net.net.__enter__()
            note_certificate(site.folder, fresh.identity)
        net.pass_on()
        net.passport.check()

    return check


def run_seeking_peer(site: Site, say: Callable[[str], None], board: Board) -> Peer:
    """A peer that finds its neighbours itself, from its config to its models."""
    with at_work(site.folder):
        passport = Passport.of(site, say)
        board.expires = None if passport.identity is None else passport.identity.expires
        note_certificate(site.folder, passport.identity)
        address, worker, plan = open_to_all(site, passport), site.worker(), site.plan
        most = worker.largest_up * (KEPT_ROUNDS + plan.rules.staleness + 1)
        with Net(address, most) as net:
            board.connected = net.linked
            carrier = PassingOn(net, passport, say)
            roamer = Roamer(
                *(plan, site.number, worker, site.folder, carrier),
                say=say,
                refused=passport.refused,
                check_self=keeping(site, carrier, open_to_all),
            )
            peer = roamer.run()
            say(f"this process sent its neighbours {roamer.carried} bytes.")
        say(f"done: {plan.exchanges} rounds, {peer.ledger.up} bytes up, {peer.ledger.down} down.")
        return peer


def run_peer(site: Site, say: Callable[[str], None], metrics: int | None = None) -> Peer:
    """A peer from its config to its models; `metrics` is a port (board.py)."""
    with shown(Board("peer", site.name), metrics) as board:
        board.statuses = lambda: statuses(site.folder)
        return (run_given_peer if site.plan.rule is None else run_seeking_peer)(site, say, board)


def run_given_peer(site: Site, say: Callable[[str], None], board: Board) -> Peer:
    """A peer whose neighbours are in its config."""
    with at_work(site.folder):
        passport = Passport.of(site, say)
        board.expires = None if passport.identity is None else passport.identity.expires
        note_certificate(site.folder, passport.identity)
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
            board.connected = net.linked
            say(f"round {peer.t} of {peer.plan.exchanges}, with {listed(address.neighbours)}.")
            carrier = PassingOn(net, passport, say)
            check = keeping(site, carrier, address_of)
            driver = Driver(peer, carrier, say=say, refused=passport.refused, check_self=check)
            driver.run()
            say(f"this process sent its neighbours {driver.carried.total()} bytes.")
        say(
            f"done: {peer.plan.exchanges} rounds, {peer.ledger.up} bytes up,"
            f" {peer.ledger.down} down."
        )
        return peer
