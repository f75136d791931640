"""Models of sequences of whole numbers (characters, words): each number is looked up in a table of
vectors, and what follows the last one is predicted.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.models.base import Model, ModelSpec, model_spec
from coterie.models.layers import dense, dense_init, uniform


def _checked(name: str, shape: tuple[int, ...], vocabulary: int, outputs: int) -> int:
    """How many numbers are known: as many as there are classes, unless said otherwise."""
    if len(shape) != 1:
        raise InvalidInput(
            f"the model {name!r} takes a row of whole numbers, but the inputs have the shape"
            f" {shape}."
        )
    return vocabulary or outputs


def _looked_up(table: Any, x: Any) -> Any:
    """(length, batch, width): the vectors of the numbers in x, (batch, length). A number that is
    not in the table is taken for its first or last.
    """
    return jnp.take(table, x.astype(jnp.int32).T, axis=0, mode="clip")


@model_spec("lstm")
class Lstm(ModelSpec):
    """A table of vectors, LSTM layers over the sequence, and a dense layer on the last state.

    With the defaults and 80 characters it is LEAF's model for Shakespeare (8, 256, 256); its gates
    have one bias, so it has 817,872 parameters.
    """

    vocabulary: int = option(
        0, "how many different numbers there are; 0: as many as classes", low=0
    )
    width: int = option(8, "numbers that stand for one character", low=1)
    hidden: int = option(256, "units of a layer", low=1)
    layers: int = option(2, "LSTM layers", low=1)
    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss; 0: none", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        known = _checked(self.name, input_shape, self.vocabulary, outputs)
        widths = [self.width, *[self.hidden] * self.layers]

        def init(key: Any) -> dict[str, Any]:
            first, last, *keys = jax.random.split(key, 2 + self.layers)
            made: dict[str, Any] = {}
            made["table"] = jax.random.normal(first, (known, self.width)) / math.sqrt(self.width)
            for i, k in enumerate(keys):
                whole = widths[i] + self.hidden
                p = {"w": uniform(k, (4 * self.hidden, whole), self.hidden)}
                # A forget gate that begins open lets gradients through.
                p["b"] = jnp.zeros(4 * self.hidden).at[self.hidden : 2 * self.hidden].set(1.0)
                made[f"lstm{i}"] = p
            return made | {"out": dense_init(last, self.hidden, outputs)}

        def apply(p: dict[str, Any], x: Any) -> Any:
            values = _looked_up(p["table"], x).swapaxes(1, 2)  # (length, width, batch)
            for i in range(self.layers):
                values = _lstm(p[f"lstm{i}"], values)
            return dense(p["out"], values[-1])

        return Model(init, apply, class_major=True, l2=self.l2, name=self.name)


def _lstm(p: dict[str, Any], values: Any) -> Any:
    """One layer over (length, features, batch): the products with the inputs at once, those with
    the state step by step.
    """
    units = len(p["b"]) // 4
    from_input, from_state = jnp.split(p["w"], [values.shape[1]], axis=1)
    given = jnp.einsum("uf,tfb->tub", from_input, values) + p["b"][:, None]

    def step(state: Any, now: Any) -> tuple[Any, Any]:
        hidden, cell = state
        enter, forget, new, leave = jnp.split(now + from_state @ hidden, 4)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
        return (hidden, cell), hidden

    nothing = jnp.zeros((units, values.shape[2]), given.dtype)
    return jax.lax.scan(step, (nothing, nothing), given)[1]


@model_spec("transformer")
class Transformer(ModelSpec):
    """A small transformer: tables of vectors for numbers and for their places, layers of
    self-attention and of two dense layers, each behind a layer normalisation and around a short
    cut, and a dense layer on the last place.
    """

    vocabulary: int = option(
        0, "how many different numbers there are; 0: as many as classes", low=0
    )
    width: int = option(32, "numbers that stand for one character", low=1)
    heads: int = option(4, "heads of attention; they share the width", low=1)
    hidden: int = option(64, "units between the two dense layers", low=1)
    layers: int = option(2, "layers", low=1)
    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss; 0: none", low=0)

    def validate(self) -> None:
        if self.width % self.heads:
            raise InvalidInput(
                f"transformer.heads is {self.heads}, but must divide the width, {self.width}."
            )

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        known = _checked(self.name, input_shape, self.vocabulary, outputs)
        (length,), width = input_shape, self.width

        def init(key: Any) -> dict[str, Any]:
            first, second, last, *keys = jax.random.split(key, 3 + self.layers)
            made: dict[str, Any] = {
                "table": jax.random.normal(first, (known, width)) / math.sqrt(width),
                "places": jax.random.normal(second, (length, width)) / math.sqrt(width),
            }
            for i, k in enumerate(keys):
                a, b, c, d = jax.random.split(k, 4)
                made[f"layer{i}"] = {
                    "norm1": _norm_init(width),
                    "look": {"w": uniform(a, (3 * width, width), width)},
                    "mix": {"w": uniform(b, (width, width), width)},
                    "norm2": _norm_init(width),
                    "dense1": dense_init(c, width, self.hidden),
                    "dense2": dense_init(d, self.hidden, width),
                }
            return made | {"norm": _norm_init(width), "out": dense_init(last, width, outputs)}

        def apply(p: dict[str, Any], x: Any) -> Any:
            values = _looked_up(p["table"], x).swapaxes(0, 1) + p["places"]
            for i in range(self.layers):
                values = _attended(p[f"layer{i}"], values, self.heads)
            return dense(p["out"], _norm(p["norm"], values[:, -1]).T)

        return Model(init, apply, class_major=True, l2=self.l2, name=self.name)


def _norm_init(width: int) -> dict[str, Any]:
    return {"scale": jnp.ones(width), "shift": jnp.zeros(width)}


def _norm(p: dict[str, Any], values: Any) -> Any:
    """Zero mean and unit variance over the last axis."""
    mean = values.mean(-1, keepdims=True)
    variance = jnp.square(values - mean).mean(-1, keepdims=True)
    return (values - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["shift"]


def _attended(p: dict[str, Any], values: Any, heads: int) -> Any:
    """One layer over (batch, length, width); a place sees those up to itself."""
    batch, length, width = values.shape
    look = _norm(p["norm1"], values) @ p["look"]["w"].T
    asked, offered, told = (
        part.reshape(batch, length, heads, width // heads) for part in jnp.split(look, 3, axis=-1)
    )
    fits = jnp.einsum("bqhf,bkhf->bhqk", asked, offered) / math.sqrt(width // heads)
    before = jnp.tril(jnp.ones((length, length), bool))
    share = jax.nn.softmax(jnp.where(before, fits, -jnp.inf), -1)
    seen = jnp.einsum("bhqk,bkhf->bqhf", share, told).reshape(batch, length, width)
    values = values + seen @ p["mix"]["w"].T
    inner = jax.nn.relu(_norm(p["norm2"], values) @ p["dense1"]["w"].T + p["dense1"]["b"])
    return values + inner @ p["dense2"]["w"].T + p["dense2"]["b"]
