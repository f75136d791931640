"""Synthetic(α, β): a different linear classifier and a different input distribution for every client."""

from __future__ import annotations

import numpy as np

from coterie.data.base import Source, source
from coterie.data.federation import Federation, from_arrays
from coterie.options import option


@source("synthetic")
class Synthetic(Source):
    """Synthetic(α, β) of the FedProx paper: 10 classes from 60 numbers, client by client a different rule.

    y = argmax(W_k x + b_k), entries of W_k and b_k ~ N(μ_k, 1), μ_k ~ N(0, α); x ~ N(v_k, Σ), Σ diagonal with Σ_jj = j^−1.2, entries of v_k ~ N(B_k, 1),
    B_k ~ N(0, β). α and β are variances here, as the papers write them.
    """

    clients: int = option(100, "number of clients", symbol="N", low=1)
    alpha: float = option(0.0, "how much the clients' rules differ", symbol="α", low=0)
    beta: float = option(0.0, "how much the clients' inputs differ", symbol="β", low=0)
    sizes: str = option("power-law", "how many samples a client has", choices=("power-law", "equal"))
    mean_size: int = option(200, "samples per client (power-law: roughly the mean)", low=4)
    smallest: int = option(50, "power-law: the fewest samples of a client", low=4)
    largest: int = option(1000, "power-law: the most samples of a client", low=4)
    features: int = option(60, "numbers per sample", low=1)
    classes: int = option(10, "number of classes", low=2)
    validation: float = option(0.1, "share of each client's samples for validation", low=0, high=0.9)
    test: float = option(0.25, "share of each client's samples for testing", low=0, high=0.9)

    def load(self, seed: int) -> Federation:
        rng = np.random.default_rng([seed, 0x517])
        n = self.clients
        if self.sizes == "equal":
            sizes = np.full(n, self.mean_size)
        else:
            # Log-normal with σ = 1 above the smallest size, as the published generators do, cut at the largest.
            extra = max(self.mean_size - self.smallest, 1)
            sizes = np.clip(self.smallest + rng.lognormal(np.log(extra) - 0.5, 1.0, n), self.smallest, max(self.largest, self.smallest))
            sizes = sizes.astype(int)
        mu = rng.normal(0, np.sqrt(self.alpha), n)
        centre = rng.normal(0, np.sqrt(self.beta), n)
        scale = np.sqrt(np.arange(1, self.features + 1) ** -1.2)
        xs, ys = [], []
        for k in range(n):
            w = rng.normal(mu[k], 1, (self.features, self.classes))
            b = rng.normal(mu[k], 1, self.classes)
            v = rng.normal(centre[k], 1, self.features)
            x = v + scale * rng.standard_normal((sizes[k], self.features))
            xs.append(x.astype(np.float32))
            ys.append(np.argmax(x @ w + b, axis=1).astype(np.int32))
        owner = np.repeat(np.arange(n), sizes)
        return from_arrays(
            f"synthetic({self.alpha:g}, {self.beta:g})",
            np.concatenate(xs),
            np.concatenate(ys),
            owner,
            classes=self.classes,
            validation=self.validation,
            test=self.test,
            seed=seed,
        )
