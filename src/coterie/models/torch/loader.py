"""A client whose batches come from its own PyTorch `DataLoader`, with whatever that augments or
shuffles; for a deployment, one client at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.core import randomness
from coterie.core.errors import InvalidInput
from coterie.core.pytree import tree
from coterie.core.randomness import Role, per_client
from coterie.models.base import Model
from coterie.models.objective import Batch, Learner, Objective
from coterie.models.torch.callback import LOCK, call_back, need_torch

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


class _LoaderFeed:
    """The batches of a loader as a function of (key, step).

    An epoch of the loader is gone through from a seed of its own; random numbers of PyTorch, NumPy
    and Python that it draws on the way are those of that seed and of nothing else. Steps are mostly
    asked for in order, so that nothing is drawn twice; one that went by begins its epoch again.
    """

    def __init__(self, loader: DataLoader[Any], dtype: Any) -> None:
        self.loader, self.dtype = loader, dtype
        self.epoch: tuple[int, ...] = ()
        self.at = 0
        self.batches: Iterator[Any] | None = None
        self.state: Any = None
        with LOCK, self._randomness((0,), None):
            try:
                x, y = next(iter(loader))
                x, y = np.asarray(x), np.asarray(y)
            except (StopIteration, TypeError, ValueError) as error:
                raise InvalidInput(
                    "the loader gives no pairs (inputs, targets) of tensors."
                ) from error
        self.classes = np.issubdtype(y.dtype, np.integer)
        self.x, self.y = x[:0].astype(dtype), y[:0].astype(np.int32 if self.classes else dtype)
        self.size = loader.batch_size or len(x)

    @contextlib.contextmanager
    def _randomness(self, seed: tuple[int, ...], state: Any) -> Iterator[None]:
        """All three generators go on from `state` (None: from the seed) and are put back
        afterwards.
        """
        import torch

        def get() -> Any:
            return (
                torch.default_generator.get_state(),
                random.getstate(),
                np.random.get_state(),  # noqa: NPY002
            )

        def put(state: Any) -> None:
            torch.default_generator.set_state(state[0])
            random.setstate(state[1])
            np.random.set_state(state[2])  # noqa: NPY002

        kept = get()
        try:
            if state is None:
                number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
                torch.default_generator.manual_seed(number)
                random.seed(number)
                np.random.seed(number)  # noqa: NPY002
                if self.loader.generator is not None:
                    self.loader.generator.manual_seed(number)
            else:
                put(state)
            yield
            self.state = get()
        finally:
            put(kept)

    def on_batch(self, key: Any, step: Any) -> Any:
        """A callback: numpy arrays in and out."""
        epoch, batch = divmod(int(np.asarray(step)), len(self.loader))
        asked = (*np.asarray(key).tolist(), epoch)
        with LOCK:
            if asked != self.epoch or batch < self.at or self.batches is None:
                with self._randomness(asked, None):
                    self.epoch, self.at, self.batches = asked, 0, iter(self.loader)
            while self.at <= batch:
                with self._randomness(asked, self.state):
                    x, y = next(self.batches)
                self.at += 1
            x, y = np.asarray(x), np.asarray(y)
            if len(x) > self.size:
                raise ValueError(
                    f"the loader gave a batch of {len(x)} samples after one of {self.size}"
                )
            return (
                self._padded(x, self.x),
                self._padded(y, self.y),
                self._padded(np.ones(len(x)), np.zeros(0, self.dtype)),
            )

    def _padded(self, values: Any, like: Any) -> Any:
        out = np.zeros((self.size, *like.shape[1:]), like.dtype)
        out[: len(values)] = values
        return out

    def shapes(self) -> Any:
        given = (
            ((self.size, *self.x.shape[1:]), self.x.dtype),
            ((self.size, *self.y.shape[1:]), self.y.dtype),
            ((self.size,), self.dtype),
        )
        return tuple(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in given)


@tree
@dataclasses.dataclass(frozen=True)
class LoaderObjective(Objective):
    """An objective whose mini-batch of local step i is the loader's: i counts on through its
    epochs.
    """

    stream: Any = dataclasses.field(default=None, metadata={"static": True})

    @property
    def steps_per_epoch(self) -> Any:
        return jnp.int32(len(self.stream.loader))

    def batch(self, step: Any) -> Batch:
        key = jax.random.key_data(self.key)
        x, y, weight = call_back(self.stream.on_batch, self.stream.shapes(), key, step)
        return Batch(x, y, weight, step)


class LoaderClient:
    """One client with a `DataLoader` of its own: `objective(t)` is what a method's `local` is given
    in round t.

    Every (seed, client, round, epoch) gives its own pass over the loader, the same each time it is
    asked for: shuffling and augmentation draw from PyTorch's, NumPy's or Python's global
    generators, or from the loader's own. The batches are not those that a simulation on the same
    samples draws.

    The loader must have a length and no workers: a process that runs JAX must not be forked.
    """

    def __init__(
        self,
        model: Model,
        loader: DataLoader[Any],
        *,
        seed: int = 0,
        client: int = 0,
        precision: str = "float32",
    ) -> None:
        need_torch()
        from torch.utils.data import DataLoader

        if not isinstance(loader, DataLoader):
            raise InvalidInput(
                f"the loader is of type {type(loader).__name__}, but must be a"
                " torch.utils.data.DataLoader."
            )
        if loader.num_workers:
            raise InvalidInput(
                f"the loader has num_workers={loader.num_workers}, but must have 0: a process that"
                " runs JAX must not be forked."
            )
        try:
            batches = len(loader)
            samples = len(loader.dataset)  # type: ignore[arg-type]
        except TypeError as error:
            raise InvalidInput(
                "the loader has no length, but must have one: an epoch must end."
            ) from error
        if not batches:
            raise InvalidInput("the loader has 0 batches, but must have at least 1.")
        self.model, self.seed, self.client, self.samples = model, seed, client, samples
        self.stream = _LoaderFeed(loader, np.dtype(precision))
        task = "classification" if self.stream.classes else "regression"
        self.learner = Learner(
            model.apply,
            model.class_major,
            task,
            self.stream.size,
            "shuffle",
            model.input_layer,
            model.loss,
            statistics=model.statistics,
        )

    def objective(self, t: Any) -> LoaderObjective:
        """f_k in round t."""
        key = lambda role: per_client(randomness.role_key(self.seed, role), t, self.client)
        return LoaderObjective(
            learner=self.learner,
            x=self.stream.x,
            y=self.stream.y,
            start=0,
            size=self.samples,
            key=key(Role.BATCH),
            private_key=key(Role.METHOD),
            t=t,
            l2=jnp.asarray(self.model.l2, self.stream.dtype),
            client=jnp.int32(self.client),
            stream=self.stream,
        )
