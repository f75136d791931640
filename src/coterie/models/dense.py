"""Linear models and perceptrons."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.models.base import InputLayer, Model, ModelSpec, model_spec
from coterie.models.batch_norm import KINDS, Norm, normalised
from coterie.models.layers import dense, dense_first, dense_init, norm_init

ONLY_LAYER = InputLayer(
    split=lambda p: (p, ()), join=lambda first, rest: first, after=lambda rest, z: z
)


@model_spec("mlr")
class LogisticRegression(ModelSpec):
    """Multinomial logistic regression (softmax of a linear map), with optional L2.

    With `l2` > 0 it is the strongly convex model of the FedU and pFedMe papers. They name no value,
    and FedU's published code has none (weight_decay = 0), so the default is 0: convex, but not
    strongly.
    """

    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss; 0: none", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        inputs = math.prod(input_shape)
        return Model(
            lambda key: dense_init(key, inputs, outputs),
            dense_first,
            class_major=True,
            l2=self.l2,
            name=self.name,
            input_layer=ONLY_LAYER,
        )


@model_spec("linear")
class Linear(ModelSpec):
    """A linear map without intercept, started at zero; for regression."""

    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss; 0: none", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        inputs = math.prod(input_shape)
        return Model(
            lambda key: {"w": jnp.zeros((outputs, inputs))},
            lambda p, x: p["w"] @ x.reshape(len(x), -1).T,
            class_major=True,
            l2=self.l2,
            name=self.name,
            input_layer=ONLY_LAYER,
        )


def _widths(given: Any) -> list[int]:
    """The widths of hidden layers, given as text, as a list or as one number."""
    widths: list[int] = []
    if isinstance(given, str):
        with contextlib.suppress(ValueError):
            widths = [int(width) for width in given.split(",")]
    else:
        parts = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
        if all(isinstance(p, (int, np.integer)) and not isinstance(p, bool) for p in parts):
            widths = [int(p) for p in parts]
    if not widths or min(widths) < 1:
        raise InvalidInput(
            f"mlp.hidden is {given!r}, but must be whole numbers ≥ 1, as text with commas between"
            ' or as a list, e.g. "100,100" or [100, 100].'
        )
    return widths


@model_spec("mlp")
class Perceptron(ModelSpec):
    """Fully connected layers with ReLU between them; `hidden` gives their widths, e.g. "100" or
    [100, 100].
    """

    hidden: str | list[int] = option(
        "100", 'widths of the hidden layers, e.g. "100", "100,100" or [100, 100]'
    )
    norm: str | None = option(
        None,
        'normalisation of hidden layers: "batch", with statistics of each client, or with shared'
        " ones that are sent like parameters; nothing: none",
        choices=KINDS,
    )
    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss; 0: none", low=0)

    def __post_init__(self) -> None:
        # A list is kept as text, the only form that configs and fingerprints know.
        widths = _widths(self.hidden)
        if not isinstance(self.hidden, str):
            object.__setattr__(self, "hidden", ",".join(map(str, widths)))
        super().__post_init__()

    def widths(self) -> list[int]:
        return _widths(self.hidden)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        sizes = [math.prod(input_shape), *self.widths(), outputs]

        def init(key: Any) -> dict[str, Any]:
            keys = jax.random.split(key, len(sizes) - 1)
            return {
                f"layer{i}": dense_init(k, a, b)
                for i, (k, a, b) in enumerate(zip(keys, sizes, sizes[1:], strict=False))
            }

        if self.norm is not None:
            return self._normalised(init, len(sizes) - 1)

        def after(rest: dict[str, Any], z: Any) -> Any:
            for i in range(1, len(sizes) - 1):
                z = dense(rest[f"layer{i}"], jax.nn.relu(z))
            return z

        first = InputLayer(
            split=lambda p: (p["layer0"], {k: v for k, v in p.items() if k != "layer0"}),
            join=lambda first, rest: {"layer0": first, **rest},
            after=after,
        )
        return Model(
            init,
            lambda p, x: after(p, dense_first(p["layer0"], x)),
            class_major=True,
            l2=self.l2,
            name=self.name,
            input_layer=first,
        )

    def _normalised(self, init: Any, layers: int) -> Model:
        """Dense, batch normalisation, ReLU; the last layer is dense alone."""

        def begin(key: Any) -> dict[str, Any]:
            p = init(key)
            for i in range(layers - 1):
                p[f"layer{i}"]["norm"] = norm_init(len(p[f"layer{i}"]["b"]))
            return p

        def forward(p: dict[str, Any], x: Any, norm: Norm) -> Any:
            z = dense_first(p["layer0"], x)
            for i in range(layers - 1):
                z = jax.nn.relu(norm(f"layer{i}", p[f"layer{i}"]["norm"], z))
                z = dense(p[f"layer{i + 1}"], z)
            return z

        return normalised(begin, forward, self)
