"""A hub whose folder is older than its clients': an old copy of it was put back.

Clients have done rounds that such a hub does not know of, and refuse to do them again. Nobody can
undo their rounds; but the operator may say that the run goes on from where the hub is (`coterie hub
go-back`). Clients then keep their models as they are, links begin anew, and the result is not that
of a simulation any more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.core.files import locked, make_folder
from coterie.deploy.hub import FILE, Hub
from coterie.deploy.plan import Plan


def remedy(hub: Hub, name: str, done: int) -> str:
    """What is said of a client that is ahead of its hub."""
    return (
        f"{hub.title}: {name} has done round {done} already, so this hub's folder is older than"
        " its clients'. Put the newest copy back; or go on from here with the models that clients"
        " have, which is not the plan's exact result any more: `coterie hub go-back PLAN --folder"
        f" {hub.folder.parent}`, and run it again."
    )


def go_back(file: Path, folder: Path, *, say: Callable[[str], None]) -> None:
    """From now on clients accept that the run goes on from where this hub is."""
    plan, folder = Plan.from_file(file), folder.absolute()
    if not (folder / plan.name / FILE).is_file():
        raise InvalidInput(
            f"{str(folder)!r} holds no run of the plan {plan.name!r}, so there is nothing to go"
            " back to; `coterie hub run` begins one."
        )
    lock = folder / "locks" / plan.name
    make_folder(lock, force=True)
    with locked(lock):
        hub = Hub(plan, folder / plan.name, say=say)
        hub.set_back()
    say(
        f"{plan.name}: the run goes on from round {hub.t}; clients that were ahead keep their"
        " models. Start it again with `coterie hub run`."
    )
