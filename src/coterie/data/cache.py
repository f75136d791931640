"""Parsed data in a form that loads fast, keyed by the files it was parsed from."""

from __future__ import annotations

import contextlib
import hashlib
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.places import cache_root
from coterie.data.files import atomic

Arrays = dict[str, NDArray[Any]]
VERSION = 1
"""Raise when what a parser gives changes, so that old entries are no longer found."""


def entry(name: str, files: Iterable[Path]) -> Path:
    """Where the parsed form of these files lies.

    Another path, size or time of change is another entry.
    """
    digest = hashlib.sha256(f"{name} {VERSION}".encode())
    for path in files:
        status = path.stat()
        digest.update(f"\0{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}".encode())
    return cache_root() / "parsed" / f"{name}-{digest.hexdigest()[:20]}.npz"


def cached(name: str, files: Iterable[Path], parse: Callable[[], Arrays]) -> Arrays:
    """What `parse` gives, read from the cache if these very files were parsed before.

    A damaged entry is parsed again; a cache that cannot be written (a read-only home, a full disk)
    costs time, never the run.
    """
    path = entry(name, files)
    with (
        contextlib.suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile),
        np.load(path, allow_pickle=False) as stored,
    ):
        return {key: stored[key] for key in stored.files}
    arrays = parse()
    with contextlib.suppress(OSError), atomic(path) as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
    return arrays
