"""A plan at a hub that is up, to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder
from coterie.deploy.hub import Hub
from coterie.deploy.keys import authority as identities
from coterie.deploy.log import Log, Say
from coterie.deploy.plan import Plan
from coterie.deploy.zenoh.gate import enrol, read_hub
from coterie.deploy.zenoh.net import Net
from coterie.deploy.zenoh.passport import Passport
from coterie.deploy.zenoh.probe import why_not
from coterie.deploy.zenoh.sight import LATER
from coterie.deploy.zenoh.spokes import HUB, Enrolled, Spoke, Unreachable
from coterie.deploy.zenoh.star import Asking, Show

PAUSE, MOST_PAUSE = 0.1, 4.0
"""Seconds between two calls for each second that one has waited already, and the most: who cannot
be let in must not use up what the hub's door forgives.
"""
TAKEN = ("plans", "locks", "kit")
"""Folders of a hub that are no plans."""


@contextmanager
def connected(net: Net, say: Say, patience: float = float("inf")) -> Iterator[Net]:
    """A session with the hub's gate. Raises Unreachable after so many seconds."""
    enter(net, say, patience)
    try:
        yield net
    finally:
        net.__exit__()


def enter(net: Net, say: Say, patience: float = float("inf")) -> None:
    """Open a session with the hub's gate, as soon as that lets it in.

    Raises Unreachable after so many seconds.
    """
    began, told = time.monotonic(), float("-inf")
    while True:
        try:
            net.__enter__()
            break
        except Unreachable:
            now = time.monotonic()
            if now - began > patience:
                raise Unreachable(
                    f"{_why(net)}; the same command goes on where it stopped."
                ) from None
            if now - told > LATER:
                told = now
                say(f"{_why(net)}; trying again.")
            time.sleep(min(MOST_PAUSE, PAUSE * (now - began)))


def _why(net: Net) -> str:
    """What can be told of a gate that cannot be entered."""
    spoke = net.address
    assert isinstance(spoke, Spoke)
    return why_not(spoke.place, spoke.identity, by_name=spoke.name != HUB)


def run(
    file: Path, folder: Path, *, say: Say = print, show: Show = lambda hub, waiting: None
) -> Path:
    """Run a plan at a hub that is up; gives the folder of its results.

    To be repeated after any failure. Raises GaveUp, Unreachable, Diverged or InvalidInput.
    """
    plan, folder = Plan.from_file(file), folder.absolute()
    if plan.name in TAKEN:
        raise InvalidInput(
            f"name is {plan.name!r}, which is the name of something else in a hub's folder; choose"
            " another."
        )
    facts = read_hub(folder)
    identity = identities.NodeIdentity.load(Path(facts["keys"]))
    if isinstance(plan.clients, int):
        raise InvalidInput("clients is a number, but a hub knows its clients by name: list them.")
    if identity.name in plan.clients:
        raise InvalidInput(
            f"the hub's keys are of {identity.name!r}, but that is a client of the plan; a hub has"
            " a name of its own."
        )
    lock = folder / "locks" / plan.name
    make_folder(lock, force=True)
    with locked(lock):
        log = Log(folder / f"{plan.name}.log", say)
        hub = Hub(plan, folder / plan.name, say=log.say)
        largest = hub.setup.largest
        enrol(folder, plan.name, Enrolled(plan.clients, largest))
        inside = facts["inside"]
        spoke = Spoke(plan.name, HUB, facts["place"], plan.clients, identity, inside=inside)
        passport = Passport.shown(identity, log.say)
        with connected(Net(spoke, largest), log.say, plan.rules.give_up) as net:
            again = partial(enter, say=log.say, patience=plan.rules.give_up)
            Asking(hub, net, passport, say=log.say, show=show, enter=again).run()
    return folder / plan.name
