"""Join kits: all that a machine needs to take part, in one file.

The operator writes them (`coterie keys kit`), with keys/nodes at hand and without giving away the
CA's key; a site runs `coterie client join ward-a.zip data.csv`, the hub `coterie hub up --keys
hub.zip`, a peer `coterie peer ward-a.zip data.csv`. A kit holds the node's keys, the CA's
certificate, the list of the revoked, the plan and where others are: the hub, or a peer's
neighbours. It is as secret as the private key in it.

What comes out of a kit has names and sizes that are known in advance: anything else in the file is
refused before a byte of it is written.
"""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from coterie.core.errors import InvalidInput, shown
from coterie.core.files import own_folder, write_text, writing_secret
from coterie.core.toml import tables
from coterie.deploy.permission import check_modules, module_names
from coterie.deploy.plan import NAME, Plan
from coterie.deploy.zenoh.spokes import endpoint
from coterie.runs.experiment import Experiment

FORMAT = 1
KEYS = ("node.pem", "node.key", "ca.pem", "crl.pem", "flower.key", "flower.pub")
NEEDED = ("kit.json", "plan.toml", *KEYS[:4])
LARGEST = {"crl.pem": 8 << 20, "plan.toml": 1 << 20}
SMALL = 1 << 16
"""Bytes that any other file in a kit may have."""
OF_PEERS = {"number", "listen", "neighbours"}
"""What a kit says of a peer, and of its config; all else in it is the site's own business."""


@dataclasses.dataclass(frozen=True)
class Kit:
    """A kit, read and checked."""

    name: str
    role: str
    hub: str
    """host:port of the hub's gate; "" for peers."""
    files: dict[str, bytes]
    peer: dict[str, Any] | None = None
    """A peer's number, what it listens on, and its neighbours, as in its config."""

    def unpack(self, folder: Path) -> Path:
        """Write folder/keys and folder/plan.toml, for their owner alone; gives folder/keys.

        The keys there are replaced at once, so a kit with renewed keys may be unpacked over an old
        one. Keys and a list of the revoked that are there and newer than the kit's stay.
        """
        from coterie.deploy.keys.files import fill_folder, writable
        from coterie.deploy.keys.identity import is_later, newer_list

        keys, files = folder / "keys", {name: self.files[name] for name in KEYS if self.has(name)}
        with writable(folder):
            own_folder(folder)
            files["crl.pem"] = newer_list(files["crl.pem"], keys / "crl.pem")
            there = {n: (keys / n).read_bytes() for n in files if (keys / n).is_file()}
            if is_later(keys / "node.pem", files["node.pem"]):
                files |= {n: data for n, data in there.items() if n not in ("ca.pem", "crl.pem")}
            if there != files:  # a process may be using those that are there
                fill_folder(keys, {name: (data, 0o600) for name, data in files.items()})
        write_text(folder / "plan.toml", self.files["plan.toml"].decode())
        return keys

    def has(self, name: str) -> bool:
        return name in self.files


def is_kit(path: Path) -> bool:
    """Whether this is meant to be a kit."""
    return path.suffix == ".zip"


def pack(path: Path, node: Path, plan: Path, where: Mapping[str, Any]) -> None:
    """Write a kit with a node's folder, as `coterie keys issue` made it. Only its owner may read
    it. `where` is {"hub": host:port}, or {"peer": …}.
    """
    from coterie.deploy.keys.identity import NodeIdentity

    who = NodeIdentity.load(node)
    facts = {"format": FORMAT, "name": who.name, "role": who.role, **where}
    files = {name: (node / name).read_bytes() for name in KEYS if (node / name).is_file()}
    files |= {"kit.json": (json.dumps(facts) + "\n").encode(), "plan.toml": plan.read_bytes()}
    with writing_secret(path) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
            out.writestr(entry, data)


def read(path: Path) -> Kit:
    """Raises InvalidInput on anything that `pack` cannot have written."""
    try:
        with zipfile.ZipFile(path) as kit:
            files = _files(path, kit)
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(
            f"the kit {str(path)!r} cannot be read: {error.strerror or error}."
        ) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError):
        raise _no_kit(path, "it is no zip file, or a damaged one") from None
    if missing := [name for name in NEEDED if name not in files]:
        raise _no_kit(path, f"it has no {', '.join(missing)}")
    try:
        facts = json.loads(files["kit.json"])
        given = facts["format"]
        peer = dict(facts["peer"]) if "peer" in facts else None
        hub = str(facts["hub"]) if peer is None else ""
        kit_ = Kit(str(facts["name"]), str(facts["role"]), hub, files, peer)
        files["plan.toml"].decode()
    except (ValueError, KeyError, TypeError):
        raise _no_kit(path, "its kit.json or plan.toml is damaged") from None
    if given != FORMAT:
        raise _no_kit(path, f"it is of the format {given!r}, and this version reads {FORMAT}")
    if not NAME.fullmatch(kit_.name):
        raise _no_kit(path, f"it is for {kit_.name[:80]!r}, which is the name of nobody")
    if peer is None:
        endpoint(kit_.hub, f"the hub in {str(path)!r}")
    elif more := sorted(peer.keys() - OF_PEERS):
        raise _no_kit(path, f"it says {more[0][:80]!r} of a peer, which belongs in no kit")
    return kit_


def _files(path: Path, kit: zipfile.ZipFile) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    allowed = {*NEEDED, *KEYS}
    for entry in kit.infolist():
        if entry.filename not in allowed or entry.filename in files:
            raise _no_kit(path, f"it holds {entry.filename[:80]!r}, which belongs in no kit")
        most = LARGEST.get(entry.filename, SMALL)
        with kit.open(entry) as f:
            data = f.read(most + 1)  # whatever size the entry claims to have
        if len(data) > most:
            raise _no_kit(path, f"its {entry.filename} is larger than {most} bytes")
        files[entry.filename] = data
    return files


def _no_kit(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"{str(path)!r} is not a kit that `coterie keys kit` wrote: {why}; ask the federation's"
        " operator for it again."
    )


def open_to_others(path: Path) -> str:
    """A sentence if others may read a kit, which holds a private key; else nothing."""
    mode = path.stat().st_mode & 0o777
    if not mode & 0o077:
        return ""
    return (
        f"{path} holds a private key, and other users of this machine may read it (mode"
        f" {mode:04o}): chmod 600 {path}, or delete it, since it is unpacked."
    )


def site_file(
    path: Path,
    data: Path,
    folder: Path | None = None,
    *,
    share_scores: bool = False,
    allowed: Sequence[str] = (),
    say: Callable[[str], None],
) -> Path:
    """Unpack a client's kit; gives the site file that `coterie client join` wants. `allowed` are
    Python modules that the plan may name, besides those that were allowed before.

    Done again, as `client join` with a kit does, it changes nothing but what has changed.
    """
    kit = read(path)
    if kit.role == "hub":
        raise InvalidInput(f"{str(path)!r} is the kit of a hub: coterie hub up --keys {path}")
    if kit.peer is not None:
        raise InvalidInput(f"{str(path)!r} is the kit of a peer: coterie peer {path} {data}")
    own = {"hub": kit.hub, "share_scores": share_scores}
    return _settled(_Given(path, kit, own, allowed, say), data, folder, "site.toml")


def peer_file(
    path: Path,
    data: Path,
    folder: Path | None = None,
    *,
    allowed: Sequence[str] = (),
    say: Callable[[str], None],
) -> Path:
    """Unpack a peer's kit; gives the config that `coterie peer` wants."""
    kit = read(path)
    if kit.peer is None:
        raise InvalidInput(
            f"{str(path)!r} is the kit of the {kit.role} {kit.name!r}, and not of a peer."
        )
    return _settled(_Given(path, kit, kit.peer, allowed, say), data, folder, "peer.toml")


@dataclasses.dataclass(frozen=True)
class _Given:
    """A kit, and what is said beside it."""

    path: Path
    kit: Kit
    own: Mapping[str, Any]
    """What the participant's own file gets from it."""
    allowed: Sequence[str]
    say: Callable[[str], None]


def _settled(given: _Given, data: Path, folder: Path | None, file: str) -> Path:
    """Unpack a kit and write the participant's own file; gives that.

    Modules that the file that was there allows stay allowed.
    """
    kit, whose = given.kit, f"the plan in {str(given.path)!r}"
    if not data.exists():
        raise InvalidInput(f"the data {str(data)!r} is not there.")
    plan = tables(kit.files["plan.toml"], whose)
    made_in = folder or Path(f"{kit.name}-{_name(plan, whose)}")
    modules = _allowed_before(made_in / file)
    modules += [m for m in module_names("--allow-module", [*given.allowed]) if m not in modules]
    try:
        check_modules(plan, modules, _remedy)
        Plan.from_config(plan)
    except InvalidInput as error:
        raise InvalidInput(f"{whose}: {error}") from None
    if warning := open_to_others(given.path):
        given.say(warning)
    kit.unpack(made_in)
    site = {
        "plan": "plan.toml",
        "name": kit.name,
        "folder": "state",
        "keys": "keys",
        **given.own,
        **({"modules": modules} if modules else {}),
        "data": {"path": str(data.absolute())},
    }
    command = "client join" if kit.peer is None else "peer"
    words = (
        f"# Written by `coterie {command}` with a kit, each time anew but for `modules`: to change"
        " anything else, copy it.\n"
    )
    write_text(made_in / file, words + tomli_w.dumps(site))
    return made_in / file


def _name(plan: Mapping[str, Any], whose: str) -> str:
    """Before anything is made of the plan."""
    name = plan.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(
            f"{whose}: name is {shown(name)}, but must be lower-case letters, digits and dashes, at"
            " most 63."
        )
    return name


def _remedy(module: str) -> str:
    return (
        "this site does not allow that module to be imported; if it is to be trusted:"
        f" --allow-module {module}."
    )


def _allowed_before(file: Path) -> list[str]:
    """The modules that a site's file allows, if it is there."""
    if not file.is_file():
        return []
    try:
        return module_names("modules", Experiment.read(file, "config").get("modules", []))
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error}") from None


def hub_keys(keys: Path, folder: Path, say: Callable[[str], None]) -> Path:
    """The folder of a hub's keys: `keys` itself, or what is in a kit. In a folder that was restored
    from a copy they get its list of the revoked, if that is newer.
    """
    from coterie.deploy.keys.hub import LIST, take_list

    if is_kit(keys):
        kit = read(keys)
        if kit.role != "hub":
            raise InvalidInput(
                f"{str(keys)!r} is the kit of the {kit.role} {kit.name!r}, but a hub needs its own."
            )
        if warning := open_to_others(keys):
            say(warning)
        keys = kit.unpack(folder / "kit")
    take_list(keys, folder / LIST, say)
    return keys
