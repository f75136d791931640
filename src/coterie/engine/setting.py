"""What a round is given: all that is fixed in a run (`Spec`, `Setting`), what changes from round to
round (`State`), and who takes part (`Who`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from coterie.adversary.base import Threat
from coterie.channel.base import Channel
from coterie.core import randomness
from coterie.core.randomness import Role, per_client
from coterie.core.typing import Array, Key, PyTree, Scalar
from coterie.methods.base import Method
from coterie.models.objective import Held, Learner, Objective

COMPARED = 1024
"""Among so many sorted numbers all are looked at, rather than half of them again and again."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """All that is static about a run: programs are shared between runs whose specs (and methods'
    static options) agree.
    """

    learner: Learner
    clients: int
    cohort: int
    at_once: int
    sort_by_work: bool = False
    mesh: Mesh | None = None
    """The devices that clients are spread over; None: one."""
    unseen: int = 0
    """Where the work of clients that were not sampled is put off until somebody looks at them
    (`engine/unseen.py`): how many of them do it side by side. 0: nothing is put off.
    """

    @property
    def devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size


def index_among(ids: Array, client: Scalar) -> Scalar:
    """Where a client that is there is among sorted numbers of clients."""
    few = len(ids) <= COMPARED
    return jnp.searchsorted(ids, client, method="compare_all" if few else "scan")


class Data(NamedTuple):
    """The packed training data on the device; client k owns rows start[k] … start[k] + size[k] −
    1. Where every device has its own clients' rows only, x and y are `Apart`, and start[k] counts
    within those of client k's device. Where each has an equal share of them, they are `Scattered`,
    and a round gathers its own.
    """

    x: Array
    y: Array
    start: Array
    size: Array
    l2: Scalar
    batch_schedule: Any
    lying_y: Array | None = None
    """The targets while an attack on data is under way."""
    first: Scalar | None = None
    """The number of the first client that is here, where that is not 0: a deployed client has its
    own data only.
    """

    held: Held | None = None
    """Everybody's validation rows, for methods that look at them."""

    ids: Array | None = None
    """The numbers of the clients that are here, sorted, where a round is given its own clients'
    rows only.
    """

    def index_of(self, client: Scalar) -> Scalar:
        """A client's index in these arrays."""
        if self.ids is not None:
            return index_among(self.ids, client)
        return client if self.first is None else client - self.first

    def held_by(self, index: Scalar) -> Held | None:
        """The validation rows of the client with this index."""
        held = self.held
        if held is None:
            return None
        return held._replace(start=held.start[index], size=held.size[index])


class Coupled(NamedTuple):
    """A graph on the device: a dense matrix, or a table of neighbours when that is smaller."""

    dense: Array = None
    near: Array = None
    weight: Array = None
    talks: Array = None
    """Where the graph is learnt: whether clients send anything yet; None: they do."""
    ids: Array = None
    """Whose rows a table has, sorted, where that is not everybody."""

    def rows_of(self, clients: Array) -> Array:
        """Where these clients are in the table."""
        return clients if self.ids is None else index_among(self.ids, clients)


class Setting(NamedTuple):
    """All that decides what rounds do, but for who takes part."""

    method: Method
    channel: Channel
    threat: Threat | None
    data: Data
    graph: Coupled
    seed: Scalar

    def poisoned(self, t: Scalar) -> Setting:
        """The setting of round t: under an attack on data, malicious clients train on other
        targets.
        """
        if self.threat is None or self.data.lying_y is None:
            return self
        active = self.threat.attack.active(t)
        chosen = lambda lie, truth: jnp.where(active, lie, truth)
        y = jax.tree.map(chosen, self.data.lying_y, self.data.y)
        return self._replace(data=self.data._replace(y=y))


class HubState(NamedTuple):
    """What is kept at the hub: the method's state, and the link of its broadcasts (() unless they
    are compressed).
    """

    method_state: PyTree
    link: PyTree = ()


class ClientState(NamedTuple):
    """What is kept for one client: the method's state, its link up, and its link down where the hub
    sends each client something of its own.
    """

    method_state: PyTree
    up: PyTree = ()
    down: PyTree = ()


class State(NamedTuple):
    """What rounds change: the hub, and the clients' states stacked along axis 0."""

    hub: HubState
    rows: ClientState
    others: ClientState | None = None
    """Graph: the states of the clients `Who.pool`, whose last messages count."""
    before: HubState | None = None
    """The hub before the last round, where some have still to do their work of that round."""


class Who(NamedTuple):
    """Who takes part in a round."""

    ids: Array
    """The clients that train, in increasing order."""
    senders: Array | None = None
    """The indices in `ids` of those that send; None: all."""
    pool: Array | None = None
    """Graph: the clients whose last messages count, sorted, `ids` among them; None: just `ids`."""

    counted: Array | None = None
    """Star: the indices among those that send whose messages count; None: all."""

    @property
    def members(self) -> Array:
        """The clients that send."""
        return self.ids if self.senders is None else self.ids[self.senders]

    def sends(self) -> Array | None:
        """For each of `ids` whether it sends; None: all do."""
        if self.senders is None:
            return None
        return jnp.zeros(len(self.ids), bool).at[self.senders].set(True)


class Log(NamedTuple):
    """What a round leaves for the bill and for finding trouble.

    Arrays over the clients that trained.
    """

    ids: Array
    gradients: Array
    finite: Array
    """Whether what each client computed was finite, before anything was mixed."""
    finite_after: Array
    """The same of its state after the exchange."""
    up: Array
    """Bytes of the message each client encoded; 0 for those that sent nothing."""
    down: Array
    """Bytes of what the hub encoded for each."""
    hub_finite: Array
    unsent: Array
    """Whether each one's message held NaN or infinity and counts as not sent (malicious
    clients' only).
    """


class Round(NamedTuple):
    """A setting in round t, as an exchange looks at it."""

    spec: Spec
    setting: Setting
    t: Scalar

    @property
    def method(self) -> Any:
        return self.setting.method

    @property
    def channel(self) -> Channel:
        return self.setting.channel

    @property
    def nth(self) -> Scalar:
        """How many rounds with work there were before."""
        return self.method.nth(self.t)

    def up_key(self, client: Scalar) -> Key:
        return randomness.up_key(self.setting.seed, self.t, client)

    def down_key(self, client: Scalar) -> Key:
        return randomness.down_key(self.setting.seed, self.t, client)

    def broadcast_key(self) -> Key:
        return randomness.broadcast_key(self.setting.seed, self.t)

    def objective(self, client: Scalar) -> Objective:
        """f_k in this round, as a deployed client would build it from its own data."""
        data, seed = self.setting.data, self.setting.seed
        index = data.index_of(client)
        return Objective(
            learner=self.spec.learner,
            x=data.x,
            y=data.y,
            start=data.start[index],
            size=data.size[index],
            key=per_client(randomness.role_key(seed, Role.BATCH), self.t, client),
            private_key=per_client(randomness.role_key(seed, Role.METHOD), self.t, client),
            t=self.t,
            l2=data.l2 + self.method.l2,
            batch_schedule=data.batch_schedule,
            held=data.held_by(index),
            client=client,
        )
