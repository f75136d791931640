"""Around the rounds of the slow simulator (reference.py): its clients, wires and scores."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack, draw_malicious
from coterie.channel import PLAIN, Channel, get_channel, link
from coterie.channel.ends import Receiver, Sender
from coterie.channel.link import Outgoing
from coterie.core.errors import InvalidInput
from coterie.core.ledger import Ledger
from coterie.core.metrics import metric_of
from coterie.core.randomness import (
    Role,
    broadcast_key,
    cohort,
    down_key,
    per_client,
    role_key,
)
from coterie.core.typing import PyTree
from coterie.core.vector import Vector
from coterie.coupling.graph import Graph, complete
from coterie.coupling.learnt import GraphRule
from coterie.coupling.learnt.base import empty
from coterie.data.federation import Federation, Split
from coterie.engine.evaluate import Scores, scored_by
from coterie.engine.simulate import Snapshot
from coterie.engine.training import Training
from coterie.methods.base import Method, PooledMethod, get_method
from coterie.methods.graph import GraphMethod
from coterie.methods.star import StarMethod
from coterie.models.base import Model, ModelSpec
from coterie.models.build import build_model, learner_of
from coterie.models.objective import Held, Learner, Objective


def _score(learner: Learner, model: PyTree, x: Any, y: Any) -> tuple[Any, Any]:
    outputs = learner.apply(model, x)
    losses, scores = learner.sample_losses(outputs, y), learner.sample_scores(outputs, y)
    return jnp.mean(losses), jnp.mean(scores)


outputs_of_one = jax.jit(lambda learner, model, x: learner.rows(model, x), static_argnums=(0,))
local_of_one = jax.jit(lambda method, *given: method.local(*given))
score_of_one = jax.jit(_score, static_argnums=(0,))


def stack(trees: list[PyTree]) -> PyTree:
    """Messages of several clients along a new axis 0, in the order given."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def finite(tree: PyTree) -> bool:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    numbers = [leaf for leaf in leaves if np.issubdtype(leaf.dtype, np.inexact)]
    return all(bool(np.isfinite(leaf).all()) for leaf in numbers)


class Wire:
    """Both ends of a link, with bytes between them."""

    def __init__(self, kind: link.LinkKind, channel: Channel, first: PyTree) -> None:
        self.sender = Sender(kind, channel, first)
        self.receiver = Receiver(kind, channel, first)

    def carry(self, out: Outgoing) -> tuple[PyTree, int]:
        """The message as it arrived, and its bytes. Each end works with what it alone has."""
        wire, _ = self.sender.send(out)
        arrived = self.receiver.receive(wire, out._replace(message=None))
        if self.sender.link != ():
            mine, yours = self.sender.link.public, self.receiver.public
            for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(yours), strict=True):
                same = np.asarray(a).tobytes() == np.asarray(b).tobytes()
                assert same, "the two ends of a link differ"
        return arrived, len(wire)

    def peek(self, out: Outgoing) -> PyTree:
        """What would arrive now; nothing is sent."""
        return Sender(self.sender.kind, self.sender.channel, None, self.sender.link).send(out)[1]

    def whole(self) -> int:
        """Bytes of a whole copy for somebody who has heard nothing: it then is as far as the
        receiver.
        """
        stranger = Receiver(self.receiver.kind, self.receiver.channel, self.receiver.like, ())
        stranger.public = jax.tree.map(jnp.zeros_like, self.receiver.public)
        wire = self.sender.resend()
        stranger.receive(wire, Outgoing(None))
        for a, b in zip(
            jax.tree.leaves(stranger.public), jax.tree.leaves(self.receiver.public), strict=True
        ):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "a whole copy differs"
        return len(wire)

    def follow(self, copy: PyTree) -> None:
        """Both ends know where the message went since: so does their public copy."""
        if not self.sender.kind.copies:
            return
        public = self.receiver.public._replace(copy=link.flat(copy))
        self.receiver.public = public
        self.sender.link = self.sender.link._replace(public=public)


class Slow:
    """What the slow simulator has besides its rounds: clients, wires, scores."""

    def __init__(
        self,
        method: Method | str,
        federation: Federation,
        model: Model | ModelSpec | str,
        training: Training,
        graph: Graph | GraphRule | None = None,
        *,
        channel: Channel | str = PLAIN,
        attack: Attack | None = None,
    ) -> None:
        if training.held_out:
            raise InvalidInput(
                f"training.held_out is {training.held_out}, but must be 0: the slow simulator has"
                " no newcomers."
            )
        if not training.plain:
            raise InvalidInput(
                f"training.keep is {training.keep!r} and training.patience {training.patience}, but"
                " the slow simulator runs all rounds and keeps the last; leave them out."
            )
        self.training, self.federation, self.seed, self.attack = (
            training,
            federation,
            training.seed,
            attack,
        )
        self.channel = get_channel(channel) if isinstance(channel, str) else channel
        self.n = federation.clients
        self.sampled_per_round = training.cohort_size(federation)
        if (edges := getattr(method, "edges", None)) is not None:
            raise InvalidInput(
                f"dfedu.edges is {edges}, but the slow reference takes all edges; leave it out."
            )
        self.members = np.arange(self.n)
        self.t = 0
        self.ledger = Ledger(self.n)
        asked = get_method(method) if isinstance(method, str) else method
        self.graph = None
        self.rule = graph if isinstance(graph, GraphRule) else None
        if asked.couples:
            given = empty(self.n) if isinstance(graph, GraphRule) else graph
            self.graph = (complete(self.n) if given is None else given).check_size(self.n)
        self.malicious = np.zeros(self.n, bool)
        if attack is not None:
            self.malicious = draw_malicious(self.seed, self.n, attack.fraction)
        with self.precision():
            shape = federation.shape
            self._prepare(asked, asked.modelled(build_model(model, shape), shape))
        self.sketches: dict[int, NDArray[np.float64]] = {}
        """Learnt graphs: what was heard last of each client."""
        self.trained: set[int] = set()
        """Who has trained since it sent a sketch."""
        self.met: list[set[int]] = []
        """Peers: everybody's neighbours in the last round in which they talked."""

    @contextlib.contextmanager
    def precision(self) -> Iterator[None]:
        with jax.enable_x64(self.training.precision == "float64"):
            yield

    def _prepare(self, asked: Method, model: Model) -> None:
        fed, options = self.federation, self.training
        self.dtype = jnp.dtype(options.precision)
        init = model.vector(role_key(self.seed, Role.INIT), fed.input_shape)
        self.template = init.map(lambda leaf: leaf.astype(self.dtype))
        key = role_key(self.seed, Role.PROJECTION)
        bound: Any = asked.bind(self.template, key, fed.shape)
        if isinstance(bound, StarMethod) and self.graph is not None:
            bound = bound.over(jnp.asarray(self.graph.weights.toarray(), self.dtype))
        self.method = self._paced(bound)
        self.pooled = isinstance(asked, PooledMethod)
        batch = options.batch_size
        if self.pooled:
            batch *= self.method.batches(self.sampled_per_round)
        if options.sampling == "full":
            batch = len(fed.train) if self.pooled else fed.shape.largest
        self.learner = learner_of(model, fed.shape, batch, options.sampling)
        self.x, self.y = self._arrays(fed.train)
        self.lied_y = self.y
        if self.attack is not None and self.attack.on_data:
            y = np.array(self.y)
            for k in np.flatnonzero(self.malicious):
                rows = slice(int(fed.train.offsets[k]), int(fed.train.offsets[k + 1]))
                rng = np.random.default_rng([self.seed, int(k), 0xBAD])
                y[rows] = self.attack.poisoned(y[rows], fed.classes, rng)
            self.lied_y = jnp.asarray(y)
        self.l2 = jnp.asarray(model.l2, self.dtype)
        self.method_states = [self.method.client_init(self.template) for _ in range(self.n)]
        self.hub: Any = ()
        if isinstance(asked, StarMethod | PooledMethod):
            self.hub = self.method.hub_init(self.template)
        self._open_wires()

    def _arrays(self, split: Split) -> tuple[Any, Any]:
        floating = np.issubdtype(split.y.dtype, np.floating)
        y = split.y.astype(self.dtype) if floating else split.y.astype(np.int32)
        return jnp.asarray(split.x.astype(self.dtype)), jnp.asarray(y)

    def _open_wires(self) -> None:
        """A wire up for every client; one down for all, or for each where each gets its own."""
        method, channel = self.method, self.channel
        wires = lambda kind, channel, first: [Wire(kind, channel, first) for _ in range(self.n)]
        self.down: list[Wire] = []
        if isinstance(method, StarMethod):
            broadcast = method.broadcast(self.hub, 0)
            objective = self._objective(0, self.y)
            local = lambda: method.local(broadcast, self.method_states[0], objective).message
            nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(local))
            self.up = wires(link.star_up(channel), channel, nothing)
            self.down = wires(link.star_down(channel), channel.downward(), broadcast)
            if not method.addressed:
                self.down = self.down[:1]
        elif isinstance(method, GraphMethod):
            message = method.message(self.method_states[0])
            self.up = wires(link.graph_up(channel), channel, message)
            silent = jax.tree.map(lambda leaf: -leaf, method.own_pull(message))
            if method.hub_between:
                self.down = wires(link.graph_down(channel), channel.downward(), silent)
        self.broadcast_bytes, self.received_bytes = 0, [0] * self.n

    def _objective(self, k: int, y: Any, *, held: bool = False) -> Objective:
        train, keys = self.federation.train, lambda role: role_key(self.seed, role)
        return Objective(
            learner=self.learner,
            x=self.x,
            y=y,
            start=jnp.int32(0 if self.pooled else train.offsets[k]),
            size=jnp.int32(len(train) if self.pooled else train.sizes[k]),
            key=per_client(keys(Role.BATCH), self.t, k),
            private_key=per_client(keys(Role.METHOD), self.t, k),
            t=self.t,
            l2=self.l2 + self.method.l2,
            batch_schedule=self.training.batch_schedule,
            held=self._held(k) if held or self.method.validates else None,
            client=jnp.int32(k),
        )

    def _held(self, k: int) -> Held:
        x, y = self.federation.validation.client(k)
        return Held(jnp.asarray(x, self.dtype), jnp.asarray(y), jnp.int32(0), jnp.int32(len(y)))

    def _paced(self, bound: Any) -> Any:
        """The bound method, which knows how many rounds' work it does in each; `rests` are the
        rounds without work.
        """
        rounds, wait, since = self.training.rounds, bound.exchange_every, 0
        self.rests: set[int] = set()
        done = np.zeros(rounds, np.int32)
        for t in range(rounds):
            since += 1
            if self.rule is not None and isinstance(bound, GraphMethod) and t < self.rule.after:
                done[t], since = 1, 0
            elif since >= wait or t == rounds - 1:
                done[t], since, wait = since, 0, wait * bound.exchange_growth
            else:
                self.rests.add(t)
        for t in reversed(range(rounds - 1)):
            done[t] = done[t] or done[t + 1]
        return dataclasses.replace(bound, spans=jnp.asarray(done)) if self.rests else bound

    @property
    def nth(self) -> int:
        """How many rounds with work there were before."""
        return self.t - sum(1 for rest in self.rests if rest < self.t)

    def sampled(self) -> list[int]:
        """The clients of this round's cohort."""
        if self.sampled_per_round == self.n:
            return list(range(self.n))
        key = role_key(self.seed, Role.COHORT)
        drawn = cohort(key, self.t, self.n, self.sampled_per_round)
        return [int(k) for k in np.asarray(drawn)]

    # -- looking -----------------------------------------------------------------------------------

    def models(self, client: int) -> dict[str, Vector]:
        """The models of one client, by view, as numpy arrays."""
        with self.precision():
            received: PyTree = self.hub if self.pooled else ()
            if isinstance(self.method, StarMethod):
                addressed = self.method.addressed
                wire = self.down[client if addressed else 0]
                key = down_key(self.seed, self.t, client)
                key = key if addressed else broadcast_key(self.seed, self.t)
                out = Outgoing(self.method.broadcast(self.hub, client), key=key, t=self.nth)
                received = wire.peek(out)
            objective = self._objective(client, self.y)
            models = self.method.predictors(received, self.method_states[client], objective)
            return {view: v.map(np.asarray) for view, v in models.items()}

    def all_models(self, view: str | None = None) -> Vector:
        """One view of all clients, stacked along axis 0."""
        view = view or self.method.model_views[0]
        each = [self.models(k)[view] for k in range(self.n)]
        return each[0].map(lambda *leaves: np.stack(leaves), *each[1:])

    def evaluate(self) -> Snapshot:
        splits = {"validation": self.federation.validation, "test": self.federation.test}
        if self.training.train_metrics:
            splits["train"] = self.federation.train
        with self.precision():
            scores = {name: self._scores(split) for name, split in splits.items() if len(split)}
        return Snapshot(self.t, scores, **self.ledger.totals())

    def _scores(self, split: Split) -> Scores:
        """Every view of every client on exactly its own samples; NaN where there are none."""
        views = self.method.model_views
        loss: NDArray[np.float64] = np.full((len(views), self.n), np.nan)
        score: NDArray[np.float64] = np.full((len(views), self.n), np.nan)
        x, y = (np.asarray(a) for a in self._arrays(split))
        metric = metric_of(self.training.metric, self.federation.task)
        learner = scored_by(self.learner, metric)
        for k in range(self.n):
            rows = slice(int(split.offsets[k]), int(split.offsets[k + 1]))
            if rows.start == rows.stop or self.malicious[k]:
                continue
            models = self.models(k)
            for i, view in enumerate(views):
                tree = models[view].tree
                loss[i, k], score[i, k] = score_of_one(learner, tree, x[rows], y[rows])
                if not metric.rowwise:
                    outputs = np.asarray(outputs_of_one(learner, tree, x[rows]))
                    score[i, k] = metric.scores(outputs, y[rows], np.array([0, len(outputs)]))[0]
        return Scores(loss, score)
