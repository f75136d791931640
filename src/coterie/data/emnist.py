"""EMNIST: handwritten letters and digits, in the variants "byclass" (62 classes) and "balanced"
(47).
"""

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data.base import source
from coterie.data.files import Download, Published
from coterie.data.idx import load_idx
from coterie.data.labelled import Pictures, check_labels

COUNTS = {"byclass": (697_932, 116_323), "balanced": (112_800, 18_800)}
NAMES = {
    "byclass": tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase),
    "balanced": tuple(string.digits + string.ascii_uppercase + "abdefghnqrt"),
}


def _files(variant: str) -> tuple[str, ...]:
    return tuple(
        f"emnist-{variant}-{part}-{kind}"
        for part in ("train", "test")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )


def published(variant: str) -> Published:
    """NIST publishes one zip (of gzip files) for all variants, without a checksum; the MD5 is the
    one that torchvision checks.
    """
    archive = Download(
        ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
        "emnist-gzip.zip",
        "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        {f"{f}.gz": None for v in COUNTS for f in _files(v)},
    )
    home = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
    return Published(
        f"EMNIST ({variant})",
        _files(variant),
        ("emnist", "emnist/gzip", "EMNIST/raw", "gzip"),
        home,
        (archive,),
    )


@source("emnist")
class Emnist(Pictures):
    """EMNIST: handwritten characters; by default the lp-proj paper's 248 clients with 10 of 62
    classes and 2,000 samples.
    """

    variant: str = option("byclass", "which published variant", choices=("byclass", "balanced"))
    clients: int = option(248, "number of clients", symbol="N", low=1)
    labels: int = option(10, "splits 'labels' and 'fedu': labels per client", low=1)
    mean_size: int = option(
        2000, "keep about so many samples per client on average (0: all)", low=0
    )

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return NAMES[self.variant]

    def published(self) -> Published:
        return published(self.variant)

    def pictures(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        # The published pictures lie on their side; transposed they stand like MNIST's.
        x, y = load_idx(
            f"emnist-{self.variant}",
            published(self.variant),
            COUNTS[self.variant],
            self.data_dir,
            self.download,
            transposed=True,
        )
        check_labels("EMNIST", y, len(self.names))
        return x, y
