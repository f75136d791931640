"""The slow simulator: one client after the other, in plain Python.

For debugging, and what the fast one is tested against.

It has the semantics and the random streams of `Simulator`, but none of its machinery: no `vmap`
over clients, no program that spans rounds, no padded neighbour tables. Every client's functions are
called alone, as a deployment would call them; every message really becomes bytes and is read back;
a client's pull is given exactly its real neighbours; scores are computed on exactly a client's own
samples. A breakpoint or a print in a method's `merge` sees plain arrays (`jax.disable_jit()` gives
that inside `local` too).

    >>> import coterie
    >>> fed = coterie.load("digits", clients=3)
    >>> options = {"rounds": 2, "eval_every": 2, "batch_size": 5}
    >>> slow = simulate_loop(coterie.FedU(local_steps=2), fed, "mlr", **options)
    >>> fast = coterie.simulate(coterie.FedU(local_steps=2), fed, "mlr", **options)
    >>> bool(jnp.allclose(slow.personal(1).flat(), fast.personal(1).flat(), atol=1e-5))
    True
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack
from coterie.channel import PLAIN, Channel, link
from coterie.channel.codec import Identity
from coterie.core.compilation import Compilations
from coterie.core.randomness import Role, per_client, stream
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.evaluate import Held, Scores
from coterie.engine.rounds import (
    Data,
    Hub,
    Log,
    Row,
    Spec,
    ahead,
    compares_itself,
    follow_mixing,
    objective_of,
    round_cohort,
)
from coterie.engine.simulate import Progress, Result, Simulator, Snapshot, drive
from coterie.engine.training import Training
from coterie.methods.base import Cohort, Method, Step
from coterie.models.base import Model, ModelSpec
from coterie.models.objective import Learner


def _local(
    spec: Spec,
    method: Method,
    data: Data,
    seed: Any,
    t: Any,
    client: Any,
    received: Any,
    memory: Any,
) -> Step:
    return method.local(received, memory, objective_of(spec, data, seed, t, client))


def _score(learner: Learner, model: Any, x: Any, y: Any) -> tuple[Any, Any]:
    outputs = learner.apply(model, x)
    return jnp.mean(learner.sample_losses(outputs, y)), jnp.mean(learner.sample_scores(outputs, y))


local_of_one = jax.jit(_local, static_argnums=(0,))
score_of_one = jax.jit(_score, static_argnums=(0,))


def stack(trees: list[Any]) -> Any:
    """Messages of several clients along a new axis 0, in the order given."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def finite(tree: Any) -> bool:
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return all(
        bool(np.isfinite(leaf).all()) for leaf in leaves if np.issubdtype(leaf.dtype, np.inexact)
    )


class LoopSimulator(Simulator):
    """`Simulator` with the clients strictly one at a time.

    Same arguments, same results to rounding, any store.
    """

    def row(self, client: int) -> Row:
        """What is kept for a client, on its own."""
        return jax.tree.map(
            lambda leaf: jnp.asarray(leaf[0]), self.store.gather(np.array([client]))
        )

    def remember(self, client: int, row: Row) -> None:
        if self.store.format.bytes:
            self.store.load(
                np.array([client]),
                self.store.format.pack(jax.tree.map(lambda leaf: np.asarray(leaf)[None], row)),
            )

    def carry(
        self,
        stream: link.Stream,
        line: Any,
        message: Any,
        reference: Any,
        key: Any,
        scale: Any = None,
        *,
        down: bool = False,
    ) -> tuple[Any, Any, int]:
        """A message over a wire: (as it arrived, the link afterwards, bytes). Each end works with
        what it alone has.
        """
        if line == ():
            wire = Identity().encode(message)
            return Identity().decode(wire, message), (), len(wire)
        channel = self.channel.downward() if down else self.channel
        sender = link.Sender(stream, channel, message, line)
        receiver = link.Receiver(stream, channel, message, line.public)
        wire = sender.send(message, reference, key, self.t, scale)
        arrived = receiver.receive(wire, reference, key, self.t, scale)
        for mine, yours in zip(
            jax.tree.leaves(sender.link.public), jax.tree.leaves(receiver.public), strict=True
        ):
            assert np.asarray(mine).tobytes() == np.asarray(yours).tobytes(), (
                "the two ends of a link differ"
            )
        return arrived, sender.link, len(wire)

    def advance(self, rounds: int) -> int:
        """Run one round, whatever is asked for. Raises Diverged."""
        with self.precision():
            log = self._round()
            self._account(jax.tree.map(lambda leaf: np.asarray(leaf)[None], log), 1)
        return 1

    def _round(self) -> Log:
        method, spec, channel, t = self.method, self.spec, self.channel, self.t
        data, threat = self.data, self.threat
        if threat is not None and data.lying_y is not None and threat.attack.active(t):
            data = data._replace(y=data.lying_y)
        pooled = method.exchange == "pooled"
        sampled = [0] if pooled else np.asarray(round_cohort(spec, self.seed, t)).tolist()
        trainers = list(range(spec.clients)) if method.trains_all and not pooled else sampled
        up_stream, down_stream = (
            link.uplink(channel, method.exchange),
            link.downlink(channel, method.exchange),
        )
        key_of = lambda role, k: per_client(stream(self.seed, role), t, k)

        said: tuple[Any, Any, int] | None = None
        if method.exchange == "star" and not method.addressed:
            key = jax.random.fold_in(stream(self.seed, Role.DOWNLINK), t)
            said = self.carry(
                down_stream, self.centre.stream, method.broadcast(self.hub, 0), None, key, down=True
            )

        messages: dict[int, Any] = {}
        rows: dict[int, Row] = {}
        up, down, gradients, sound = {}, {}, [], []
        for k in trainers:
            row = Row(()) if pooled else self.row(k)
            if said is not None:
                received, heard, down[k] = said[0], row.down, said[2]
            elif method.addressed:
                received, heard, down[k] = self.carry(
                    down_stream,
                    row.down,
                    method.broadcast(self.hub, k),
                    None,
                    key_of(Role.DOWNLINK, k),
                    down=True,
                )
            else:
                received, heard, down[k] = method.broadcast(self.hub, k), row.down, 0
            step = local_of_one(spec, method, data, self.seed, t, k, received, row.memory)
            messages[k], rows[k], up[k] = step.message, Row(step.memory, row.up, heard), 0
            if k in sampled and step.sent:
                reference = (
                    method.reference(received, step.message) if method.exchange == "star" else None
                )
                messages[k], line, up[k] = self.carry(
                    up_stream, row.up, step.message, reference, key_of(Role.UPLINK, k)
                )
                rows[k] = Row(step.memory, line, heard)
            gradients.append(int(step.gradients))
            sound.append(bool(self.liars[k]) or finite((step.message, step.memory)))

        if method.exchange in ("star", "pooled"):
            arrived = stack([messages[k] for k in sampled])
            if said is not None and self.centre.stream != ():
                arrived = ahead(method, method.broadcast(self.hub, 0), said[0], arrived)
            if threat is not None:
                arrived = threat.attack.apply(
                    arrived, jnp.asarray(self.liars[sampled]), self.seed, t
                )
            state = method.merge(self.hub, arrived, self._cohort(sampled), t)
            self.centre = Hub(state, self.centre.stream if said is None else said[1])
        elif method.exchange == "graph":
            heard_of = self._with_lies(messages)
            itself = compares_itself(method, channel)
            pulls = {
                k: self._pull(
                    k, method.message(rows[k].memory) if itself else messages[k], heard_of
                )
                for k in sampled
            }
            for k in sampled:
                memory, line, heard = rows[k]
                pull, total = pulls[k]
                if method.hub_between:
                    own = method.own_pull(messages[k])
                    pull, heard, down[k] = self.carry(
                        down_stream, heard, pull, own, key_of(Role.DOWNLINK, k), total, down=True
                    )
                rows[k] = Row(
                    method.absorb(memory, pull, t),
                    follow_mixing(method, channel, t, line, pull, messages[k]),
                    heard,
                )
        if not pooled:
            for k in trainers:
                self.remember(k, rows[k])
        billed_up, billed_down = (
            np.array([bill[k] for k in trainers], np.int32) for bill in (up, down)
        )
        after = np.array([bool(self.liars[k]) or finite(rows[k].memory) for k in trainers])
        return Log(
            np.array(trainers),
            np.array(gradients, np.int32),
            np.array(sound),
            after,
            billed_up,
            billed_down,
            np.array(finite(self.hub)),
        )

    def _cohort(self, sampled: list[int]) -> Cohort:
        weights = [self.federation.train.sizes[k] if self.method.by_samples else 1 for k in sampled]
        return Cohort(jnp.array(sampled), jnp.array(weights, self.data.x.dtype))

    def _with_lies(self, messages: dict[int, Any]) -> dict[int, Any]:
        """What is heard of each client: what it sent, what it sent last (where that counts), or a
        lie.
        """
        stream = link.uplink(self.channel, "graph")
        like = next(iter(messages.values()))
        heard = dict(messages)
        if self.method.hears_all:
            for k in set(range(self.spec.clients)) - set(messages):
                row = self.row(k)
                heard[k] = (
                    self.method.message(row.memory)
                    if stream.passes
                    else link.known(stream, row.up, like)
                )
        if self.threat is None:
            return heard
        order = sorted(heard)
        told = self.threat.attack.apply(
            stack([heard[k] for k in order]), jnp.asarray(self.liars[order]), self.seed, self.t
        )
        one = lambda i: jax.tree.map(lambda leaf: leaf[i], told)
        return {k: one(i) for i, k in enumerate(order)}

    def _pull(self, client: int, own: Any, heard_of: dict[int, Any]) -> tuple[Any, Any]:
        """The pull of a client's neighbours that were heard of, and the sum of their weights."""
        assert self.graph is not None
        near = [
            (heard_of[l], weight)
            for l, weight in zip(*self.graph.neighbours(client), strict=True)
            if l in heard_of
        ]
        if not near:  # nobody pulls: a neighbour with weight 0
            near = [(own, 0.0)]
        weights = jnp.array([weight for _, weight in near], self.data.x.dtype)
        return (
            self.method.pull(own, stack([message for message, _ in near]), weights),
            weights.sum(),
        )

    def evaluate(self) -> Snapshot:
        with self.precision():
            scores = {name: self._scores(held) for name, held in self.held.items()}
        if self.liars.any():
            scores = {
                name: Scores(*(np.where(self.liars, np.nan, a) for a in found))
                for name, found in scores.items()
            }
        return Snapshot(self.t, scores, **self.ledger.totals())

    def _scores(self, held: Held) -> Scores:
        """Every view of every client on exactly its own samples; NaN where there are none."""
        views, n = self.method.model_views, self.spec.clients
        loss: NDArray[np.float64] = np.full((len(views), n), np.nan)
        score: NDArray[np.float64] = np.full((len(views), n), np.nan)
        x, y = np.asarray(held.x), np.asarray(held.y)
        for k in range(n):
            rows = slice(int(held.start[k]), int(held.start[k] + held.size[k]))
            if rows.start == rows.stop:
                continue
            models = self.models(k)
            for i, view in enumerate(views):
                loss[i, k], score[i, k] = score_of_one(
                    self.spec.learner, models[view].tree, x[rows], y[rows]
                )
        return Scores(loss, score)


def simulate_loop(
    method: Method | str,
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    graph: Graph | None = None,
    progress: Progress | None = None,
    channel: Channel | str = PLAIN,
    attack: Attack | None = None,
    **training: Any,
) -> Result:
    """`coterie.simulate`, one client at a time."""
    options = Training.from_config(training)
    begun = time.perf_counter()
    with Compilations() as compilations:
        simulator = LoopSimulator(
            method, federation, model, options, graph, channel=channel, attack=attack
        )
        snapshots = list(drive(simulator, progress))
    return Result(
        simulator.method,
        federation,
        options,
        snapshots,
        simulator.ledger,
        time.perf_counter() - begun,
        compilations.seconds,
        simulator,
    )
