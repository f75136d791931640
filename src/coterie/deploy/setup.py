"""A plan set up on one machine: what a participant works out from it before the first round.

Everybody gets the same models, states and shapes of messages from the plan alone. A hub has no
data, and needs the shapes of data only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.channel import ends
from coterie.channel.link import Outgoing
from coterie.core.randomness import Role, broadcast_key, down_key, role_key, up_key
from coterie.core.typing import PyTree
from coterie.data.federation import Split
from coterie.deploy.plan import Plan
from coterie.deploy.programs import GRAPH, STAR
from coterie.engine.evaluate import to_device
from coterie.engine.pace import paced
from coterie.engine.prepare import tied
from coterie.engine.rounds import compiled_cohort
from coterie.engine.setting import ClientState, Coupled, Data, HubState, Round, Setting, Spec
from coterie.methods.star import StarMethod
from coterie.models.base import Model
from coterie.models.build import learner_of
from coterie.models.objective import Held

NO_DATA = Data((), (), (), (), (), None)


class Setup:
    """What follows from a plan, for a participant with this number and this training data."""

    def __init__(
        self,
        plan: Plan,
        number: int = 0,
        own: Split | None = None,
        validation: Split | None = None,
    ) -> None:
        self.validation = validation
        self.plan, self.number, self.seed = plan, number, plan.training.seed
        self.channel = plan.channel
        self.star = isinstance(plan.method, StarMethod)
        with self.precision():
            self._open(own)

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        with jax.enable_x64(self.plan.training.precision == "float64"):
            yield

    def _open(self, own: Split | None) -> None:
        plan, options = self.plan, self.plan.training
        self.dtype = jnp.dtype(options.precision)
        self.model: Model = plan.built()
        init = self.model.vector(role_key(self.seed, Role.INIT), plan.shape.inputs)
        self.template = init.map(lambda leaf: leaf.astype(self.dtype))
        self.samples = 1 if own is None else int(own.sizes[0])
        shape = plan.shape._replace(largest=self.samples)
        bound = plan.method.bind(self.template, role_key(self.seed, Role.PROJECTION), shape)
        self.method: Any = paced(tied(bound, plan.coupling, self.dtype), plan.pace)
        batch = self.samples if options.sampling == "full" else options.batch_size
        learner = learner_of(self.model, shape, batch, options.sampling)
        self.spec = Spec(learner, plan.size, plan.cohort, 1)
        data = self._shapes() if own is None else self._data(own)
        self.setting = Setting(self.method, self.channel, None, data, Coupled(), self.seed)
        exchange, now = STAR if self.star else GRAPH, self.now(0)
        self.up, self.down = exchange.up(now), exchange.down(now)
        self.hub: HubState = exchange.open_hub(now, self.template)
        """The hub before the first round, which everybody knows."""
        self.client: ClientState = exchange.open_client(now, self.hub, self.template)
        """What a client keeps before the first round."""
        self.message = self._message_shapes()
        self.broadcast = jax.eval_shape(lambda: self.first_broadcast())
        says = self.broadcast if self.star else self.message
        self.largest_up = ends.largest(self.up, self.channel, self.message)
        """The most bytes that a client's message may have; the same of a hub's:"""
        self.largest_down = ends.largest(self.down, self.channel.downward(), says)
        if own is None:
            self.setting = self.setting._replace(data=NO_DATA)

    def _data(self, own: Split) -> Data:
        held, l2 = to_device(own, self.dtype), jnp.asarray(self.model.l2, self.dtype)
        schedule, tried = self.plan.training.batch_schedule, None
        if self.method.validates and self.validation is not None:
            tried = Held(*to_device(self.validation, self.dtype))
        return Data(*held, l2, schedule, first=self.number, held=tried)

    def _shapes(self) -> Data:
        """One sample, of which only the shape is known."""
        array, problem = jax.ShapeDtypeStruct, self.plan.problem
        if problem.task == "classification":
            y = array((1,), jnp.int32)
        else:
            y = array((1, problem.targets) if problem.targets > 1 else (1,), self.dtype)
        one = array((1,), jnp.int32)
        x, l2 = array((1, *problem.inputs), self.dtype), array((), self.dtype)
        return Data(x, y, one, one, l2, self.plan.training.batch_schedule)

    def _message_shapes(self) -> PyTree:
        if self.star:
            return STAR.message_shapes(
                self.now(0), self.first_broadcast(), self.client.method_state
            )
        return jax.eval_shape(self.method.message, self.client.method_state)

    def first_broadcast(self) -> PyTree:
        """Star: what the hub would say before the first round."""
        return self.method.broadcast(self.hub.method_state, 0) if self.star else ()

    def first_message(self) -> PyTree:
        """Graph: what a client would say before the first round."""
        return () if self.star else self.method.message(self.client.method_state)

    def now(self, t: int) -> Round:
        """The t-th round with work."""
        return Round(self.spec, self.setting, self.plan.at(t))

    def rounds_alone(self, client: int) -> list[int]:
        """The rounds that a client trains in before there is a graph, where that is learnt."""
        if self.method.trains_all or self.plan.cohort == self.plan.size:
            return list(range(self.plan.alone))
        drawn = (compiled_cohort(self.spec, self.seed, t) for t in range(self.plan.alone))
        return [t for t, cohort in enumerate(drawn) if client in np.asarray(cohort)]

    @property
    def largest(self) -> int:
        """The most bytes that the frames of a message between a hub and a client may have: a client
        that was away gets what it missed, but not more than two whole copies would take.
        """
        return 2 * max(self.largest_up, self.largest_down)

    # -- both ends of links ------------------------------------------------------------------------

    @property
    def first_public(self) -> PyTree:
        """What both ends of a client's link up know before the first message."""
        return () if self.client.up == () else self.client.up.public

    def receive_up(self, client: int, public: PyTree, wire: bytes, known: Outgoing) -> Any:
        """A client's message as it arrived, and the receiving end of its link afterwards."""
        if not self.up.passes:
            known = known._replace(key=up_key(self.seed, self.plan.at(known.t), client))
        receiver = ends.Receiver(self.up, self.channel, self.message, public)
        message = jax.tree.map(jnp.asarray, receiver.receive(wire, known))
        return message, receiver.public

    def receive_down(self, public: PyTree, wire: bytes, known: Outgoing) -> Any:
        """The same of a hub's message to this client, or to all."""
        key = broadcast_key if self.star else partial(down_key, client=self.number)
        if not self.down.passes:
            known = known._replace(key=key(self.seed, self.plan.at(known.t)))
        like = self.broadcast if self.star else self.message
        receiver = ends.Receiver(self.down, self.channel.downward(), like, public)
        message = jax.tree.map(jnp.asarray, receiver.receive(wire, known))
        return message, receiver.public
