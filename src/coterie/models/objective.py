"""What one client can compute on its own data: mini-batches, losses and gradients.

The only thing a method sees of the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from coterie.core.pytree import tree
from coterie.core.randomness import permute
from coterie.core.schedule import at
from coterie.core.vector import Vector
from coterie.models.base import Fitted, InputLayer, OwnLoss, Statistics

Sampling = Literal["shuffle", "replace", "full"]

_OWN_LOSS = 0x7FFFFFFF
"""Sets a model's own randomness apart from the mini-batches, whose numbers come from the same key
and count up from 0.
"""


TILE = 64
"""Validation rows that are looked at together."""


class Held(NamedTuple):
    """A client's validation rows: start … start + size − 1."""

    x: Any
    y: Any
    start: Any
    size: Any


class Batch(NamedTuple):
    """Samples and a weight each: 1, or 0 for padding (the end of an epoch, a client smaller than
    the batch).
    """

    x: Any
    y: Any
    weight: Any
    step: Any = 0
    """The local step it was drawn for."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The static side of an objective: how outputs and losses come about.

    Hashable, so programs are shared between runs.
    """

    apply: Callable[[Any, Any], Any]
    class_major: bool
    task: str
    batch_size: int
    sampling: Sampling
    input_layer: InputLayer | None = None
    loss: OwnLoss | None = None
    metric: str = ""
    """What samples are scored by, where it is a mean over samples; nothing: right or wrong, or the
    squared error.
    """
    statistics: Statistics | None = None

    def sample_losses(self, outputs: Any, y: Any) -> Any:
        """The loss of each sample: cross-entropy of the softmax, or half the squared error, unless
        the model has its own.
        """
        if self.loss is not None and self.loss.samples is not None:
            return self.loss.samples(outputs, y)
        axis = 0 if self.class_major else -1
        if self.task == "classification":
            picked = jnp.take_along_axis(outputs, jnp.expand_dims(y, axis), axis).squeeze(axis)
            return jax.nn.logsumexp(outputs, axis) - picked
        return 0.5 * jnp.sum(jnp.square(outputs - self._targets(outputs, y)), axis)

    def sample_scores(self, outputs: Any, y: Any) -> Any:
        """The score of each sample, the larger the better: 1 if classified correctly, or the
        negated squared error, unless another metric is asked for.
        """
        axis = 0 if self.class_major else -1
        if self.metric == "log-loss":
            picked = jnp.take_along_axis(outputs, jnp.expand_dims(y, axis), axis).squeeze(axis)
            return picked - jax.nn.logsumexp(outputs, axis)
        if self.metric == "mae":
            return -jnp.sum(jnp.abs(outputs - self._targets(outputs, y)), axis)
        if self.task == "classification":
            return (jnp.argmax(outputs, axis) == y).astype(outputs.dtype)
        return -jnp.sum(jnp.square(outputs - self._targets(outputs, y)), axis)

    def rows(self, parameters: Any, x: Any) -> Any:
        """Outputs as (samples, classes), whichever way the model computes them."""
        outputs = self.apply(parameters, x)
        return outputs.T if self.class_major else outputs

    def _targets(self, outputs: Any, y: Any) -> Any:
        y = y[:, None] if y.ndim == 1 else y
        return (y.T if self.class_major else y).astype(outputs.dtype)


def batch_of(learner: Learner, schedule: Any, t: Any) -> Any:
    """Samples that count in a batch of round t."""
    if schedule is None:
        return learner.batch_size
    return jnp.clip(jnp.ceil(at(schedule, t)), 1, learner.batch_size).astype(jnp.int32)


def batches_of(learner: Learner, size: Any, schedule: Any, t: Any) -> Any:
    """Mini-batches in an epoch over so many samples."""
    if learner.sampling == "full":
        return jnp.ones_like(size)
    count = batch_of(learner, schedule, t)
    return (size + count - 1) // count


@tree
@dataclasses.dataclass(frozen=True)
class Objective:
    """f_k of one client in round t.

    `x` and `y` hold at least this client's samples; its own are rows start … start + size − 1. In
    the simulator they are the packed arrays of everybody, on a deployed client they are its own:
    the methods cannot tell the difference.
    """

    learner: Learner = dataclasses.field(metadata={"static": True})
    x: Any
    y: Any
    start: Any
    size: Any
    key: Any
    """Of this client in this round, for mini-batches: the same whatever the method."""
    private_key: Any
    """Of this client in this round, for the method's own randomness."""
    t: Any
    """The round, 0, 1, 2, …"""
    l2: Any = 0.0
    batch_schedule: Any = None
    """D_t, the samples that count in a batch of round t (rounded up, at most batch_size); None: all
    of them.
    """
    held: Held | None = None
    """For methods that look at validation rows."""
    client: Any = None
    """The client's number, for methods whose clients are not all alike."""

    @property
    def _count(self) -> Any:
        return batch_of(self.learner, self.batch_schedule, self.t)

    @property
    def steps_per_epoch(self) -> Any:
        """⌈size / batch⌉, which differs from client to client."""
        return batches_of(self.learner, self.size, self.batch_schedule, self.t)

    def batch(self, step: Any) -> Batch:
        """The mini-batch of local step 0, 1, 2, … of this round.

        "shuffle": epochs over a fresh random order, the last batch of an epoch may be short.
        "replace": independent draws. "full": everything, so that gradients are exact.
        """
        slots = jnp.arange(self.learner.batch_size)
        if self.learner.sampling == "full":
            index, real = self._filled(slots), slots < self.size
        elif self.learner.sampling == "replace":
            index = jax.random.randint(
                jax.random.fold_in(self.key, step), slots.shape, 0, self.size
            )
            real = slots < self._count
        else:
            per_epoch = self.steps_per_epoch
            in_epoch = (step % per_epoch) * self._count + slots
            order = jax.random.fold_in(self.key, step // per_epoch)
            index = permute(order, self._filled(in_epoch), self.size)
            real = (slots < self._count) & (in_epoch < self.size)
        rows = self.start + jnp.clip(index, 0, self.size - 1)
        return Batch(self.x[rows], self.y[rows], real.astype(self.x.dtype), step)

    def _filled(self, position: Any) -> Any:
        """Positions beyond the client's samples begin again with the first, where a model looks at
        the whole batch.
        """
        return position if self.learner.statistics is None else position % self.size

    def mean_loss(self, outputs: Any, batch: Batch) -> Any:
        """Mean loss over the batch of given outputs."""
        return jnp.sum(self.learner.sample_losses(outputs, batch.y) * batch.weight) / jnp.sum(
            batch.weight
        )

    def loss(self, parameters: Vector, batch: Batch) -> Any:
        """Mean loss over the batch, plus (l2/2)‖parameters‖²."""
        own, kept, tree = self.learner.loss, self.learner.statistics, parameters.tree
        shared = kept is not None and kept.shared
        if shared:
            tree = parameters.tree.parameters
        if own is None and kept is None:
            mean = self.mean_loss(self.learner.apply(tree, batch.x), batch)
        elif own is None:
            assert kept is not None
            mean = self.mean_loss(kept.train(tree, batch.x, batch.weight)[0], batch)
        else:
            seed = jax.random.bits(
                jax.random.fold_in(jax.random.fold_in(self.key, _OWN_LOSS), batch.step),
                dtype=jnp.uint32,
            )
            mean = own.training(tree, batch.x, batch.y, batch.weight, seed)
        whole = mean + 0.5 * self.l2 * Vector(tree).squared_norm()
        return whole + self._follow(parameters.tree, batch) if shared else whole

    def _follow(self, model: Fitted, batch: Batch) -> Any:
        """0, with a gradient by which shared statistics s follow those of the batches, b: s − b, so
        that a step of size lr is s ← (1 − lr) s + lr b.
        """
        kept = self.learner.statistics
        assert kept is not None
        found = jax.lax.stop_gradient(kept.train(model.parameters, batch.x, batch.weight)[1])
        half = 0.5 * (Vector(model.statistics) - Vector(found)).squared_norm()
        return half - jax.lax.stop_gradient(half)

    def fitted(self, model: Vector) -> Vector:
        """A model as it predicts: with the statistics of this client's own mini-batches, where it
        has any.

        They are the mean over the batches of an epoch of this round, or over as many of them as the
        model says, weighted by their samples.
        """
        kept = self.learner.statistics
        if kept is None or kept.shared:
            return model

        def of(batch: Batch) -> Any:
            return kept.train(model.tree, batch.x, batch.weight)[1]

        def add(i: Any, sums: Any) -> Any:
            (total, count), batch = sums, self.batch(i)
            samples = jnp.sum(batch.weight)
            return jax.tree.map(lambda a, b: a + samples * b, total, of(batch)), count + samples

        shapes = jax.eval_shape(lambda: of(self.batch(0)))
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        batches = jnp.minimum(self.steps_per_epoch, kept.batches)
        begin = nothing, jnp.zeros((), self.x.dtype)
        total, samples = jax.lax.fori_loop(0, batches, add, begin)
        return Vector(Fitted(model.tree, jax.tree.map(lambda a: a / samples, total)))

    def held_losses(self, models: Vector) -> Any:
        """The loss of each model, stacked along axis 0, summed over the client's validation rows;
        zeros where it has none.
        """
        assert self.held is not None
        x, y, start, size = self.held
        nothing = jnp.zeros(len(models.leaves[0]), models.dtype)
        if not len(x):
            return nothing

        def add(i: Any, total: Any) -> Any:
            places = i * TILE + jnp.arange(TILE)
            rows = start + jnp.clip(places, 0, jnp.maximum(size - 1, 0))

            def one(model: Vector) -> Any:
                outputs = self.learner.apply(self.fitted(model).tree, x[rows])
                losses = self.learner.sample_losses(outputs, y[rows])
                return jnp.sum(jnp.where(places < size, losses, 0))

            return total + jax.vmap(one)(models)

        return jax.lax.fori_loop(0, (size + TILE - 1) // TILE, add, nothing)

    def gradient(self, parameters: Vector, batch: Batch) -> Vector:
        """∇f̃_k, in the shape of the parameters."""
        return jax.grad(self.loss)(parameters, batch)
