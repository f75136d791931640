"""Federated linear regression with a known answer (lp-proj paper, Section 4.2 and Appendix B)."""

from __future__ import annotations

import numpy as np

from coterie.core.options import option
from coterie.data.base import Source, source
from coterie.data.federation import Federation, Split


@source("linear")
class LinearRegression(Source):
    """Linear regression with orthogonal designs, Ξ_kᵀΞ_k = n·b_k·I: the solutions of most methods
    are known in closed form.

    y = Ξ_k w_k + z, w_k ~ N(w, spread·I), z ~ N(0, noise²). f_k(x) = ‖Ξ_k x − y_k‖² / 2n. `facts`
    holds b_k, ŵ_k (least squares) and w_k.
    """

    clients: int = option(10, "number of clients", symbol="N", low=1)
    samples: int = option(
        40, "training samples per client, at least `dimension`", symbol="n", low=1
    )
    dimension: int = option(8, "length of the model", symbol="d", low=1)
    scale: float = option(1.0, "b_k of the first client", symbol="b", above=0)
    scale_last: float = option(
        1.0, "b_k of the last client; those between are spaced evenly", above=0
    )
    spread: float = option(
        0.1, "variance of the clients' true models around their centre", symbol="Σ₁", low=0
    )
    noise: float = option(1.0, "standard deviation of the noise", symbol="σ", low=0)
    test_samples: int = option(20, "test samples per client", low=0)

    def validate(self) -> None:
        if self.samples < self.dimension:
            from coterie.core.errors import InvalidInput

            raise InvalidInput(
                f"linear.samples is {self.samples}, but must be at least linear.dimension ="
                f" {self.dimension}."
            )

    def load(self, seed: int) -> Federation:
        rng = np.random.default_rng([seed, 0x11EA])
        n, d, m = self.clients, self.dimension, self.samples
        b = np.linspace(self.scale, self.scale_last, n)
        centre = rng.standard_normal(d)
        truth = centre + np.sqrt(self.spread) * rng.standard_normal((n, d))
        x = np.stack(
            [np.linalg.qr(rng.standard_normal((m, d)))[0] * np.sqrt(m * b[k]) for k in range(n)]
        )
        y = np.einsum("kmd,kd->km", x, truth) + self.noise * rng.standard_normal((n, m))
        best = np.einsum("kmd,km->kd", x, y) / (m * b)[:, None]
        xt = rng.standard_normal((n, self.test_samples, d)) * np.sqrt(b)[:, None, None]
        yt = np.einsum("kmd,kd->km", xt, truth) + self.noise * rng.standard_normal(
            (n, self.test_samples)
        )

        def split(x: np.ndarray, y: np.ndarray) -> Split:
            each = x.shape[1]
            return Split(x.reshape(-1, d), y.reshape(-1), np.arange(n + 1, dtype=np.int64) * each)

        return Federation(
            "linear",
            split(x, y),
            split(xt[:, :0], yt[:, :0]),
            split(xt, yt),
            task="regression",
            facts={"b": b, "least_squares": best, "truth": truth},
            per_client=("b", "least_squares", "truth"),
        )
