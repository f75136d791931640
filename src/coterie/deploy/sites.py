"""The site files of one client, which may take part in several plans at one hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy import kit
from coterie.deploy.site import Site


def check_there(paths: Sequence[Path]) -> None:
    """Before anything else, such as what is not installed, can be wrong."""
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{str(path)!r} is not there.")


def given(
    paths: Sequence[Path],
    folder: Path | None,
    *,
    share_scores: bool,
    allowed: Sequence[str] = (),
    say: Callable[[str], None],
) -> list[Path]:
    """Site files, or that of a kit and a file of data, which is unpacked."""
    check_there(paths)
    if not any(map(kit.is_kit, paths)):
        if folder is not None or share_scores or allowed:
            raise InvalidInput(
                "--folder, --share-scores and --allow-module are for kits; in a site file they are"
                " the keys folder, share_scores and modules."
            )
        return list(paths)
    if len(paths) != 2 or not kit.is_kit(paths[0]) or kit.is_kit(paths[1]):
        raise InvalidInput(
            f"with a kit give the kit and then the data, and nothing else, but"
            f" {' '.join(map(str, paths))!r} is given: coterie client join ward-a.zip data.csv"
        )
    path, data = paths
    return [kit.site_file(path, data, folder, share_scores=share_scores, allowed=allowed, say=say)]


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
