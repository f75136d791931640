"""The slow simulator: one client after the other, in plain Python. For debugging, and what the fast one is tested against.

It has the semantics and the random streams of `Simulator`, but none of its machinery: no `vmap` over clients, no program that spans
rounds, no padded neighbour tables. Every client's functions are called alone, as a deployment would call them; every message really becomes
bytes and is read back; a client's pull is given exactly its real neighbours; scores are computed on exactly a client's own samples. A
breakpoint or a print in a method's `merge` sees plain arrays (`jax.disable_jit()` gives that inside `local` too).

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

from coterie.algorithms.base import Cohort, Method, Step
from coterie.coupling.graph import Graph
from coterie.data.federation import Federation
from coterie.engine.compilation import Compilations
from coterie.engine.evaluate import Held, Scores
from coterie.engine.options import Training
from coterie.engine.rounds import Data, Log, Spec, objective_of, round_cohort
from coterie.engine.simulate import Progress, Result, Simulator, Snapshot, drive
from coterie.models.base import Model, ModelSpec
from coterie.objective import Learner


def _local(spec: Spec, method: Method, data: Data, seed: Any, t: Any, client: Any, received: Any, memory: Any) -> Step:
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
    return all(bool(np.isfinite(leaf).all()) for leaf in leaves if np.issubdtype(leaf.dtype, np.inexact))


class LoopSimulator(Simulator):
    """`Simulator` with the clients strictly one at a time. Same arguments, same results to rounding, any store."""

    def memory(self, client: int) -> Any:
        """What a client keeps, on its own."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), self.store.gather(np.array([client])))

    def remember(self, client: int, memory: Any) -> None:
        if self.store.format.bytes:
            self.store.load(np.array([client]), self.store.format.pack(jax.tree.map(lambda leaf: np.asarray(leaf)[None], memory)))

    def advance(self, rounds: int) -> int:
        """Run one round, whatever is asked for. Raises Diverged."""
        with self.precision():
            log = self._round()
            self._account(jax.tree.map(lambda leaf: np.asarray(leaf)[None], log), 1)
        return 1

    def _round(self) -> Log:
        method, spec, codec = self.method, self.spec, self.spec.codec
        pooled = method.exchange == "pooled"
        sampled = [0] if pooled else np.asarray(round_cohort(spec, self.seed, self.t)).tolist()
        trainers = list(range(spec.clients)) if method.trains_all and not pooled else sampled
        messages: dict[int, Any] = {}
        kept: dict[int, Any] = {}
        bytes_up, gradients, sound = [], [], []
        for k in trainers:
            memory = () if pooled else self.memory(k)
            step = local_of_one(spec, method, self.data, self.seed, self.t, k, method.broadcast(self.hub, k), memory)
            wire = codec.encode(step.message)
            messages[k], kept[k] = codec.decode(wire, step.message), step.memory
            bytes_up.append(len(wire) if step.sent else 0)
            gradients.append(int(step.gradients))
            sound.append(finite((step.message, step.memory)))

        if method.exchange in ("star", "pooled"):
            self.hub = method.merge(self.hub, stack([messages[k] for k in sampled]), self._cohort(sampled), self.t)
        elif method.exchange == "graph":
            kept = {k: self._mixed(k, kept[k], messages) for k in sampled}
        if not pooled:
            for k in trainers:
                self.remember(k, kept[k])
        ids = np.array(trainers)
        after = np.array([finite(kept[k]) for k in trainers])
        return Log(ids, np.array(gradients, np.int32), np.array(sound), after, np.array(bytes_up, np.int32), np.array(finite(self.hub)))

    def _cohort(self, sampled: list[int]) -> Cohort:
        weights = [self.federation.train.sizes[k] if self.method.by_samples else 1 for k in sampled]
        return Cohort(jnp.array(sampled), jnp.array(weights, self.data.x.dtype))

    def _mixed(self, client: int, memory: Any, messages: dict[int, Any]) -> Any:
        """A client's memory after the pull of its neighbours: those that sent, or all with their last models."""
        assert self.graph is not None
        heard, weights = [], []
        for neighbour, weight in zip(*self.graph.neighbours(client), strict=True):
            if neighbour in messages:
                heard.append(messages[neighbour])
            elif self.method.hears_all:
                heard.append(self.method.message(self.memory(int(neighbour))))
            else:
                continue
            weights.append(weight)
        if not heard:
            return memory
        pull = self.method.pull(messages[client], stack(heard), jnp.array(weights, self.data.x.dtype))
        return self.method.absorb(memory, pull, self.t)

    def evaluate(self) -> Snapshot:
        with self.precision():
            scores = {name: self._scores(held) for name, held in self.held.items()}
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
                loss[i, k], score[i, k] = score_of_one(self.spec.learner, models[view].tree, x[rows], y[rows])
        return Scores(loss, score)


def simulate_loop(
    method: Method | str,
    federation: Federation,
    model: Model | ModelSpec | str = "mlr",
    *,
    graph: Graph | None = None,
    progress: Progress | None = None,
    **training: Any,
) -> Result:
    """`coterie.simulate`, one client at a time."""
    options = Training.from_config(training)
    begun = time.perf_counter()
    with Compilations() as compilations:
        simulator = LoopSimulator(method, federation, model, options, graph)
        snapshots = list(drive(simulator, progress))
    return Result(simulator.method, federation, options, snapshots, simulator.ledger, time.perf_counter() - begun, compilations.seconds, simulator)
