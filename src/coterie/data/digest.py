"""The hash of a federation: whether two runs were made from the same data."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from coterie.core.pages import chunks
from coterie.data.federation import Federation

NAMES = ("clients", "features", "labels", "target")
"""Facts of a table that give meaning to its packed numbers."""


def hash_federation(federation: Federation) -> str:
    """SHA-256 of the packed arrays, the task, and the names of clients and classes."""
    found = hashlib.sha256()
    facts = {k: str(federation.facts.get(k, "")) for k in NAMES}
    head = json.dumps([federation.task, federation.classes, facts], sort_keys=True)
    found.update(head.encode())
    for split in federation.splits:
        for array in (split.x, split.y, split.offsets):
            found.update(f"{array.dtype.str}{array.shape}".encode())
            for part in chunks(array):
                found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
