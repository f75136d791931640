"""The slow simulator: every round a second time, one client after the other, in plain Python.

For debugging, and what the fast one is tested against. It shares methods, channels and randomness
with `Simulator`, and nothing else: no `vmap` over clients, no program that spans rounds, no padded
neighbour tables, no exchange classes. Every client's functions are called alone, as a deployment
would call them; every message really becomes bytes and is read back; a client's pull is given
exactly its real neighbours; scores are computed on exactly a client's own samples. A breakpoint or
a print in a method's `merge` sees plain arrays (`jax.disable_jit()` gives that inside `local` too).

    >>> import coterie
    >>> fed = coterie.load("digits", clients=3)
    >>> options = {"rounds": 2, "eval_every": 2, "batch_size": 5}
    >>> slow = simulate_slowly(coterie.FedU(local_steps=2), fed, "mlr", **options)
    >>> fast = coterie.simulate(coterie.FedU(local_steps=2), fed, "mlr", **options)
    >>> bool(jnp.allclose(slow.personal(1).flat(), fast.personal(1).flat(), atol=1e-5))
    True
"""

from __future__ import annotations

import time
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from coterie.adversary import Attack
from coterie.channel import PLAIN, Channel, link
from coterie.channel.codec import size_of
from coterie.channel.link import Outgoing
from coterie.core.compilation import Compilations
from coterie.core.errors import Diverged
from coterie.core.randomness import (
    broadcast_key,
    down_key,
    up_key,
)
from coterie.core.typing import PyTree
from coterie.coupling.graph import Graph
from coterie.coupling.learnt import Evidence, GraphRule
from coterie.data.federation import Federation
from coterie.engine.kinship import as_sent, sketch_of, sketcher
from coterie.engine.simulate import Progress, Result, drive
from coterie.engine.slow import Slow, finite, local_of_one, stack
from coterie.engine.slow_gossip import gossip_slowly
from coterie.engine.training import Training, TrainingOptions
from coterie.methods.base import Method, Step
from coterie.methods.conditions import step_conditions
from coterie.methods.graph import GraphMethod
from coterie.methods.star import Cohort, StarMethod
from coterie.models.base import Model, ModelSpec


class Reference(Slow):
    """A method on a federation, one client at a time. Same results as `Simulator`, to rounding."""

    def advance(self, rounds: int) -> int:
        """Run one round, whatever is asked for. Raises Diverged."""
        with self.precision():
            if self.rule is not None and self.rule.due(self.t) and self.trained:
                self._learn()
            if self.t in self.rests:
                pass
            elif self.pooled:
                self._pooled_round()
            elif isinstance(self.method, StarMethod):
                self._star_round()
            elif isinstance(self.method, GraphMethod):
                self._graph_round()
            else:
                self._lonely_round()
        self.t += 1
        return 1

    def _local(self, k: int, received: PyTree) -> Step:
        lies = self.attack is not None and self.attack.on_data and bool(self.attack.active(self.t))
        y = self.lied_y if lies else self.y
        step: Step = local_of_one(
            self.method, received, self.method_states[k], self._objective(k, y)
        )
        if not self.malicious[k] and not finite((step.message, step.state)):
            self._diverged([k])
        return step

    def _diverged(self, clients: list[int]) -> None:
        self.t += 1
        norm = self.graph.laplacian_norm if self.graph is not None else 0.0
        found = step_conditions(self.method, self.template, norm, self.training.rounds)
        raise Diverged(self.method.title, self.t, clients, [str(c) for c in found if not c.holds])

    def _trainers(self, sampled: list[int]) -> list[int]:
        return list(range(self.n)) if self.method.trains_all else sampled

    def _lonely_round(self) -> None:
        for k in self._trainers(self.sampled()):
            step = self._local(k, ())
            self.method_states[k] = step.state
            self.ledger.add(self.t, np.array([k]), 0, 0, int(step.gradients))

    def _pooled_round(self) -> None:
        step: Step = local_of_one(self.method, self.hub, (), self._objective(0, self.y))
        if not finite(step.message):
            self._diverged([])
        self.hub = step.message
        train = self.federation.train
        sampled = self.sampled()[: self.method.batches(self.sampled_per_round)]
        row = size_of((train.x[:1].astype(self.training.precision), train.y[:1]))
        for k in range(self.n):
            up = int(train.sizes[k]) * row if self.t == 0 else 0
            self.ledger.add(
                self.t, np.array([k]), up, 0, int(step.gradients) if k in sampled else 0
            )

    def _star_round(self) -> None:
        method, t, sampled = self.method, self.t, self.sampled()
        trainers = self._trainers(sampled)
        arrived_down, down = None, {}
        if not method.addressed:
            out = Outgoing(
                method.broadcast(self.hub, 0), key=broadcast_key(self.seed, t), t=self.nth
            )
            arrived_down, size = self.down[0].carry(out)
            down = self._broadcast_bill(trainers, size)
        messages = {}
        for k in trainers:
            received = arrived_down
            if method.addressed:
                out = Outgoing(
                    method.broadcast(self.hub, k), key=down_key(self.seed, t, k), t=self.nth
                )
                received, down[k] = self.down[k].carry(out)
            step, up = self._local(k, received), 0
            messages[k], self.method_states[k] = step.message, step.state
            if k in sampled and bool(step.sent):
                near = method.reference(received, step.message)
                out = Outgoing(step.message, near, up_key(self.seed, t, k), self.nth)
                messages[k], up = self.up[k].carry(out)
            self.ledger.add(t, np.array([k]), up, down[k], int(step.gradients))
        arrived = [messages[k] for k in sampled]
        if not method.addressed and not self.down[0].sender.kind.passes:
            arrived = [self._ahead(message, arrived_down) for message in arrived]
        arrived, members = self._arriving(arrived, sampled)
        if members:
            sizes = self.federation.train.sizes
            weights = [float(sizes[k]) if method.by_samples else 1.0 for k in members]
            counted = Cohort(jnp.array(members), jnp.array(weights, self.dtype))
            self.hub = method.merge(self.hub, stack(arrived), counted, t)
        if not finite(self.hub):
            self._diverged([])

    def _broadcast_bill(self, trainers: list[int], size: int) -> dict[int, int]:
        """Who missed some broadcasts over public copies gets them all, or a whole copy if that is
        shorter.
        """
        wire = self.down[0]
        if wire.sender.kind.passes:
            return dict.fromkeys(trainers, size)
        self.broadcast_bytes += size
        whole = len(wire.sender.resend())
        bill = {k: min(self.broadcast_bytes - self.received_bytes[k], whole) for k in trainers}
        for k in trainers:
            self.received_bytes[k] = self.broadcast_bytes
        return bill

    def _ahead(self, message: PyTree, arrived: PyTree) -> PyTree:
        """A message as if its client had begun from what the hub has."""
        if not self.method.begins_from_received:
            return message
        at_hub = self.method.reference(self.method.broadcast(self.hub, 0), message)
        got = self.method.reference(arrived, message)
        return jax.tree.map(lambda m, a, b: m + (a - b), message, at_hub, got)

    def _arriving(
        self, messages: list[PyTree], clients: list[int]
    ) -> tuple[list[PyTree], list[int]]:
        """What arrives of these clients: their messages or lies, without what is not finite."""
        if self.attack is None or not messages:
            return messages, clients
        lie = jnp.asarray(self.malicious[clients])
        arrived = self.attack.apply(stack(messages), lie, self.seed, self.t)
        each = [jax.tree.map(lambda leaf: leaf[i], arrived) for i in range(len(clients))]  # noqa: B023
        kept = [(m, k) for m, k in zip(each, clients, strict=True) if finite(m)]
        return [m for m, _ in kept], [k for _, k in kept]

    def _tried(self, sets: NDArray[Any]) -> NDArray[np.float64]:
        """Losses of the mean models of sets of clients on every client's validation rows."""
        found = np.zeros(sets.shape[:2])
        for k, mine in enumerate(sets):
            for i, members in enumerate(mine):
                models = [self.method.message(self.method_states[j]) for j in members if j >= 0]
                if models:
                    mean = stack(models).map(lambda leaf: leaf.mean(0, keepdims=True))
                    losses = self._objective(k, self.y, held=True).held_losses(mean)
                    found[k, i] = float(losses[0])
        return found

    def _models_bill(self, tried: NDArray[Any]) -> None:
        size = size_of(self.method.message(self.method_states[0]))
        for k in range(self.n):
            got, asked = sum(j >= 0 for j in tried[k]), sum(k in row for row in tried)
            sent = min(asked, 1) if self.method.hub_between else asked
            self.ledger.add(self.t, np.array([k]), size * sent, size * got, 0)

    def _learn(self) -> None:
        """Sketches of those that trained since, one by one, and the graph of all that are known."""
        assert self.rule is not None
        rule, method = self.rule, self.method
        start = link.flat(method.message(method.client_init(self.template)))
        drawn = sketcher(rule, start, self.seed)
        size = rule.sketch_bytes(start.size)
        senders = sorted(self.trained)
        for k in senders:
            moved = sketch_of(method, drawn, start, self.method_states[k])
            self.sketches[k] = as_sent(rule, moved)
        silent = np.zeros(rule.numbers(start.size))
        heard = np.stack([self.sketches.get(k, silent) for k in range(self.n)])
        known = np.array([k in self.sketches for k in range(self.n)])
        evidence = Evidence(heard, known, rule.bits, self._tried)
        self.graph = rule.graph(evidence)
        if rule.tries_models:
            self._models_bill(rule.downloads(evidence))
        if rule.gossips:
            self.graph, up, down = gossip_slowly(rule, heard, self.seed, t=self.t, size=size)
            self.ledger.add(self.t, np.arange(self.n), up, down, 0)
            self.trained = set()
            return
        for k in range(self.n):
            sent, others = k in self.trained, len(self.trained - {k})
            if not method.hub_between:
                told = size * (self.n - 1) if sent else 0
                self.ledger.add(self.t, np.array([k]), told, size * others, 0)
            elif sent:
                self.ledger.add(self.t, np.array([k]), size, 0, 0)
        self.trained = set()

    def _graph_round(self) -> None:
        method, t, sampled = self.method, self.t, self.sampled()
        messages, gradients, up = {}, {}, {}
        alone = self.rule is not None and t < self.rule.after
        for k in sampled:
            step = self._local(k, ())
            self.method_states[k], gradients[k] = step.state, int(step.gradients)
            self.trained.add(k)
            if alone:
                self.ledger.add(t, np.array([k]), 0, 0, gradients[k])
                continue
            out = Outgoing(step.message, key=up_key(self.seed, t, k), t=self.nth)
            messages[k], up[k] = self.up[k].carry(out)
        if alone:
            return
        pool = self._neighbourhood(messages)
        itself = self.channel.cyclic and not method.hub_between
        pulls = {}
        for k in sampled:
            own = method.message(self.method_states[k]) if itself else messages[k]
            pulls[k] = self._pull(k, own, pool)
        for k in sampled:
            (pull, total), down = pulls[k], 0
            if method.hub_between:
                near, key = method.own_pull(messages[k]), down_key(self.seed, t, k)
                pull, down = self.down[k].carry(Outgoing(pull, near, key, self.nth, total))
                self.up[k].follow(method.moved(messages[k], pull, t))
            self.method_states[k] = method.absorb(self.method_states[k], pull, t)
            if not self.malicious[k] and not finite(self.method_states[k]):
                self._diverged([k])
            if method.hub_between:
                self.ledger.add(t, np.array([k]), up[k], down, gradients[k])
        if not method.hub_between:
            self._bill_peers(up, gradients)

    def _bill_peers(self, up: dict[int, int], gradients: dict[int, int]) -> None:
        """Over public copies, who was no neighbour in the round before gets a whole copy; before
        the first round all know each other's.
        """
        assert self.graph is not None
        near = [{int(l) for l in self.graph.neighbours(k)[0]} for k in range(self.n)]
        knew, whole = self.met or near, dict.fromkeys(up, 0)
        if self.up[0].sender.kind.copies:
            whole = {k: self.up[k].whole() for k in up}
        else:
            knew = near
        size = lambda k, l: up[k] if l in knew[k] else whole[k]
        for k in up:
            sent, got = sum(size(k, l) for l in near[k]), sum(size(l, k) for l in near[k])
            self.ledger.add(self.t, np.array([k]), sent, got, gradients[k])
        self.met = near

    def _neighbourhood(self, messages: dict[int, PyTree]) -> dict[int, PyTree]:
        """The pool, by client: what it sent, what it sent last (where that counts), or a lie."""
        senders = list(messages)
        arrived, kept = self._arriving([messages[k] for k in senders], senders)
        pool = dict(zip(kept, arrived, strict=True))
        if not self.method.hears_all:
            return pool
        for k in sorted(set(range(self.n)) - set(senders)):
            wire = self.up[k]
            last = self.method.message(self.method_states[k])
            if wire.sender.kind.copies:
                last = link.shaped(wire.receiver.public.copy, last)
            if self.attack is not None and self.malicious[k]:
                seen = stack([messages[m] for m in senders]), jnp.asarray(self.malicious[senders])
                last = self.attack.stale(last, k, seen, self.seed, self.t)
            if finite(last):
                pool[k] = last
        return pool

    def _pull(self, k: int, own: PyTree, pool: dict[int, PyTree]) -> tuple[PyTree, Any]:
        """The pull of a client's neighbours in the pool, and the sum of their weights."""
        assert self.graph is not None
        ties = zip(*self.graph.neighbours(k), strict=True)
        near = [(pool[int(l)], weight) for l, weight in ties if int(l) in pool]
        near = near or [(own, 0.0)]  # nobody pulls: a neighbour with weight 0
        weights = jnp.array([weight for _, weight in near], self.dtype)
        weights = self.method.effective(weights, self.t)
        return self.method.pull(own, stack([m for m, _ in near]), weights), weights.sum()


def simulate_slowly(
    method: Method | str,
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    graph: Graph | GraphRule | None = None,
    progress: Progress | None = None,
    channel: Channel | str = PLAIN,
    attack: Attack | None = None,
    **training: Unpack[TrainingOptions],
) -> Result:
    """`coterie.simulate`, one client at a time."""
    options = Training.from_config(dict(training))
    begun = time.perf_counter()
    with Compilations() as compilations:
        made = Reference(method, federation, model, options, graph, channel=channel, attack=attack)
        snapshots = list(drive(made, progress))
    seconds = time.perf_counter() - begun
    return Result(
        made.method,
        federation,
        options,
        snapshots,
        made.ledger,
        seconds,
        compilations.seconds,
        made,
    )
