"""A federation as a folder of arrays that are mapped and not read: what a run does not look at
takes no memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core import pages
from coterie.core.errors import InvalidInput
from coterie.core.files import write_json
from coterie.core.options import option
from coterie.data.base import Source, source
from coterie.data.federation import SPLITS, Federation, Split

FACTS = "federation.json"
PARTS = ("x", "y", "offsets")


def save_mapped(federation: Federation, folder: Path | str) -> None:
    """Write a federation as one .npy file per array. Names of clients, classes and inputs go
    along; other facts do not.
    """
    folder = Path(folder)
    if (folder / FACTS).exists():
        raise InvalidInput(
            f"the folder {str(folder)!r} holds a federation already; name another, or remove it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(federation, folder)
    except OSError as error:
        raise InvalidInput(
            f"the federation cannot be written to {str(folder)!r}: {error.strerror or error}."
        ) from None


def _write(federation: Federation, folder: Path) -> None:
    for name in SPLITS:
        for part in PARTS:
            array = getattr(getattr(federation, name), part)
            shape, dtype = array.shape, array.dtype
            path = folder / f"{name}.{part}.npy"
            if not array.size:
                np.save(path, array)
                continue
            out = np.lib.format.open_memmap(path, "w+", dtype, shape)
            begun = 0
            for chunk in pages.chunks(array):
                out[begun : begun + len(chunk)] = chunk
                begun += len(chunk)
            out.flush()
    named = {k: list(map(str, federation.facts[k])) for k in _NAMES if k in federation.facts}
    facts = {"name": federation.name, "task": federation.task, "classes": federation.classes}
    write_json(folder / FACTS, {**facts, "facts": named})  # last: whoever finds it finds the rest


_NAMES = ("clients", "labels", "features")


def load_mapped(folder: Path | str) -> Federation:
    """What `save_mapped` wrote; arrays stay in their files."""
    folder = Path(folder)
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        train, validation, test = (_split(folder, name) for name in SPLITS)
        told = facts["name"], facts["task"], facts["classes"], facts["facts"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InvalidInput(
            f"the folder {str(folder)!r} holds no federation as save_mapped writes it: {why}."
        ) from None
    name, task, classes, named = told
    return Federation(name, train, validation, test, task, classes, named)


def _split(folder: Path, name: str) -> Split:
    found: dict[str, Any] = {}
    for part in PARTS:
        path = folder / f"{name}.{part}.npy"
        # NumPy cannot map an array without elements.
        empty = np.load(path, mmap_mode=None) if path.stat().st_size <= 128 else None
        found[part] = np.load(path, mmap_mode="r") if empty is None else empty
    found["offsets"] = np.array(found["offsets"], np.int64)
    return Split(**found)


@source("mapped")
class Mapped(Source):
    """A federation as files that are mapped and not read (`coterie data map`): for more clients
    than memory holds. It is cut once, so it is the same for every seed.
    """

    path: str = option(help="the folder that `coterie data map` wrote")

    def load(self, seed: int) -> Federation:
        return load_mapped(Path(self.path).expanduser())
