"""The protocol: what a method is, written for ONE client as pure functions.

Nothing here knows whether it is simulated or deployed. The simulator maps these functions over
stacked clients; a deployment calls the very same functions alone. docs/add-a-method.md walks
through writing one.

What every method has is in `Method`. How its clients exchange messages is said by its base class:

`StarMethod` (star.py)      hub: broadcast → clients: local → hub: merge
`GraphMethod` (graph.py)    clients: local, message → neighbours or a hub: pull → client: absorb
`PooledMethod` (here)       one learner that sees all data: a reference, not a federation
`Method` alone              every client trains by itself

engine/exchange/ has a class for each, which says what a round is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

from coterie.core.declared import Declared
from coterie.core.options import Options, chosen, hidden, option, registered
from coterie.core.search import LogRange
from coterie.core.vector import Vector
from coterie.data.shape import ProblemShape
from coterie.models.base import Model
from coterie.models.objective import Objective

if TYPE_CHECKING:
    from coterie.methods.local import Local

METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound="Method")


class Step(NamedTuple):
    """What a client's local work gives: a message to send, what it keeps, and how many mini-batch
    gradients it took.

    `sent` False: the client dropped out of this round, its message (which must be neutral then) is
    not billed.
    """

    message: Any
    state: Any
    gradients: Any
    sent: Any = True


class Work(NamedTuple):
    """The gradient work of one client in one round, to give Local exactly as much."""

    steps: int | None
    epochs: int | None
    lr: Any
    """None: the method has no step size that Local could take over."""
    trains: str
    optimizer: Any = None
    optimizer_state: str = "fresh"


def who_trains(default: str, meaning: str) -> str:
    """The option `trains` of methods that leave open who trains: the sampled clients or all."""
    choices = sorted(("all", "sampled"), key=lambda choice: choice != default)
    said: str = option(default, f"who trains in a round: {meaning}", choices=tuple(choices))
    return said


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


class Descent(NamedTuple):
    """Gradient steps of the size `lr`, called `option`, on f_k plus a quadratic of the curvature
    `more`; they are stable while lr times the whole curvature is below `bound`.
    """

    option: str
    lr: Any
    more: Any = 0.0
    bound: Any = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method(Options):
    """A method's hyper-parameters (floats are traced, loop lengths are static) and its
    functions.

    Options that all methods have: `l2`, which belongs to the problem, but each method must be tuned
    with a penalty of its own, Local included; and when to talk.
    """

    title: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    views: ClassVar[tuple[str, ...]] = ("personal",)
    needs_exact: ClassVar[bool] = False
    """True when messages must arrive as they were sent: no channel may cut anything off."""
    couples: ClassVar[bool] = False
    """True when it needs the client graph of the experiment."""
    strength: ClassVar[str] = ""
    """The option that couples the clients: 0 gives Local."""
    talks: ClassVar[bool] = False
    """True when clients exchange messages."""

    l2: float = option(
        0.0,
        "adds (l2/2)‖w‖² to every client's loss, besides the model's own l2; searched where it is"
        " not 0",
        low=0,
        search=LogRange(1e-4, 1.0),
    )
    exchange_every: int = option(
        1,
        "talk after the local work of so many rounds, which is then done at once: as many gradient"
        " steps, fewer messages",
        low=1,
    )
    exchange_growth: int = option(
        1,
        "after every exchange the time to the next is so many times as long: often at first, rarely"
        " later",
        low=1,
    )
    spans: Any = hidden()
    """For every round how many rounds' work is done in it (engine/pace.py); None: one."""
    ordinals: Any = hidden()
    """For every round how many rounds with work there were before it; None: all."""

    @classmethod
    def public(cls) -> dict[str, Declared]:
        """The options, those that all methods have at the end."""
        found, common = super().public(), ("l2", "exchange_every", "exchange_growth")
        own = {k: d for k, d in found.items() if k not in common}
        return own | {k: found[k] for k in common}

    def unused(self) -> dict[str, str]:
        if self.talks:
            return {}
        return dict.fromkeys(("exchange_every", "exchange_growth"), f"{self.name} sends nothing")

    @property
    def rests(self) -> bool:
        """Whether there are rounds in which nothing happens."""
        return self.exchange_every > 1 or self.exchange_growth > 1

    def span(self, t: Any) -> Any:
        """How many rounds' work is done in round t."""
        return 1 if self.spans is None else self.spans[t]

    def nth(self, t: Any) -> Any:
        """How many rounds with work there were before round t: what channels count by that send
        something else each time.
        """
        return t if self.ordinals is None else self.ordinals[t]

    @property
    def longest(self) -> int:
        """The most that is done in a round; of a method whose numbers are known."""
        return 1 if self.spans is None else int(max(self.spans))

    def modelled(self, model: Model, shape: ProblemShape) -> Model:
        """The model whose parameters the method's `Vector`s are, made of the one that was asked
        for: by default that one. A mixture has several of them and a weight each.
        """
        return model

    def bind(self, template: Vector, key: Any, shape: ProblemShape) -> Method:
        """A copy that holds what all participants draw from the shared seed (a projection) or know
        of the problem; by default nothing.
        """
        return self

    def client_init(self, template: Vector) -> Any:
        """What a client keeps for ever; all clients start alike."""
        return ()

    def local(self, received: Any, state: Any, objective: Objective) -> Step:
        """On the client: what it does between receiving and sending."""
        raise NotImplementedError

    def models(self, received: Any, state: Any, objective: Objective) -> dict[str, Vector]:
        """The models of a client, by the names in `views`.

        `objective` gives training data to methods that adapt.
        """
        raise NotImplementedError

    def predictors(self, received: Any, state: Any, objective: Objective) -> dict[str, Vector]:
        """`models` as they predict: those with statistics (batch normalisation) have the client's
        own.
        """
        models = self.models(received, state, objective)
        return {view: objective.fitted(model) for view, model in models.items()}

    def work(self) -> Work:
        """The gradient work per client and round."""
        raise NotImplementedError

    def alone(self, plain: Local) -> Local:
        """Training alone with all that clients have here besides each other: `plain`, which has the
        same gradient work, unless they have more than a model (a memory).
        """
        return plain

    def conditions(self, template: Vector, laplacian_norm: float) -> list[Condition]:
        """Step-size conditions that can be checked beforehand; called on a bound method."""
        return []

    def descents(self, template: Vector) -> list[Descent]:
        """The gradient steps on clients' losses whose size can be checked against their smoothness
        (`coterie check`); called on a bound method. None where an optimiser scales them.
        """
        return []

    def check_deployed(self) -> None:
        """Refuse what only a simulation can know."""

    def for_newcomers(self, largest: int) -> Method:
        """The bound method for clients that were not in training, of which the largest has so many
        training samples.
        """
        return self

    @property
    def model_views(self) -> tuple[str, ...]:
        """The names of the models that are evaluated; the method is judged by the first."""
        return self.views

    @property
    def validates(self) -> bool:
        """True when clients look at their own validation rows (`Objective.held_losses`)."""
        return False

    def takers(self, cohort: int, clients: int) -> int:
        """How many clients train in a round, at most."""
        return clients if self.trains_all else cohort

    @property
    def trains_all(self) -> bool:
        """True when every client trains in every round, although only the sampled ones send: where
        there is an option `trains`, if it says so.
        """
        return getattr(self, "trains", "sampled") == "all"

    @property
    def forgets(self) -> bool:
        """True when every client trains in every round, starts from what it receives alone (all
        receive the same), keeps nothing else, and takes a number of gradients that does not depend
        on its data. A simulator then need not train a client that does not send, until somebody
        looks at it.
        """
        return False


class PooledMethod(Method):
    """One learner that sees the data of all clients in one place."""

    def hub_init(self, template: Vector) -> Any:
        """What the learner begins with; its message after a round takes this one's place."""
        raise NotImplementedError

    def batches(self, cohort: int) -> int:
        """How many mini-batches of the run one step looks at together."""
        return cohort


@dataclass_transform(frozen_default=True, kw_only_default=True)
def method(name: str, *, title: str, paper: str) -> Callable[[type[M]], type[M]]:
    """Register a method under its name for TOML, Python and the command line."""
    return registered(METHODS, name, title=title, paper=paper)


def get_method(name: str, options: dict[str, Any] | None = None) -> Method:
    """A registered method with its options from plain values."""
    return chosen(METHODS, "the method", name, options)
