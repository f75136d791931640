"""Synthetic(α, β): a different linear classifier and a different input distribution for every
client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.options import option
from coterie.data import clusters, partition
from coterie.data.base import Source, source
from coterie.data.federation import Federation, Split, cut, from_arrays

SIZES = ("power-law", "equal", "fedprox", "lp-proj", "pfedme")
LP_PROJ_MEAN = 202
SMALLEST = 50


@source("synthetic")
class Synthetic(Source):
    """Synthetic(α, β) of the FedProx paper: 10 classes from 60 numbers, client by client a
    different rule.

    y = argmax(W_k x + b_k), entries of W_k and b_k ~ N(μ_k, 1), μ_k ~ N(0, α); x ~ N(v_k, Σ), Σ
    diagonal with Σ_jj = j^−1.2, entries of v_k ~ N(B_k, 1), B_k ~ N(0, β). α and β are variances
    here, as the papers write them.

    Sizes: "power-law" is log-normal between `smallest` and `largest`; "fedprox" is ⌊log-normal(4,
    2)⌋ + 50, what the FedProx authors call a power law; "lp-proj" is that law shared out so that
    the mean is the lp-proj paper's 202, as in its App. C.7.1 (its main tables are on "equal" with
    mean_size = 202); "pfedme" is five times the FedProx law as pFedMe's authors drew it (numpy's
    legacy generator, seed 0): 250 to 25,810 for 100 clients, whatever the seed.

    protocol = "paper" is the very data of pFedMe's generator for N clients: sizes "pfedme",
    everything from that one legacy stream, α and β used as standard deviations (so the code, unlike
    the text), 10% for testing. Only the cut into training and test follows the seed.
    """

    clients: int = option(100, "number of clients", symbol="N", low=1)
    alpha: float = option(0.0, "how much the clients' rules differ", symbol="α", low=0)
    beta: float = option(0.0, "how much the clients' inputs differ", symbol="β", low=0)
    sizes: str = option("power-law", "how many samples a client has", choices=SIZES)
    mean_size: int = option(200, "samples per client (power-law: roughly the mean)", low=4)
    smallest: int = option(50, "power-law: the fewest samples of a client", low=4)
    largest: int = option(1000, "power-law: the most samples of a client", low=4)
    features: int = option(60, "numbers per sample", low=1)
    classes: int = option(10, "number of classes", low=2)
    hidden: int = option(
        0,
        "so many rules, each shared by a hidden cluster of clients; 0: every client has its own",
        low=0,
    )
    validation: float = option(
        0.1, "share of each client's samples for validation", low=0, high=0.9
    )
    test: float = option(0.25, "share of each client's samples for testing", low=0, high=0.9)
    protocol: str = option(
        "honest",
        "'paper': the data of pFedMe's generator, to the last draw",
        choices=("honest", "paper"),
    )
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

    def unused(self) -> dict[str, str]:
        reason = 'synthetic.protocol is "paper", which has no clusters'
        return {**super().unused(), **({"hidden": reason} if self.protocol == "paper" else {})}

    def load(self, seed: int) -> Federation:
        made = self._published(seed) if self.protocol == "paper" else self._drawn(seed)
        return (
            partition.downsample(made, self.downsample, self.downsample_clients, seed)
            if self.downsample < 1
            else made
        )

    def _sizes(self, rng: np.random.Generator) -> NDArray[np.int64]:
        n = self.clients
        if self.sizes == "equal":
            return np.full(n, self.mean_size)
        if self.sizes == "fedprox":
            return rng.lognormal(4, 2, n).astype(np.int64) + SMALLEST
        if self.sizes == "lp-proj":
            return SMALLEST + partition.apportion(
                n * (LP_PROJ_MEAN - SMALLEST), rng.lognormal(4, 2, n), minimum=0
            )
        if self.sizes == "pfedme":
            return _pfedme_sizes(np.random.RandomState(0), n)
        # Log-normal with σ = 1 above the smallest size, as the published generators do, cut at the
        # largest.
        extra = max(self.mean_size - self.smallest, 1)
        sizes = np.clip(
            self.smallest + rng.lognormal(np.log(extra) - 0.5, 1.0, n),
            self.smallest,
            max(self.largest, self.smallest),
        )
        return sizes.astype(int)

    @property
    def _title(self) -> str:
        return f"synthetic({self.alpha:g}, {self.beta:g})"

    def _drawn(self, seed: int) -> Federation:
        rng = np.random.default_rng([seed, 0x517])
        n = self.clients
        sizes = self._sizes(rng)
        mu = rng.normal(0, np.sqrt(self.alpha), n)
        centre = rng.normal(0, np.sqrt(self.beta), n)
        scale = np.sqrt(np.arange(1, self.features + 1) ** -1.2)
        xs, ys = [], []
        of = clusters.drawn(n, self.hidden, seed) if self.hidden else None
        rules: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        for k in range(n):
            w = rng.normal(mu[k], 1, (self.features, self.classes))
            b = rng.normal(mu[k], 1, self.classes)
            if of is not None:
                w, b = rules.setdefault(int(of[k]), (w, b))
            v = rng.normal(centre[k], 1, self.features)
            x = v + scale * rng.standard_normal((sizes[k], self.features))
            xs.append(x.astype(np.float32))
            ys.append(np.argmax(x @ w + b, axis=1).astype(np.int32))
        owner = np.repeat(np.arange(n), sizes)
        return from_arrays(
            self._title,
            np.concatenate(xs),
            np.concatenate(ys),
            owner,
            classes=self.classes,
            validation=self.validation,
            test=self.test,
            seed=seed,
            facts={} if of is None else {"cluster": of.tolist()},
        )

    def _published(self, seed: int) -> Federation:
        """One legacy stream, in the published order: sizes, μ, B, all v_k, then per client W_k,
        b_k, x.
        """
        legacy = np.random.RandomState(0)
        n, d = self.clients, self.features
        sizes = _pfedme_sizes(legacy, n)
        mu, centre = legacy.normal(0, self.alpha, n), legacy.normal(0, self.beta, n)
        v = [legacy.normal(centre[k], 1, d) for k in range(n)]
        covariance = np.diag(np.arange(1, d + 1) ** -1.2)
        xs: list[NDArray[Any]] = []
        ys: list[NDArray[Any]] = []
        for k in range(n):
            w, b = legacy.normal(mu[k], 1, (d, self.classes)), legacy.normal(mu[k], 1, self.classes)
            x = legacy.multivariate_normal(v[k], covariance, sizes[k])
            xs.append(x.astype(np.float32))
            ys.append(np.argmax(x @ w + b, axis=1).astype(np.int32))
        x, y = np.concatenate(xs), np.concatenate(ys)
        pieces = cut(
            np.repeat(np.arange(n), sizes), validation=0.0, test=0.1, seed=seed, whole_train=True
        )
        train, none, test = (Split(x[rows], y[rows], offsets) for rows, offsets in pieces)
        return Federation(
            self._title, train, none, test, classes=self.classes, facts={"protocol": "paper"}
        )


def _pfedme_sizes(legacy: np.random.RandomState, clients: int) -> NDArray[np.int64]:
    return np.asarray((legacy.lognormal(4, 2, clients).astype(np.int64) + SMALLEST) * 5)
