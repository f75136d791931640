"""CIFAR-10: 60,000 colour pictures of 32×32 in ten classes, from the published Python batches, read
without running them.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.files import Download, Published, corrupt, locate, missing, read_bytes, search
from coterie.data.labelled import SPLITS, Pictures, check_labels
from coterie.data.partition import FEDU_CIFAR, Growth
from coterie.data.scaling import Scaling

BATCHES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
)
PER_BATCH = 10_000
CIFAR10 = Published(
    "CIFAR-10",
    BATCHES,
    ("cifar10/cifar-10-batches-py", "cifar-10-batches-py", "cifar10"),
    "https://www.cs.toronto.edu/~kriz/cifar.html (cifar-10-python.tar.gz)",
    (
        Download(
            ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
            "cifar-10-python.tar.gz",
            "md5:c58f30108f718f92721af3b95e74349a",  # the publisher gives MD5 only
            dict.fromkeys(BATCHES),
        ),
    ),
)


class _ArraysOnly(pickle.Unpickler):
    """A pickle may name any function to call.

    Here only the three that rebuild a numpy array are known; any other name ends the reading.
    """

    KNOWN: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which a batch of pictures has no use for"
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside itself")


def read_batch(
    path: Path, count: int | None = None, key: bytes = b"labels", classes: int = 10
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Pictures (10,000 × 3,072 bytes, or `count` of them) and labels of one batch file."""
    count = PER_BATCH if count is None else count
    data = read_bytes(path)
    try:
        # The batches were written by Python 2, whose strings are bytes.
        batch = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise almost anything
        raise corrupt(path, str(error) or type(error).__name__) from None
    x = batch.get(b"data") if isinstance(batch, dict) else None
    y = batch.get(key) if isinstance(batch, dict) else None
    if (
        not isinstance(x, np.ndarray)
        or x.dtype != np.uint8
        or x.shape != (count, 3072)
        or not isinstance(y, list)
        or len(y) != count
    ):
        raise corrupt(
            path, f"it is not a batch of {count:,} pictures of 3,072 bytes with as many labels"
        )
    if not all(type(v) is int and 0 <= v < classes for v in y):
        raise corrupt(path, f"its labels are not numbers from 0 to {classes - 1}")
    return x, np.asarray(y, np.uint8)


def half_scaled(x: NDArray[Any]) -> Scaling:
    """FedU's (x/255 − 0.5)/0.5: the same for every pixel, so nothing is fitted."""
    half = np.full(x.shape[1:], 127.5, np.float32)
    return Scaling(half, half)


@source("cifar10")
class Cifar10(Pictures):
    """CIFAR-10: 60,000 colour pictures; by default FedU's 20 clients with 3 labels."""

    names = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    growth: ClassVar[Growth] = FEDU_CIFAR

    clients: int = option(20, "number of clients", symbol="N", low=1)
    split: str = option("fedu", "how samples are given to clients", choices=SPLITS)
    labels: int = option(3, "splits 'labels' and 'fedu': labels per client", low=1)
    shape: str = option(
        "image",
        "'flat': one row of numbers per picture; 'image': height × width × channels",
        choices=("flat", "image"),
    )
    partial: bool = option(
        False, "make do with the batches that are there (the sizes are then not the papers')"
    )

    def published(self) -> Published:
        return CIFAR10

    def found(self) -> Path | None:
        paths = search(CIFAR10, self.data_dir, partial=True)
        return next(iter(paths.values())).parent if paths else None

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        found = (
            search(CIFAR10, self.data_dir, partial=True)
            if self.partial
            else locate(CIFAR10, self.data_dir, download=self.download)
        )
        if not found:
            raise missing(CIFAR10, self.data_dir, "not one of its batches was found")

        def parse() -> Arrays:
            parts = [read_batch(path) for path in found.values()]
            x = np.concatenate([x for x, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            return {"x": np.ascontiguousarray(x), "y": np.concatenate([y for _, y in parts])}

        arrays = cached("cifar10", found.values(), parse)
        check_labels("CIFAR-10", arrays["y"], len(self.names))
        return arrays["x"], arrays["y"]

    def paper_scaling(self, x: NDArray[Any]) -> Scaling:
        return half_scaled(x)
