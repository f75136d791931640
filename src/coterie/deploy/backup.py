"""Copies of a hub's folder, taken while it runs, and put back.

A plan's state is one file that is replaced at once, and its bill is a file to which rows are
appended before the state counts them: so the state is copied first, then as many rows as it counts.
Whatever the hub does meanwhile, the two belong together. Keys are not in a copy; the list of the
revoked is, since a kit has only the one of the day on which it was made. It is signed, so `hub up`
takes it if it is newer than that of the keys.

A restored hub goes on from the round of the copy. If rounds were closed after it, clients have done
more than the hub knows of, and say so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from coterie.core.errors import InvalidInput
from coterie.core.files import make_folder, writing_folder, writing_secret
from coterie.deploy import kept as disk
from coterie.deploy.bill import FILE as ROWS
from coterie.deploy.bill import WIDTH
from coterie.deploy.hub import FILE as STATE
from coterie.deploy.keys.hub import LIST, newest_list
from coterie.deploy.plan import NAME

FORMAT = 2
"""Copies of format 1, which have no list of the revoked, are read as well."""
INDEX = "backup.json"
PARTS = ("plan.json", STATE, ROWS, "status.json")
AT_ONCE = 1 << 20
_ENTRY = re.compile(rf"{re.escape(LIST)}|({NAME.pattern})/({'|'.join(map(re.escape, PARTS))})")


def backup(folder: Path, out: Path) -> dict[str, int]:
    """Copy all plans of a hub into one file, for its owner alone; gives their rounds by name."""
    plans = sorted(path.parent for path in folder.glob(f"*/{STATE}"))
    if not plans:
        raise InvalidInput(f"{str(folder)!r} holds no plan that a hub has done a round of.")
    if out.exists():
        raise InvalidInput(f"{str(out)!r} is there already; choose another file.")
    rounds: dict[str, int] = {}
    sums: dict[str, str] = {}
    revoked = newest_list(folder)
    with writing_secret(out) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as copy:
        for plan in plans:
            rounds[plan.name] = _copied(plan, copy, sums)
        if revoked:
            copy.writestr(LIST, revoked)
            sums[LIST] = hashlib.sha256(revoked).hexdigest()
        index = {"format": FORMAT, "taken": time.time(), "rounds": rounds, "sums": sums}
        copy.writestr(INDEX, json.dumps(index, indent=2) + "\n")
    return rounds


def _copied(plan: Path, copy: zipfile.ZipFile, sums: dict[str, str]) -> int:
    """One plan into a copy; gives its round."""
    with tempfile.TemporaryDirectory(dir=plan) as place:
        state = Path(place) / STATE
        os.link(plan / STATE, state)  # it stays as it is when the hub puts another in its place
        facts = disk.facts(state)
        bill = facts["ledger"]  # a number in format 4, which has its rows in the state
        filed = int(bill["filed"]) if isinstance(bill, dict) else 0
        for name in PARTS:
            source = state if name == STATE else plan / name
            most = filed * WIDTH if name == ROWS else None
            if source.is_file():
                sums[f"{plan.name}/{name}"] = _put(source, copy, f"{plan.name}/{name}", most)
    return int(facts["round"])


def _put(source: Path, copy: zipfile.ZipFile, name: str, most: int | None) -> str:
    found, left = hashlib.sha256(), most
    with source.open("rb") as f, copy.open(name, "w", force_zip64=True) as out:
        while some := f.read(AT_ONCE if left is None else min(AT_ONCE, left)):
            found.update(some)
            out.write(some)
            left = None if left is None else left - len(some)
    return found.hexdigest()


def restore(path: Path, folder: Path) -> dict[str, int]:
    """Put a copy into a new folder; gives the plans' rounds by name. Raises InvalidInput when any
    of it is not as it was written, and then the folder is not there.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInput(
            f"the folder {str(folder)!r} is not empty; a copy is put into a new one, which may take"
            " its place afterwards."
        )
    make_folder(folder.parent, force=True)
    try:
        with zipfile.ZipFile(path) as copy, writing_folder(folder, lambda there: True) as made:
            made.chmod(0o700)
            index = _index(path, copy)
            for name, sum_ in index["sums"].items():
                target = made / name
                target.parent.mkdir(mode=0o700, exist_ok=True)
                if _taken(copy, name, target) != sum_:
                    raise _no_copy(path, f"its {name} is damaged")
            for plan in index["rounds"]:
                disk.facts(made / plan / STATE)  # refuses other formats
    except InvalidInput:
        raise
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, KeyError, EOFError):
        raise _no_copy(path, "it is no zip file, or a damaged one") from None
    return {str(name): int(t) for name, t in index["rounds"].items()}


def _index(path: Path, copy: zipfile.ZipFile) -> dict[str, Any]:
    with copy.open(INDEX) as f:
        index = json.loads(f.read(16 << 20))
    if index["format"] not in (1, FORMAT):
        raise _no_copy(
            path, f"its format is {index['format']!r}, and this version reads 1 and {FORMAT}"
        )
    entries = {*copy.namelist()} - {INDEX}
    if entries != {*index["sums"]} or not all(map(_ENTRY.fullmatch, entries)):
        raise _no_copy(path, "it holds other files than it should")
    return dict(index)


def _taken(copy: zipfile.ZipFile, name: str, target: Path) -> str:
    """As many bytes as the index of the file says; gives their checksum."""
    found, left = hashlib.sha256(), copy.getinfo(name).file_size
    with copy.open(name) as f, target.open("xb") as out:
        os.fchmod(out.fileno(), 0o600)
        while some := f.read(min(AT_ONCE, left)):
            left -= len(some)
            found.update(some)
            out.write(some)
        out.flush()
        os.fsync(out.fileno())
    return found.hexdigest()


def _no_copy(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{str(path)!r} is not a copy that `coterie hub backup` wrote: {why}.")
