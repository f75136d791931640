"""What a model is: `init(key)` gives parameters, `apply(parameters, inputs)` gives outputs.
Anything with these two works.

Shipped models are *class-major*: they return outputs of shape (classes, batch) and keep weights as
(out, in). With a different weight matrix per client this is what batched matrix products on a CPU
like best: about twice as fast as (batch, classes) here (bench/layout.py measures it). Models of
other libraries return (batch, classes) and leave `class_major` False.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import Options, chosen, registered
from coterie.core.vector import Vector


class InputLayer(NamedTuple):
    """Says that a model begins with a dense layer z = W x + b on the flattened sample; lets several
    steps on one batch skip most products with x.

    `split(parameters)` gives ({"w": W, "b": b}, rest) (b may be absent), `join` is its inverse,
    `after(rest, z)` gives the class-major outputs.
    """

    split: Callable[[Any], tuple[Any, Any]]
    join: Callable[[Any, Any], Any]
    after: Callable[[Any, Any], Any]


class OwnLoss(NamedTuple):
    """A model's own way to its loss, in the place of `apply` followed by cross-entropy or half the
    squared error.

    `training(parameters, x, y, weight, seed)` is the mean loss over the samples of weight 1;
    whatever it draws at random (dropout) depends on `seed` alone. `samples(outputs, y)`, for
    evaluation, is the loss of each sample; None: the usual one.
    """

    training: Callable[[Any, Any, Any, Any, Any], Any]
    samples: Callable[[Any, Any], Any] | None = None


class Statistics(NamedTuple):
    """Says that a model normalises by statistics of its batch while it trains, and by given ones
    when it predicts (batch normalisation).

    `train(parameters, x, weight)` gives the outputs in training mode and the statistics of this
    batch alone (a pytree of floats, without running means); samples of weight 0 are padding, and
    copies of others. `apply` of such a model gets a `Fitted`.

    The statistics of a client are the mean over its own mini-batches, worked out when its model is
    evaluated or exported. They are not sent, mixed or stored. With `shared` they are part of the
    parameters instead, and whatever a method does to these it does to them.
    """

    train: Callable[[Any, Any, Any], tuple[Any, Any]]
    shared: bool = False
    batches: int = 50
    """The most mini-batches that they are taken from."""


class Fitted(NamedTuple):
    """A model with statistics as it predicts."""

    parameters: Any
    statistics: Any


@dataclasses.dataclass(frozen=True)
class Model:
    """Pure functions only. `l2` adds (l2/2)‖parameters‖² to every client's loss.

    >>> import jax.numpy as jnp
    >>> line = Model(init=lambda key: {"w": jnp.zeros(3)}, apply=lambda p, x: (x @ p["w"])[:, None])
    >>> line.parameters()
    3
    """

    init: Callable[[Any], Any]
    apply: Callable[[Any, Any], Any]
    class_major: bool = False
    l2: float = 0.0
    name: str = "custom"
    input_layer: InputLayer | None = None
    loss: OwnLoss | None = None
    statistics: Statistics | None = None
    predicts: Any = dataclasses.field(default=None, compare=False)
    """The shapes of what `apply` gets when it predicts, where that is not the parameters alone."""

    def __post_init__(self) -> None:
        if not callable(self.init) or not callable(self.apply):
            raise InvalidInput(
                "a model needs two functions, init(key) and apply(parameters, inputs)."
            )
        if not (isinstance(self.l2, (int, float)) and self.l2 >= 0):
            raise InvalidInput(f"model.l2 is {self.l2!r}, but must be a number ≥ 0.")
        if self.statistics is None:
            return
        if not isinstance(self.statistics, Statistics) or not callable(self.statistics.train):
            raise InvalidInput("model.statistics must be a Statistics(train) with a function.")
        if self.statistics.batches < 1:
            raise InvalidInput(
                f"model.statistics.batches is {self.statistics.batches}, but must be ≥ 1."
            )
        if self.input_layer is not None:
            raise InvalidInput("a model with statistics cannot have an input_layer.")

    def check(self, input_shape: tuple[int, ...], outputs: int, task: str) -> None:
        """Called before a run, to refuse what would only fail, or go wrong silently, much later."""
        who = f"the model {self.name!r}"
        try:
            parameters = jax.eval_shape(self.init, jax.random.key(0))
        except Exception as error:
            raise InvalidInput(f"{who} cannot be initialised ({_reason(error)}).") from error
        leaves = jax.tree_util.tree_leaves_with_path(parameters)
        if not sum(leaf.size for _, leaf in leaves):
            raise InvalidInput(f"{who} has no parameters, so there is nothing to train.")
        for path, leaf in leaves:
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise InvalidInput(
                    f"{who} has parameters {jax.tree_util.keystr(path)} of type {leaf.dtype}, but"
                    " all must be floating point; keep other numbers in `apply`."
                )
        two = jax.ShapeDtypeStruct((2, *input_shape), jnp.float32)
        wanted = (outputs, 2) if self.class_major else (2, outputs)
        if self.statistics is not None:
            parameters = self._check_statistics(who, parameters, two, wanted)
        try:
            found = jax.eval_shape(self.apply, parameters, two)
        except Exception as error:
            raise InvalidInput(
                f"{who} fails on inputs of shape {two.shape} ({_reason(error)})."
            ) from error
        if not isinstance(found, jax.ShapeDtypeStruct):
            raise InvalidInput(
                f"{who} gives {type(found).__name__}, but must give one array of shape {wanted} for"
                " 2 samples."
            )
        if found.shape != wanted:
            raise InvalidInput(
                f"{who} gives outputs of shape {found.shape} for 2 samples of shape {input_shape},"
                f" but must give {wanted}."
            )
        if not jnp.issubdtype(found.dtype, jnp.floating):
            raise InvalidInput(
                f"{who} gives outputs of type {found.dtype}, but they must be floating point."
            )

    def _check_statistics(
        self, who: str, parameters: Any, two: Any, wanted: tuple[int, int]
    ) -> Fitted:
        """Refuse a training mode that does not fit; the shapes of the model as it predicts."""
        assert self.statistics is not None
        weight = jax.ShapeDtypeStruct((2,), jnp.float32)
        try:
            outputs, found = jax.eval_shape(self.statistics.train, parameters, two, weight)
        except Exception as error:
            raise InvalidInput(
                f"{who} fails in training mode on inputs of shape {two.shape} ({_reason(error)})."
            ) from error
        if getattr(outputs, "shape", None) != wanted:
            raise InvalidInput(
                f"{who} gives outputs of shape {getattr(outputs, 'shape', None)} in training mode,"
                f" but must give {wanted}."
            )
        for path, leaf in jax.tree_util.tree_leaves_with_path(found):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise InvalidInput(
                    f"{who} has statistics {jax.tree_util.keystr(path)} of type {leaf.dtype}, but"
                    " all must be floating point; leave counters out."
                )
        return Fitted(parameters, found)

    def vector(self, key: Any, inputs: tuple[int, ...] = ()) -> Vector:
        """Fresh parameters as a point of R^d.

        Shared statistics are among them, and need the shape of an input; they begin as those of
        standard normal inputs.
        """
        parameters = self.init(key)
        if self.statistics is None or not self.statistics.shared:
            return Vector(parameters)
        x = jax.random.normal(jax.random.fold_in(key, 1), (64, *inputs))
        return Vector(Fitted(parameters, self.statistics.train(parameters, x, jnp.ones(64))[1]))

    def predictor(self, inputs: tuple[int, ...]) -> Any:
        """The shapes of what `apply` gets: the parameters, or a `Fitted`."""
        parameters = jax.eval_shape(self.init, jax.random.key(0))
        if self.predicts is not None:
            return self.predicts
        if self.statistics is None:
            return parameters
        x, weight = (jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2, *inputs), (2,)))
        return Fitted(parameters, jax.eval_shape(self.statistics.train, parameters, x, weight)[1])

    def parameters(self) -> int:
        """d, without allocating anything."""
        return Vector(jax.eval_shape(self.init, jax.random.key(0))).size

    def outputs(self, parameters: Any, x: Any) -> Any:
        """Outputs as (batch, classes), whichever way the model computes them."""
        out = self.apply(parameters, x)
        return out.T if self.class_major else out


def _reason(error: Exception) -> str:
    """What an error of somebody else's code says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".:") if lines else type(error).__name__


MODELS: dict[str, type[ModelSpec]] = {}
S = TypeVar("S", bound="ModelSpec")


class ModelSpec(Options):
    """A shipped model by name: options, and `build` for the inputs and outputs of a federation."""

    summary: ClassVar[str] = ""

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        raise NotImplementedError


@dataclass_transform(frozen_default=True, kw_only_default=True)
def model_spec(name: str) -> Callable[[type[S]], type[S]]:
    """Register a ModelSpec under a name, for TOML and the command line."""
    return registered(MODELS, name)


def get_model(name: str, options: dict[str, Any] | None = None) -> ModelSpec:
    return chosen(MODELS, "the model", name, options)
