"""UCI Human Activity Recognition: 30 people, 561 features of a phone's motion, six activities;
every person is a client.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.federation import Federation
from coterie.data.files import Download, Published, corrupt, locate, read_bytes
from coterie.data.labelled import Prepared
from coterie.data.partition import natural

ROWS = {"train": 7352, "test": 2947}
FEATURES = 561
PEOPLE = 30
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
FILES = tuple(f"{part}/{kind}_{part}.txt" for part in ROWS for kind in ("X", "y", "subject"))
HAR = Published(
    "UCI HAR",
    FILES,
    ("uci-har/UCI HAR Dataset", "UCI HAR Dataset", "har/UCI HAR Dataset", "uci-har", "har"),
    "https://archive.ics.uci.edu/dataset/240/human+activity+recognition+using+smartphones",
    (
        # No checksum of the archive is published (UCI has packed it anew at least once); the files
        # inside are checked instead.
        Download(
            (
                "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
            ),
            "uci-har.zip",
            None,
            {
                "train/X_train.txt": (
                    "32c777e74ef81f9e8e3082230d14bdaad948626b8b3c0fbfc8d1bdcde995094b"
                ),
                "train/y_train.txt": (
                    "415b3357e2e2d5e70a45c781947c6bdd80e0410a579d862eedcd6bbce3c694ef"
                ),
                "train/subject_train.txt": (
                    "66e1e2fbe9b396fa5155f531dc3348c803f503be663e2318772d49947db9153a"
                ),
                "test/X_test.txt": (
                    "12abbfa7391bfb94a8962510b8f5b494ba0d8af3cce16382d890f0341241d884"
                ),
                "test/y_test.txt": (
                    "2a94cb53ca46b956c1b2aebd4a09a72badd8a8e9ea9cdfe9f31b3306a08666bb"
                ),
                "test/subject_test.txt": (
                    "63b8c577f4a85431c06bd87f6384608c90a9f72f05c7956dd21255dc63515c07"
                ),
            },
        ),
    ),
)


def _numbers(path: Path, rows: int, columns: int, dtype: Any) -> NDArray[Any]:
    """A table of numbers separated by blanks, which must have exactly this size."""
    try:
        table = np.loadtxt(io.BytesIO(read_bytes(path)), dtype=dtype, ndmin=2)
    except ValueError as error:
        raise corrupt(path, str(error).split(";")[0].rstrip(".")) from None
    if table.shape != (rows, columns):
        raise corrupt(
            path,
            f"it has {table.shape[0]} rows of {table.shape[1]} numbers instead of {rows} of"
            f" {columns}",
        )
    return table


def _parse(paths: dict[str, Path]) -> Arrays:
    parts: dict[str, list[NDArray[Any]]] = {"X": [], "y": [], "subject": []}
    for part, rows in ROWS.items():
        for kind, highest in (("X", None), ("y", len(ACTIVITIES)), ("subject", PEOPLE)):
            path = paths[f"{part}/{kind}_{part}.txt"]
            table = _numbers(
                path, rows, 1 if highest else FEATURES, np.int32 if highest else np.float32
            )
            if highest and not (table.min() >= 1 and table.max() <= highest):
                raise corrupt(path, f"its numbers are not from 1 to {highest}")
            parts[kind].append(table)
    return {
        "x": np.concatenate(parts["X"]),
        "y": np.concatenate(parts["y"])[:, 0] - 1,
        "subject": np.concatenate(parts["subject"])[:, 0],
    }


@source("har")
class Har(Prepared):
    """UCI HAR: 10,299 samples of 30 people, one client each; 561 features, 6 activities.

    The publishers' own division by person into a training and a test file is not used: each
    person's samples are cut instead, so that everybody has both. The features are published scaled
    to [−1, 1], therefore they are not standardised unless you ask for it.
    """

    standardise: bool = option(
        False, "zero mean and unit variance per feature, fitted on training data"
    )

    def published(self) -> Published:
        return HAR

    def load(self, seed: int) -> Federation:
        paths = locate(HAR, self.data_dir, download=self.download)
        arrays = cached("har", paths.values(), lambda: _parse(paths))
        owner, people = natural(arrays["subject"])
        facts = {"labels": list(ACTIVITIES), "clients": [f"subject {p}" for p in people]}
        x, y, more = self.hide(arrays["x"], arrays["y"], owner, seed, len(ACTIVITIES))
        return self.assemble(
            x,
            y,
            owner,
            seed,
            classes=len(ACTIVITIES),
            facts=facts | more,
            scaling=None,
        )
