"""Attacks on messages.

The first three are those of the lp-proj paper (Sec. 5.4), with its strengths as defaults.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri

from coterie.adversary.base import Attack, Sight, attack, each
from coterie.core.options import option


@attack("same-value")
class SameValue(Attack):
    """A malicious client sends c in every coordinate, c ~ N(0, τ²) anew for each malicious
    client and round.
    """

    tau: float = option(100.0, "standard deviation of c", symbol="τ", low=0)

    def lies(self, sight: Sight) -> Any:
        c = self.tau * sight.per_message()
        return jax.tree.map(lambda m: jnp.broadcast_to(each(c, m), m.shape), sight.messages)


@attack("sign-flip")
class SignFlip(Attack):
    """A malicious client sends −|c| times what it should, c ~ N(0, τ²) anew for each malicious
    client and round.
    """

    tau: float = option(10.0, "standard deviation of c", symbol="τ", low=0)

    def lies(self, sight: Sight) -> Any:
        c = -jnp.abs(self.tau * sight.per_message())
        return jax.tree.map(lambda m: each(c, m) * m, sight.messages)


@attack("gaussian")
class Gaussian(Attack):
    """A malicious client sends noise, N(0, τ²) in every coordinate."""

    tau: float = option(100.0, "standard deviation of the noise", symbol="τ", low=0)

    def lies(self, sight: Sight) -> Any:
        leaves, structure = jax.tree.flatten(sight.messages)
        keys = jax.random.split(sight.key, len(leaves))
        return jax.tree.unflatten(
            structure,
            [
                self.tau * jax.random.normal(k, m.shape, m.dtype)
                for k, m in zip(keys, leaves, strict=True)
            ],
        )


@attack("scaled")
class Scaled(Attack):
    """A malicious client sends `factor` times what it should."""

    factor: float = option(20.0, "by which a message is multiplied")

    def lies(self, sight: Sight) -> Any:
        return jax.tree.map(lambda m: self.factor * m, sight.messages)


@attack("alie")
class ALittleIsEnough(Attack):
    """Malicious clients send the honest mean moved by z honest standard deviations in every
    coordinate: hidden among the honest, yet all to one side.

    Baruch, Baruch, Goldberg, NeurIPS 2019. z is the largest for which, if messages were normal,
    enough honest ones are farther away than the lie that a majority includes it: with m malicious
    clients of n and s = ⌊n/2 + 1⌋ − m, z = Φ⁻¹((n − m − s)/(n − m)). Malicious clients know all
    honest messages.
    """

    z: float | None = option(
        None, "how many standard deviations; nothing: as in the paper", symbol="z"
    )

    def lies(self, sight: Sight) -> Any:
        _, malicious = sight.of_the_round
        n, m = malicious.shape[0], malicious.sum()
        leaf = jax.tree.leaves(sight.messages)[0]
        if self.z is None:
            share = jnp.clip(
                (n - n // 2 - 1) / jnp.maximum(n - m, 1), 0.5, 0.999
            )  # n − m − s = n − ⌊n/2 + 1⌋
            z = ndtri(share.astype(leaf.dtype))
        else:
            z = jnp.asarray(self.z, leaf.dtype)
        lie = jax.tree.map(
            lambda mean, deviation: mean - z * deviation, sight.honest_mean, sight.honest_deviation
        )
        return jax.tree.map(lambda m, one: jnp.broadcast_to(one, m.shape), sight.messages, lie)


@attack("inner-product")
class InnerProduct(Attack):
    """Malicious clients send −ε times the honest mean, so that what the hub takes points away
    from it.

    Xie, Koyejo, Gupta, UAI 2019. Malicious clients know all honest messages.
    """

    epsilon: float = option(0.5, "how far beyond 0", symbol="ε", low=0)

    def lies(self, sight: Sight) -> Any:
        return jax.tree.map(
            lambda m, mean: jnp.broadcast_to(-self.epsilon * mean, m.shape),
            sight.messages,
            sight.honest_mean,
        )
