"""FEMNIST: handwritten characters by writer (3,550 in all), in LEAF's JSON form."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.emnist import NAMES
from coterie.data.federation import Federation
from coterie.data.files import Published, corrupt
from coterie.data.labelled import Prepared
from coterie.data.leaf import absent, leaf_files, read_users
from coterie.data.partition import natural

CLASSES = NAMES["byclass"]
PIXELS = 28 * 28
FEMNIST = Published(
    "FEMNIST",
    ("the JSON files that LEAF's script femnist/preprocess.sh makes",),
    ("femnist", "leaf/data/femnist", "leaf/femnist"),
    "https://leaf.cmu.edu (https://github.com/TalwalkarLab/leaf)",
)


def _parse(paths: list[Path]) -> Arrays:
    pictures, labels, writers = [], [], []
    names: list[str] = []
    for path, writer, x, y in read_users(paths):
        if not x:
            continue
        try:
            seen, label = np.asarray(x, np.float32), np.asarray(y, np.int64)
        except ValueError:
            raise corrupt(path, f"the pictures of {writer!r} are not numbers") from None
        if seen.shape != (len(x), PIXELS) or seen.min() < 0 or seen.max() > 1:
            raise corrupt(path, f"the pictures of {writer!r} are not {PIXELS} numbers from 0 to 1")
        if label.min() < 0 or label.max() >= len(CLASSES):
            raise corrupt(path, f"the labels of {writer!r} are not from 0 to {len(CLASSES) - 1}")
        pictures.append(np.round(255 * seen).astype(np.uint8))
        labels.append(label)
        writers.append(np.full(len(x), len(names)))
        names.append(writer)
    if not names:
        raise corrupt(paths[0], "it holds no pictures")
    return {
        "x": np.concatenate(pictures).reshape(-1, 28, 28, 1),
        "y": np.concatenate(labels),
        "writer": np.asarray(names)[np.concatenate(writers)],
    }


@source("femnist")
class Femnist(Prepared):
    """FEMNIST: handwritten characters in 62 classes, one client per writer (LEAF)."""

    least: int = option(10, "writers with fewer samples are left out", low=1)
    most: int = option(0, "so many writers, those with the most samples (0: all)", low=0)
    shape: str = option(
        "flat",
        "'flat': one row of numbers per picture; 'image': height × width × channels",
        choices=("flat", "image"),
    )

    def published(self) -> Published:
        return FEMNIST

    def found(self) -> Path | None:
        paths = leaf_files(FEMNIST, self.data_dir)
        return paths[0].parent if paths else None

    def load(self, seed: int) -> Federation:
        paths = leaf_files(FEMNIST, self.data_dir)
        if not paths:
            raise absent(FEMNIST, self.data_dir)
        arrays = cached("femnist", paths, lambda: _parse(paths))
        owner, writers = self.largest(*natural(arrays["writer"]), self.least, self.most)
        x, y, more = self.hide(arrays["x"], arrays["y"], owner, seed, len(CLASSES))
        x = x.reshape(len(x), -1) if self.shape == "flat" else x
        facts = {"labels": list(CLASSES), "clients": writers, **more}
        return self.assemble(x, y, owner, seed, classes=len(CLASSES), facts=facts, scaling=None)
