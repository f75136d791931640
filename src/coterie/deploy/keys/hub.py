"""A hub's own keys."""

from __future__ import annotations

from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.authority import NodeIdentity, listed


def hub_identity(keys: Path) -> NodeIdentity:
    """The hub's own certificate: `keys` is its node folder, or the operator's folder with one that
    was issued with --role hub.
    """
    if not (keys / "nodes.json").is_file():
        found = NodeIdentity.load(keys)
    else:
        hubs = [
            i.name
            for i in listed(keys)
            if i.role == "hub" and i.status() in ("valid", "expires soon")
        ]
        here = [name for name in hubs if (keys / "nodes" / name / "node.key").is_file()]
        if len(here) != 1:
            what = (
                f"{len(here)} of them lie there ({', '.join(here)}); give the node folder of one"
                if here
                else "there is none"
            )
            raise InvalidInput(
                f"{str(keys)!r} must hold the keys of one hub (coterie keys issue {keys} hub --role"
                f" hub --host …), but {what}."
            )
        found = NodeIdentity.load(keys / "nodes" / here[0])
    if found.role != "hub":
        raise InvalidInput(
            f"the keys in {str(found.folder)!r} are of a {found.role}, but a hub needs keys issued"
            " with --role hub."
        )
    return found
