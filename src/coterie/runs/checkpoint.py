"""Checkpoints that survive a kill at any moment.

A checkpoint is a manifest (JSON) that names its files and their SHA-256: the hub's state, and the
clients' rows. Rows are written as changes since the checkpoint before, so that cost follows the
cohort and not N; when the changes add up to more than everything, everything is written anew. The
manifest is written last and atomically. The last two checkpoints are kept; one that does not verify
is passed over, and that is said.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from coterie.core.errors import InvalidInput
from coterie.core.files import digest, write_json
from coterie.core.options import as_written
from coterie.engine.keeper import Keeper
from coterie.engine.simulator import Simulator
from coterie.engine.snapshot import Saved
from coterie.engine.training import Training
from coterie.runs.best import BestFiles, files_of, save_arrays
from coterie.runs.experiment import Experiment, differences

KEEP = 2
ANEW = 1.5
"""Everything is written anew when the changes add up to so many times all rows there are. With 1,
two cohorts of many clients that share a single one would do.
"""
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, SafetensorError)
"""What reading a damaged checkpoint raises, beside what the system says."""


def _folder(run: Path) -> Path:
    return run / "checkpoints"


class RowFiles(Sequence[tuple[np.ndarray, np.ndarray]]):
    """Clients and their states as bytes, a part of a checkpoint each; read when they are asked
    for, so that one part at a time is in memory.
    """

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return RowFiles(self.files[i])
        part = load_file(self.files[i])
        return part["ids"], part["rows"]

    def ids(self) -> list[np.ndarray]:
        found = []
        for path in self.files:
            with safe_open(path, "numpy") as file:
                found.append(file.get_tensor("ids"))
        return found


class Checkpoints:
    """Writes and reads the checkpoints of one run folder."""

    def __init__(
        self,
        run: Path,
        fingerprint: str,
        config: dict[str, Any],
        training: Training | None = None,
    ) -> None:
        self.folder, self.fingerprint, self.config = _folder(run), fingerprint, config
        self.folder.mkdir(exist_ok=True)
        training = training or Training()
        self.best = BestFiles(self.folder, at_once=training.store == "file")
        self.keeper = Keeper(training, self.best)
        self.chain: list[tuple[str, str]] = []
        self.chain_rows = 0
        self.touched: np.ndarray | None = None

    def write(self, simulator: Simulator) -> None:
        """Save the state after simulator.t rounds."""
        if self.touched is None:
            self.touched = np.zeros(simulator.spec.clients, bool)
        changed = simulator.changed()
        self.touched[changed] = True
        if self.chain and self.chain_rows + len(changed) > ANEW * self.touched.sum():
            self.chain, self.chain_rows, changed = [], 0, np.flatnonzero(self.touched)
        for i, part in enumerate(simulator.store.parts(changed)):
            saved = simulator.state(part)
            t, ((ids, packed),) = saved.t, saved.rows
            rows = f"{t:08d}.rows{f'-{i}' if i else ''}.safetensors"
            entry = save_arrays(self.folder / rows, {"ids": ids, "rows": packed})
            self.chain = [*self.chain, entry]
            del packed
        self.chain_rows += len(changed)
        hub_file = f"{t:08d}.hub.safetensors"
        manifest = {
            "round": t,
            "fingerprint": self.fingerprint,
            "config": self.config,
            "rows": self.chain,
            "hub": save_arrays(self.folder / hub_file, saved.hub),
            "totals": saved.totals,
        }
        if not simulator.training.plain:
            manifest["keeper"] = self.keeper.to_config() | {"files": self.best.entry()}
        write_json(self.folder / f"{t:08d}.json", manifest)
        self._tidy()

    def _tidy(self) -> None:
        """Drop what the last KEEP checkpoints do not need."""
        needed: set[Path] = set()
        for path in sorted(self.folder.glob("*.json"))[-KEEP:]:
            try:
                found = json.loads(path.read_text())
                named = {self.folder / name for name, _ in files_of(found)}
            except (OSError, *DAMAGED):  # worth nothing: it goes
                continue
            needed |= {path, *named}
        for path in self.folder.iterdir():
            if path not in needed:
                path.unlink()

    def restore(self, simulator: Simulator, say: Callable[[str], None]) -> bool:
        """Bring a fresh simulator to the newest checkpoint that verifies; False when there is
        none.
        """
        for path in sorted(self.folder.glob("*.json"), reverse=True):
            try:
                manifest, hub = self._verify(path)
            except (OSError, *DAMAGED) as error:
                why = str(error) or type(error).__name__
                say(f"checkpoint {path.name} is damaged ({why}); falling back to the one before.")
                continue
            if manifest["fingerprint"] != self.fingerprint:
                self._refuse_changed(manifest["config"])
            self._load(simulator, manifest, hub)
            return True
        return False

    @property
    def any(self) -> bool:
        """Whether there is one at all, sound or not."""
        return self.folder.is_dir() and any(self.folder.glob("*.json"))

    def _refuse_changed(self, then: dict[str, Any]) -> None:
        """Refuse another config than the run began with, unless it says the same in another way
        (earlier versions wrote options that are without effect, too).
        """
        with as_written(), contextlib.suppress(InvalidInput):
            then = Experiment.from_config(then).to_config()
        if then != self.config:
            changed = differences(then, self.config) or ["something"]
            raise InvalidInput(
                f"the config was changed since the run began: {'; '.join(changed)}. Undo that, or"
                " start a new run."
            )

    def _verify(self, path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The manifest and the hub's arrays."""
        manifest = json.loads(path.read_text())
        missing = {"round", "fingerprint", "config", "rows", "hub", "totals"} - set(manifest)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        for name, expected in files_of(manifest):
            if digest(self.folder / name) != expected:
                raise ValueError(f"{name} does not have the checksum that was noted")
        self._rows(manifest).ids()  # refuses what is no such file
        return manifest, load_file(self.folder / manifest["hub"][0])

    def _rows(self, manifest: dict[str, Any]) -> RowFiles:
        return RowFiles([self.folder / name for name, _ in manifest["rows"]])

    def _load(
        self,
        simulator: Simulator,
        manifest: dict[str, Any],
        hub: dict[str, np.ndarray],
    ) -> None:
        rows = self._rows(manifest)
        simulator.restore(Saved(manifest["round"], hub, manifest["totals"], rows))
        if "keeper" in manifest:
            self.keeper.carry_on(manifest["keeper"])
            self.best.held, self.best.noted = None, manifest["keeper"]["files"]
        self.touched = np.zeros(simulator.spec.clients, bool)
        for ids in rows.ids():
            self.touched[ids] = True
            self.chain_rows += len(ids)
        self.chain = [(a, b) for a, b in manifest["rows"]]
        for path in self.folder.glob(
            "*.json"
        ):  # what came after is worthless: it was damaged, or it would be written again
            if int(path.stem) > simulator.t:
                path.unlink()
