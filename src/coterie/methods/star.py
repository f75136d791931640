"""Methods with a hub in the middle: what the hub says, what it hears, what it makes of it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.vector import Vector
from coterie.coupling import merges
from coterie.methods.base import Method


class Cohort(NamedTuple):
    """The clients whose messages a hub merges: their numbers and what each counts in a mean."""

    ids: Any
    weights: Any


class StarMethod(Method):
    """hub: broadcast → clients: local → hub: merge."""

    addressed: ClassVar[bool] = False
    """True when the hub tells each client something of its own."""
    begins_from_received: ClassVar[bool] = False
    """True when a message is what the client received, moved by its local work; False when it is
    something of the client's own.
    """

    def hub_init(self, template: Vector) -> Any:
        """What the hub keeps."""
        return ()

    def broadcast(self, hub: Any, client: Any) -> Any:
        """The message from the hub to a client.

        The same for all, unless the method is `addressed`.
        """
        return hub

    def reference(self, received: Any, message: Any) -> Any:
        """What both ends know beforehand that is near the message; compressors send the
        difference to it.

        What the client received, where that has the shape of a message; else nothing (zeros).
        """
        alike = bool(jax.tree.structure(received) == jax.tree.structure(message)) and all(  # type: ignore[operator]
            a.shape == b.shape
            for a, b in zip(jax.tree.leaves(received), jax.tree.leaves(message), strict=True)
        )
        return received if alike else jax.tree.map(jnp.zeros_like, message)

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        """On the hub: messages of the sampled clients, stacked along axis 0 in the order of
        `cohort`.
        """
        return hub

    def welcome(self, hub: Any, received: Any, sent: Any) -> Any:
        """What a newcomer hears.

        `received` is what all hear, `sent` the sum of what it would have sent so far (and did not).
        """
        return received

    @property
    def by_samples(self) -> bool:
        """True when a client counts in the mean by its training samples, False when all count
        alike.
        """
        return False


def beta_mix(old: Any, new: Any, beta: Any) -> Any:
    """(1 − β)·old + β·new, exact for β = 1."""
    return jax.tree.map(lambda a, b: b + (1.0 - beta) * (a - b), old, new)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Averaging(StarMethod):
    """Shared by methods with a hub that averages what the sampled clients send."""

    begins_from_received: ClassVar[bool] = True
    renamed: ClassVar[dict[str, str]] = {"liars": "byzantine"}

    beta: Number = option(
        1.0, "weight of the new mean at the hub: w ← (1−β)w + β·mean", symbol="β", above=0
    )
    weighting: str = option(
        "uniform",
        "what a client counts in the mean: alike, or by its training samples",
        choices=("uniform", "samples"),
    )

    merging: str = option(
        "mean",
        "what the hub takes of the messages: their mean, or something that withstands Byzantine"
        " clients",
        choices=merges.KINDS,
    )
    trim: float = option(0.1, 'merging "trimmed": the share cut off at either end', low=0, high=0.5)
    byzantine: int = option(
        1,
        'merging "krum" and "multi-krum": how many Byzantine clients to withstand',
        symbol="f",
        low=0,
    )
    clip: Number = option(
        1.0,
        'merging "clipping": the length to which each difference to the old model is cut',
        above=0,
    )

    @property
    def by_samples(self) -> bool:
        return self.weighting == "samples"

    def aggregate(self, old: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        """What the hub takes of the messages: their mean, or the robust merge that was asked for.

        `old` is what it had.
        """
        settings = merges.Settings(self.merging, self.trim, self.byzantine, at(self.clip, t))
        return merges.robust_merge(settings, old, messages, cohort.weights)

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        return beta_mix(hub, self.aggregate(hub, messages, cohort, t), at(self.beta, t))
