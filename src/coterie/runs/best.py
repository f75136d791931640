"""The states of the best round in a run's folder (`training.keep = "best"`).

They are files of the checkpoints' folder, and every checkpoint names those that belong to it. Runs
whose states are in memory hold the best round there too, and write it with the next checkpoint.
Runs whose states are in a file write it at once, so that it takes no memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from coterie.core.files import digest, writing
from coterie.engine.keeper import held
from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Saved

Named = tuple[str, str]
"""A file of the folder and its SHA-256."""


def save_arrays(path: Path, arrays: dict[str, Any]) -> Named:
    """Write arrays at once or not at all; gives the file's name and checksum."""
    with writing(path) as temporary:
        save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, temporary)
    return path.name, digest(path)


class BestFiles:
    """A shelf (see `engine.keeper`) in the folder of a run's checkpoints."""

    def __init__(self, folder: Path, *, at_once: bool) -> None:
        self.folder, self.at_once = folder, at_once
        self.held: Saved | None = None
        """Not written yet."""
        self.noted: dict[str, Any] | None = None
        """The round, files and bill of what is written."""

    def put(self, simulator: Simulator) -> None:
        self.held = held(simulator)
        if self.at_once:
            self.entry()

    def entry(self) -> dict[str, Any] | None:
        """What a checkpoint notes of the best round, once its files are there."""
        if self.held is not None:
            saved, self.held = self.held, None
            name, ((ids, packed),) = f"{saved.t:08d}.best", saved.rows
            self.noted = {
                "round": saved.t,
                "rows": save_arrays(
                    self.folder / f"{name}-rows.safetensors", {"ids": ids, "rows": packed}
                ),
                "hub": save_arrays(self.folder / f"{name}-hub.safetensors", saved.hub),
                "totals": saved.totals,
            }
        return self.noted

    def get(self) -> Saved:
        if self.held is not None:
            return self.held
        noted = self.noted
        assert noted is not None
        rows = load_file(self.folder / noted["rows"][0])
        hub = load_file(self.folder / noted["hub"][0])
        return Saved(noted["round"], hub, noted["totals"], [(rows["ids"], rows["rows"])])


def files_of(manifest: dict[str, Any]) -> list[Named]:
    """The files that a checkpoint's manifest names, with their checksums."""
    best = (manifest.get("keeper") or {}).get("files")
    named = [*manifest["rows"], manifest["hub"]]
    return named if best is None else [*named, best["rows"], best["hub"]]
