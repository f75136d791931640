"""The protocol: what a method is, written for ONE client as pure functions.

Nothing here knows whether it is simulated or deployed. The simulator maps these functions over
stacked clients; a deployment calls the very same functions alone. docs/add-a-method.md walks
through writing one.

Three ways of exchanging (`exchange`):

"none"    local → done
"star"    hub: broadcast → clients: local → hub: merge
"graph"   clients: local, message → to the neighbours (or a hub that knows the graph): pull →
client: absorb "pooled"  one learner that sees all data (centralised training, a reference and not a
federation)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from coterie.core.options import Options, chosen, option, registered
from coterie.core.schedule import Number, Schedule, at
from coterie.core.vector import Vector
from coterie.coupling import merges
from coterie.models.objective import Objective

METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound="Method")


class Facts(NamedTuple):
    """What every participant knows of the federation before the first round."""

    clients: int
    """N"""
    largest: int
    """Training samples of the largest client; on a deployed client its own."""
    outputs: int
    """Classes, or targets of a regression."""
    task: str


class Cohort(NamedTuple):
    """The clients whose messages a hub merges: their numbers and what each counts in a mean."""

    ids: Any
    weights: Any


class Step(NamedTuple):
    """What a client's local work gives: a message to send, what it keeps, and how many mini-batch
    gradients it took.

    `sent` False: the client dropped out of this round, its message (which must be neutral then) is
    not billed.
    """

    message: Any
    memory: Any
    gradients: Any
    sent: Any = True


class Work(NamedTuple):
    """The gradient work of one client in one round, to give Local exactly as much."""

    steps: int | None
    epochs: int | None
    lr: Any
    """None: the method has no step size that Local could take over."""
    trains: str


class Condition(NamedTuple):
    """A step-size condition that can be checked before the run: `value` must stay below `bound`."""

    text: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.value < self.bound

    def __str__(self) -> str:
        return f"{self.text} must be < {self.bound:g} but is {self.value:.4g}"


class Method(Options):
    """A method's hyper-parameters (floats are traced, loop lengths are static) and its
    functions.
    """

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    exchange: ClassVar[str] = "none"
    views: ClassVar[tuple[str, ...]] = ("personal",)
    addressed: ClassVar[bool] = False
    """Star: True when the hub tells each client something of its own."""
    begins_from_received: ClassVar[bool] = False
    """Star: True when a message is what the client received, moved by its local work; False when it
    is something of the client's own.
    """
    needs_exact: ClassVar[bool] = False
    """True when messages must arrive as they were sent, so that no channel may cut anything off."""
    strength: ClassVar[str] = ""
    """The option that couples the clients: 0 gives Local."""

    # -- before the first round --------------------------------------------------------------------

    def bind(self, template: Vector, key: Any, facts: Facts) -> Method:
        """A copy that holds what all participants draw from the shared seed (a projection) or know
        of the federation; by default nothing.
        """
        return self

    def hub_init(self, template: Vector) -> Any:
        """What the hub keeps."""
        return ()

    def client_init(self, template: Vector) -> Any:
        """What a client keeps for ever; all clients start alike."""
        return ()

    # -- a round -----------------------------------------------------------------------------------

    def broadcast(self, hub: Any, client: Any) -> Any:
        """Star: the message from the hub to a client.

        The same for all, unless the method is `addressed`.
        """
        return hub

    def local(self, received: Any, memory: Any, objective: Objective) -> Step:
        """On the client: what it does between receiving and sending."""
        raise NotImplementedError

    def reference(self, received: Any, message: Any) -> Any:
        """Star: what both ends know beforehand that is near the message; compressors send the
        difference to it.

        What the client received, where that has the shape of a message; else nothing (zeros).
        """
        alike = bool(jax.tree.structure(received) == jax.tree.structure(message)) and all(  # type: ignore[operator]
            a.shape == b.shape
            for a, b in zip(jax.tree.leaves(received), jax.tree.leaves(message), strict=True)
        )
        return received if alike else jax.tree.map(jnp.zeros_like, message)

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        """Star, on the hub: messages of the sampled clients, stacked along axis 0 in the order of
        `cohort`.
        """
        return hub

    def message(self, memory: Any) -> Any:
        """Graph: what a client would send now, from what it keeps."""
        raise NotImplementedError

    def pull(self, own: Any, messages: Any, weights: Any) -> Any:
        """Graph: the combined pull of the neighbours on a client, from the messages alone (so a hub
        can do it too).
        """
        raise NotImplementedError

    def own_pull(self, own: Any) -> Any:
        """Graph: the part of a pull, per unit of weight, that a client knows by itself; a hub that
        compresses sends the rest. By default zeros.
        """
        return jax.tree.map(jnp.zeros_like, own)

    def absorb(self, memory: Any, pull: Any, t: Any) -> Any:
        """Graph, on the client: move by the pull."""
        raise NotImplementedError

    def moved(self, message: Any, pull: Any, t: Any) -> Any:
        """Graph with a hub: what a client's message would be after `absorb`, from what both hub and
        client know.
        """
        raise NotImplementedError

    # -- after a round -----------------------------------------------------------------------------

    def models(self, received: Any, memory: Any, objective: Objective) -> dict[str, Vector]:
        """The models of a client, by the names in `views`.

        `objective` gives training data to methods that adapt.
        """
        raise NotImplementedError

    # -- newcomers ---------------------------------------------------------------------------------

    def for_newcomers(self, largest: int) -> Method:
        """The bound method for clients that were not in training, of which the largest has so many
        training samples.
        """
        return self

    def welcome(self, hub: Any, received: Any, sent: Any) -> Any:
        """Star: what a newcomer hears.

        `received` is what all hear, `sent` the sum of what it would have sent so far (and did not).
        """
        return received

    def join(self, template: Vector, messages: Any, weights: Any) -> Any:
        """Graph: what a newcomer begins with, from its neighbours' messages."""
        return self.client_init(template)

    # -- facts -------------------------------------------------------------------------------------

    @property
    def model_views(self) -> tuple[str, ...]:
        """The names of the models that are evaluated; the first is the one this method is judged
        by.
        """
        return self.views

    @property
    def trains_all(self) -> bool:
        """True when every client trains in every round, although only the sampled ones send."""
        return False

    @property
    def by_samples(self) -> bool:
        """Star: True when a client counts in the mean by its training samples, False when all count
        alike.
        """
        return False

    @property
    def hears_all(self) -> bool:
        """Graph: True when unsampled neighbours count with their last messages."""
        return False

    @property
    def pulls_linearly(self) -> bool:
        """Graph: True when the pulls on all clients are one matrix product."""
        return False

    @property
    def hub_between(self) -> bool:
        """Graph: True when a hub carries the messages; False when neighbours exchange directly."""
        return True

    def work(self) -> Work:
        """The gradient work per client and round."""
        raise NotImplementedError

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        """Step-size conditions that can be checked beforehand; called on a bound method."""
        return []


@dataclass_transform(frozen_default=True, kw_only_default=True)
def method(name: str, *, title: str, paper: str) -> Callable[[type[M]], type[M]]:
    """Register a method under its name for TOML, Python and the command line."""
    return registered(METHODS, name, title=title, paper=paper)


def get_method(name: str, options: dict[str, Any] | None = None) -> Method:
    """A registered method with its options from plain values."""
    return chosen(METHODS, "the method", name, options)


# -- pieces that several methods share -------------------------------------------------------------


def beta_mix(old: Any, new: Any, beta: Any) -> Any:
    """(1 − β)·old + β·new, exact for β = 1."""
    return jax.tree.map(lambda a, b: b + (1.0 - beta) * (a - b), old, new)


def first_value(value: Number | None) -> float:
    """The largest value a rate takes in the run, for checking conditions: a schedule's at t = 0."""
    return float(at(value, 0)) if isinstance(value, Schedule) else float(value or 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSGD(Method):
    """Shared by methods whose local work is plain SGD: R steps, or R epochs over the client's data,
    with step μ.
    """

    lr: Number = option(0.05, "step size of local SGD", symbol="μ", above=0)
    local_steps: int = option(20, "local steps per round", symbol="R", low=1)
    local_epochs: int | None = option(
        None,
        "count R in epochs over the client's data instead of steps (the published FedU code)",
        low=1,
    )

    def unused(self) -> dict[str, str]:
        reason = f"{self.name}.local_epochs is {self.local_epochs}"
        mine = {} if self.local_epochs is None else {"local_steps": reason}
        return {**super().unused(), **mine}

    @property
    def R(self) -> int:
        return self.local_epochs or self.local_steps

    def work(self) -> Work:
        return Work(
            None if self.local_epochs else self.local_steps, self.local_epochs, self.lr, "sampled"
        )

    def steps(self, objective: Objective) -> Any:
        """The local steps of a client in this round; with epochs they differ from client to
        client.
        """
        return (
            self.local_epochs * objective.steps_per_epoch if self.local_epochs else self.local_steps
        )

    def sgd(self, x: Any, objective: Objective) -> tuple[Any, Any]:
        """x ← x − μ∇f̃(x) for R steps or epochs; returns the model and the number of gradients."""
        lr = at(self.lr, objective.t)
        steps = self.steps(objective)
        step = lambda i, x: x - lr * objective.gradient(x, objective.batch(i))
        return jax.lax.fori_loop(0, steps, step, x), steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Star(Method):
    """Shared by methods with a hub that averages what the sampled clients send."""

    exchange: ClassVar[str] = "star"
    begins_from_received: ClassVar[bool] = True

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
        "what the hub takes of the messages: their mean, or something that withstands liars",
        choices=merges.KINDS,
    )
    trim: float = option(0.1, 'merging "trimmed": the share cut off at either end', low=0, high=0.5)
    liars: int = option(
        1, 'merging "krum" and "multi-krum": how many liars to withstand', symbol="f", low=0
    )
    clip: Number = option(
        1.0,
        'merging "clipping": the length to which each difference to the old model is cut',
        above=0,
    )

    @property
    def by_samples(self) -> bool:
        return self.weighting == "samples"

    def centre(self, old: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        """What the hub takes of the messages: their mean, or the robust merge that was asked for.

        `old` is what it had.
        """
        settings = merges.Settings(self.merging, self.trim, self.liars, at(self.clip, t))
        return merges.robust_merge(settings, old, messages, cohort.weights)

    def merge(self, hub: Any, messages: Any, cohort: Cohort, t: Any) -> Any:
        return beta_mix(hub, self.centre(hub, messages, cohort, t), at(self.beta, t))
