"""CIFAR-100: 60,000 colour pictures of 32×32 in 100 classes, or in 20 groups of five of them; from
the published Python files, read without running them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.cache import Arrays, cached
from coterie.data.cifar10 import half_scaled, read_batch
from coterie.data.files import Download, Published, locate
from coterie.data.labelled import Pictures
from coterie.data.scaling import Scaling

COUNTS = {"train": 50_000, "test": 10_000}
CIFAR100 = Published(
    "CIFAR-100",
    tuple(COUNTS),
    ("cifar100/cifar-100-python", "cifar-100-python", "cifar100"),
    "https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-python.tar.gz)",
    (
        Download(
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            "cifar-100-python.tar.gz",
            "md5:eb9058c3a382ffc7106e4002c42a8d85",  # the publisher gives MD5 only
            dict.fromkeys(COUNTS),
        ),
    ),
)
CLASSES = {"fine": 100, "coarse": 20}


@source("cifar100")
class Cifar100(Pictures):
    """CIFAR-100: 60,000 colour pictures; by default PFLlib's 20 clients with 10 of 100 labels.

    The files number the classes and do not name them; so does this source.
    """

    level: str = option(
        "fine", "100 classes, or the 20 groups that they belong to", choices=tuple(CLASSES)
    )
    clients: int = option(20, "number of clients", symbol="N", low=1)
    labels: int = option(10, "splits 'labels' and 'fedu': labels per client", low=1)
    shape: str = option(
        "image",
        "'flat': one row of numbers per picture; 'image': height × width × channels",
        choices=("flat", "image"),
    )

    def published(self) -> Published:
        return CIFAR100

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(map(str, range(CLASSES[self.level])))

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        found = locate(CIFAR100, self.data_dir, download=self.download)

        def parse() -> Arrays:
            made: Arrays = {}
            for level, classes in CLASSES.items():
                key = f"{level}_labels".encode()
                parts = [read_batch(p, COUNTS[name], key, classes) for name, p in found.items()]
                made[level] = np.concatenate([y for _, y in parts])
                made["x"] = np.concatenate([x for x, _ in parts])
            made["x"] = np.ascontiguousarray(made["x"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            return made

        arrays = cached("cifar100", found.values(), parse)
        return arrays["x"], arrays[self.level]

    def paper_scaling(self, x: NDArray[np.uint8]) -> Scaling:
        return half_scaled(x)
