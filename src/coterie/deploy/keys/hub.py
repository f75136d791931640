"""A hub's own keys, and the list of the revoked that belongs to them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from coterie.core.errors import InvalidInput
from coterie.deploy.keys.authority import NodeIdentity, listed
from coterie.deploy.keys.files import read_bytes
from coterie.deploy.keys.identity import Revocations

LIST = "crl.pem"
"""In a hub's folder: the list of the revoked of the copy from which it was restored."""


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


def take_list(keys: Path, copy: Path, say: Callable[[str], None]) -> None:
    """The list of the revoked that lies in a restored hub's folder takes the place of the one
    beside its keys, if it is newer and the CA has signed it.
    """
    if not copy.is_file():
        return
    node = hub_identity(keys)
    mine = node.revocations()
    try:
        number, data = Revocations(node.ca, copy).newest()
    except InvalidInput as error:
        say(f"the list of the revoked of the restored copy was not taken: {error}")
        return
    if number > mine.newest()[0]:
        mine.offer(data)
        refused = ", ".join(sorted(mine.revoked_names()))
        say(
            f"the list of the revoked is that of the restored copy (number {number}), which is"
            f" newer than that of the keys{': revoked ' if refused else ''}{refused}."
        )


def newest_list(folder: Path) -> bytes:
    """The list of the revoked that a hub has, for a copy of its folder; nothing if there is none.

    Raises InvalidInput when it is none that the CA has signed.
    """
    copy, crl = folder / LIST, folder / "nowhere"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        crl = Path(json.loads((folder / "hub.json").read_text())["keys"]) / "crl.pem"
    if crl.is_file():
        return Revocations(crl.with_name("ca.pem"), crl).newest()[1]
    return read_bytes(copy) if copy.is_file() else b""  # restored, and not brought up since
