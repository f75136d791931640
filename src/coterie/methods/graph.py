"""Methods over a client graph: what neighbours tell each other, and how they pull."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from coterie.core.vector import Vector
from coterie.methods.base import Method


class GraphMethod(Method):
    """clients: local, message → to the neighbours (or a hub that knows the graph): pull → client:
    absorb.
    """

    talks: ClassVar[bool] = True
    couples: ClassVar[bool] = True

    def message(self, state: Any) -> Any:
        """What a client would send now, from what it keeps."""
        raise NotImplementedError

    def pull(self, own: Any, messages: Any, weights: Any) -> Any:
        """The combined pull of the neighbours on a client, from the messages alone (so a hub can do
        it too).
        """
        raise NotImplementedError

    def effective(self, weights: Any, t: Any) -> Any:
        """The weights that count in round t, of a client's neighbours along the last axis."""
        return weights

    def own_pull(self, own: Any) -> Any:
        """The part of a pull, per unit of weight, that a client knows by itself; a hub that
        compresses sends the rest.

        By default zeros.
        """
        return jax.tree.map(jnp.zeros_like, own)

    def absorb(self, state: Any, pull: Any, t: Any) -> Any:
        """On the client: move by the pull."""
        raise NotImplementedError

    def moved(self, message: Any, pull: Any, t: Any) -> Any:
        """With a hub: what a client's message would be after `absorb`, from what both hub and
        client know.
        """
        raise NotImplementedError

    def join(self, template: Vector, messages: Any, weights: Any) -> Any:
        """What a newcomer begins with, from its neighbours' messages."""
        return self.client_init(template)

    @property
    def hears_all(self) -> bool:
        """True when unsampled neighbours count with their last messages."""
        return False

    @property
    def pulls_linearly(self) -> bool:
        """True when the pulls on all clients are one matrix product."""
        return False

    @property
    def hub_between(self) -> bool:
        """True when a hub carries the messages; False when neighbours exchange directly."""
        return True
