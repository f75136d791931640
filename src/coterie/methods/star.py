"""Methods with a hub in the middle: what the hub says, what it hears, what it makes of it."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.core.schedule import Number, at
from coterie.core.vector import Vector
from coterie.coupling import merges
from coterie.methods.base import Method
from coterie.methods.optimizers import GradientTransformation, Optimizer
from coterie.methods.server import SERVER_OPTIMIZERS, read_server_optimizer


class Cohort(NamedTuple):
    """The clients whose messages a hub merges: their numbers and what each counts in a mean."""

    ids: Any
    weights: Any


class StarMethod(Method):
    """hub: broadcast → clients: local → hub: merge."""

    talks: ClassVar[bool] = True
    addressed: ClassVar[bool] = False
    """True when the hub tells each client something of its own."""
    begins_from_received: ClassVar[bool] = False
    """True when a message is what the client received, moved by its local work; False when it is
    something of the client's own.
    """

    def hub_init(self, template: Vector) -> Any:
        """What the hub keeps."""
        return ()

    def over(self, graph: Any) -> StarMethod:
        """A copy of the bound method whose hub knows the client graph, N × N weights; for methods
        that are coupled by one.
        """
        return self

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


class Steered(NamedTuple):
    """What a hub keeps of a model that a server optimiser moves: the model, and the optimiser's
    state.
    """

    model: Any
    optimizer: Any


def beta_mix(old: Any, new: Any, beta: Any) -> Any:
    """(1 − β)·old + β·new, exact for β = 1, also where old − new is too large for a float."""
    mixed = lambda a, b: jnp.where(beta == 1.0, b, b + (1.0 - beta) * (a - b))
    return jax.tree.map(mixed, old, new)


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

    server_optimizer: Optimizer | GradientTransformation | str | dict[str, Any] | None = option(
        None,
        "what the hub makes of the mean: w ← w − server_lr·u(w − mean); nothing: the mean, by β",
        choices=tuple(SERVER_OPTIMIZERS),
        read=read_server_optimizer,
    )
    server_lr: Number = option(0.1, "step size of the server optimiser", symbol="η_s", above=0)

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

    def unused(self) -> dict[str, str]:
        if self.server_optimizer is None:
            mine = {"server_lr": f"{self.name}.server_optimizer is nothing"}
        else:
            mine = {"beta": f"{self.name}.server_optimizer takes its place"}
        return {**super().unused(), **mine}

    @property
    def by_samples(self) -> bool:
        return self.weighting == "samples"

    @property
    def server_rule(self) -> Optimizer | None:
        """The server optimiser; None: the mean, by β."""
        return cast(Optimizer | None, self.server_optimizer)

    def steered(self, model: Any) -> Any:
        """What the hub keeps of a model before the first round: the model alone, or with a server
        optimiser's state.
        """
        if self.server_rule is None:
            return model
        self.server_rule.check(model)
        return Steered(model, self.server_rule.init(model))

    def current(self, kept: Any) -> Any:
        """The model in what the hub keeps of it."""
        return kept.model if isinstance(kept, Steered) else kept

    def next(self, kept: Any, mean: Any, t: Any) -> Any:
        """What the hub keeps of a model after it took this mean (or robust merge) of the
        messages.
        """
        if self.server_rule is None:
            return beta_mix(kept, mean, at(self.beta, t))
        if not isinstance(kept, Steered):
            raise InvalidInput(
                f"{self.name}.server_optimizer is given, but this method's hub has no room for its"
                " state; its hub_init must call `steered`."
            )
        w, lr = kept.model, at(self.server_lr, t)
        gradient = jax.tree.map(lambda a, b: a - b, w, mean)
        u, state = self.server_rule.direction(gradient, kept.optimizer, w)
        return Steered(jax.tree.map(lambda a, b: a - lr * b, w, u), state)

    def broadcast(self, hub: Any, client: Any) -> Any:
        return self.current(hub)

    def aggregate(self, old: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        """What the hub takes of the messages: their mean, or the robust merge that was asked for.

        `old` is what it had.
        """
        settings = merges.Settings(self.merging, self.trim, self.byzantine, at(self.clip, t))
        return merges.robust_merge(settings, old, messages, cohort.weights)

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        return self.next(hub, self.aggregate(self.current(hub), messages, cohort, t), t)
