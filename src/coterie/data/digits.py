"""The 1,797 handwritten digits (8×8) that scikit-learn bundles, shipped with coterie: real data
that needs no download.
"""

from __future__ import annotations

from importlib import resources

import numpy as np

from coterie.core.options import option
from coterie.data.base import Source, source
from coterie.data.federation import Federation, from_arrays
from coterie.data.partition import downsample, labels_per_client


@source("digits")
class Digits(Source):
    """1,797 real 8×8 images of handwritten digits (UCI), label-skewed clients; shipped with
    coterie.
    """

    clients: int = option(20, "number of clients", symbol="N", low=1)
    fewest_labels: int = option(2, "the fewest digits a client holds", low=1)
    most_labels: int = option(3, "the most digits a client holds", low=1)
    spread: float = option(
        0.5, "how unequally a digit's samples are shared among its holders (0: equally)", low=0
    )
    validation: float = option(
        0.1, "share of each client's samples for validation", low=0, high=0.9
    )
    test: float = option(0.25, "share of each client's samples for testing", low=0, high=0.9)
    downsample: float = option(
        1.0,
        "share of its training samples that a down-sampled client keeps (1: no down-sampling)",
        above=0,
        high=1,
        static=True,
    )
    downsample_clients: float = option(
        0.5, "share of the clients that are down-sampled", low=0, high=1, static=True
    )

    def load(self, seed: int) -> Federation:
        with (
            resources.files("coterie.data").joinpath("digits.npz").open("rb") as f,
            np.load(f, allow_pickle=False) as z,
        ):
            x = z["x"].astype(np.float32) / np.float32(16)
            y = z["y"].astype(np.int32)
        rng = np.random.default_rng([seed, 0xD161])
        owner = labels_per_client(
            y, self.clients, self.fewest_labels, self.most_labels, rng, spread=self.spread
        )
        made = from_arrays(
            "digits", x, y, owner, classes=10, validation=self.validation, test=self.test, seed=seed
        )
        return (
            downsample(made, self.downsample, self.downsample_clients, seed)
            if self.downsample < 1
            else made
        )
