"""The site files of one client, which may take part in several plans at one hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.site import Site


def of_one_client(paths: Sequence[Path]) -> list[Site]:
    """Read and checked: one name, one hub, one folder of keys; a plan each."""
    read = [Site.from_file(path.absolute()) for path in paths]
    first = read[0]
    for site in read:
        if (site.name, site.hub, site.keys) != (first.name, first.hub, first.keys):
            raise InvalidInput(
                f"{site.path} has another name, hub or keys than {first.path}; one process can join"
                " as one client only."
            )
        if site.plan.peers:
            raise InvalidInput(
                f"{site.path}: {site.plan.method.name} has no hub; run it with `coterie peer`."
            )
        if [other.plan.name for other in read].count(site.plan.name) > 1:
            raise InvalidInput(f"the plan {site.plan.name!r} is given twice; give each once.")
    return read


def export(path: Path, out: Path) -> list[Path]:
    """Write a client's models, as they are now."""
    from coterie.deploy.client import FILE, Client

    site = Site.from_file(path.absolute())
    if not (site.folder / FILE).is_file():
        raise InvalidInput(
            f"{str(site.folder)!r} holds no models yet: the client has not answered a request of"
            " its hub."
        )
    return Client(site.plan, site.number, site.worker(), site.folder).export(out)
