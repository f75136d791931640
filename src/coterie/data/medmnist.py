"""MedMNIST: small medical pictures in classes, an .npz file each; and files of the same form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.errors import InvalidInput
from coterie.core.files import read_arrays
from coterie.core.options import option
from coterie.data.base import source
from coterie.data.files import Download, Published, corrupt, locate
from coterie.data.labelled import Pictures

RECORD = "https://zenodo.org/record/6496656/files"
# The publisher gives MD5 only. ChestMNIST has several labels a picture; others are solids.
MD5 = {
    "pathmnist": "a8b06965200029087d5bd730944a56c1",
    "dermamnist": "0744692d530f8e62ec473284d019b0c7",
    "octmnist": "c68d92d5b585d8d81f7112f81e2d0842",
    "pneumoniamnist": "28209eda62fecd6e6a2d98b1501bb15f",
    "retinamnist": "bd4c0672f1bba3e3a89f0e4e876791e4",
    "breastmnist": "750601b1f35ba3300ea97c75c52ff8f6",
    "bloodmnist": "7053d0359d879ad8a5505303e11de1dc",
    "tissuemnist": "ebe78ee8b05294063de985d821c1c34b",
    "organamnist": "866b832ed4eeba67bfb9edee1d5544e6",
    "organcmnist": "0afa5834fb105f7705a7d93372119a21",
    "organsmnist": "e5c39f1af030238290b9557d9503af9d",
}
PARTS = ("train", "val", "test")


def published(variant: str) -> Published:
    file = f"{variant}.npz"
    return Published(
        f"MedMNIST ({variant})",
        (file,),
        ("medmnist", ".medmnist"),
        "https://medmnist.com (https://zenodo.org/record/6496656)",
        (Download((f"{RECORD}/{file}?download=1",), file, f"md5:{MD5[variant]}"),),
    )


def read_medmnist(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (samples, height, width, channels) and labels of all three parts of a file."""
    stored = read_arrays(path, "the pictures")
    pictures, labels = [], []
    for part in PARTS:
        x, y = stored.get(f"{part}_images"), stored.get(f"{part}_labels")
        if x is None or y is None:
            if part == "val":  # files of one's own need not have it
                continue
            raise corrupt(path, f"it lacks {part}_images or {part}_labels")
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or len(x) != len(y):
            raise corrupt(path, f"{part}_images are not pictures of bytes with a label each")
        if not np.issubdtype(y.dtype, np.integer) or y.reshape(len(y), -1).shape[1] != 1:
            raise corrupt(path, f"{part}_labels are not one whole number each")
        pictures.append(x[..., None] if x.ndim == 3 else x)
        labels.append(y.reshape(-1).astype(np.int64))
    if any(x.shape[1:] != pictures[0].shape[1:] for x in pictures):
        raise corrupt(path, "its parts have pictures of different shapes")
    x, y = np.concatenate(pictures), np.concatenate(labels)
    if not len(y) or y.min() < 0:
        raise corrupt(path, "it has no samples, or a label below 0")
    return x, y


@source("medmnist")
class MedMnist(Pictures):
    """MedMNIST: medical pictures of 28×28 in classes (`variant`), or your own .npz of that form."""

    variant: str = option("bloodmnist", "which published set", choices=tuple(MD5))
    path: str | None = option(
        None, "your own .npz with train_images, train_labels, test_images, …, instead of a variant"
    )
    clients: int = option(20, "number of clients", symbol="N", low=1)
    split: str = option("dirichlet", "how samples are given to clients", choices=Pictures.SPLITS)
    alpha: float = option(
        0.5, "split 'dirichlet': small is unequal, large is alike", symbol="α", above=0, static=True
    )
    shape: str = option(
        "image",
        "'flat': one row of numbers per picture; 'image': height × width × channels",
        choices=("flat", "image"),
    )

    def unused(self) -> dict[str, str]:
        given = () if self.path is None else ("variant", "data_dir", "download")
        mine = dict.fromkeys(given, "medmnist.path names the file")
        return {**super().unused(), **mine}

    def published(self) -> Published:
        return published(self.variant)

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        if self.path is None:
            (file,) = locate(self.published(), self.data_dir, download=self.download).values()
        else:
            file = Path(self.path).expanduser()
            if not file.is_file():
                raise InvalidInput(f"medmnist.path is {self.path!r}, but there is no such file.")
        return read_medmnist(file)

    def class_names(self, y: NDArray[Any]) -> tuple[str, ...]:
        """By number: the files do not name them."""
        return tuple(map(str, range(int(y.max()) + 1)))
