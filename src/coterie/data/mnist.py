"""MNIST and Fashion-MNIST: 70,000 pictures of 28×28 in ten classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.files import Download, Published
from coterie.data.idx import load_idx
from coterie.data.labelled import SPLITS, Pictures, check_labels

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
COUNTS = (60_000, 10_000)


def _downloads(bases: tuple[str, ...], hashes: tuple[str, ...]) -> tuple[Download, ...]:
    return tuple(
        Download(tuple(f"{base}/{f}.gz" for base in bases), f"{f}.gz", h)
        for f, h in zip(FILES, hashes, strict=True)
    )


MNIST = Published(
    "MNIST",
    FILES,
    ("mnist", "MNIST/raw"),
    "http://yann.lecun.com/exdb/mnist/ (mirror: https://ossci-datasets.s3.amazonaws.com/mnist/)",
    _downloads(
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist",
            "https://storage.googleapis.com/cvdf-datasets/mnist",
        ),
        (
            "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
)

# The publishers give MD5 only.
FASHION_MNIST = Published(
    "Fashion-MNIST",
    FILES,
    ("fashion-mnist", "FashionMNIST/raw"),
    "https://github.com/zalandoresearch/fashion-mnist",
    _downloads(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        ),
        (
            "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "md5:25c81989df183df01b3e8a0aad5dffbe",
            "md5:bef4ecab320f06d8554ea6380940ec79",
            "md5:bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
)


@source("mnist")
class Mnist(Pictures):
    """MNIST: 70,000 handwritten digits; FedU's split (100 clients), pFedMe's (20), or your own."""

    names = tuple("0123456789")

    split: str = option("fedu", "how samples are given to clients", choices=SPLITS)

    def published(self) -> Published:
        return MNIST

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        x, y = load_idx("mnist", MNIST, COUNTS, self.data_dir, self.download)
        check_labels("MNIST", y, len(self.names))
        return x, y


@source("fashion-mnist")
class FashionMnist(Pictures):
    """Fashion-MNIST: 70,000 pictures of clothes; by default the lp-proj paper's 100 clients with 2
    labels and 480 samples.
    """

    names = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )

    mean_size: int = option(480, "keep about so many samples per client on average (0: all)", low=0)

    def published(self) -> Published:
        return FASHION_MNIST

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        x, y = load_idx("fashion-mnist", FASHION_MNIST, COUNTS, self.data_dir, self.download)
        check_labels("Fashion-MNIST", y, len(self.names))
        self._balanced(y)
        return x, y

    def _balanced(self, y: NDArray[Any]) -> None:
        """MNIST's files have the same names; its classes are not balanced, these are."""
        from coterie.core.errors import InvalidInput

        if len(set(np.bincount(y, minlength=len(self.names)).tolist())) != 1:
            raise InvalidInput(
                "the files found for Fashion-MNIST have classes of different sizes, so they are not"
                " its published ones (MNIST's?)."
            )
