"""Layers in class-major form: activations are (features, batch) or (channels, height, width,
batch).

A convolution is written as shifted slices and one matrix product. Under `vmap` with different
weights per client that is an ordinary batched matrix product, where XLA's own convolution would
become a grouped one, which is several times slower on a CPU.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def uniform(key: Any, shape: tuple[int, ...], fan_in: int) -> Any:
    """Entries from U(−1/√fan_in, 1/√fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def dense_init(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    kw, kb = jax.random.split(key)
    return {"w": uniform(kw, (outputs, inputs), inputs), "b": uniform(kb, (outputs,), inputs)}


def dense_first(p: dict[str, Any], x: Any) -> Any:
    """The first layer takes samples as they are stored, (batch, …), and turns them over: (outputs,
    batch).
    """
    return p["w"] @ x.reshape(len(x), -1).T + p["b"][:, None]


def dense(p: dict[str, Any], x: Any) -> Any:
    return p["w"] @ x + p["b"][:, None]


def conv_init(key: Any, channels: int, outputs: int, size: int) -> dict[str, Any]:
    kw, kb = jax.random.split(key)
    fan_in = channels * size * size
    return {"w": uniform(kw, (outputs, fan_in), fan_in), "b": uniform(kb, (outputs,), fan_in)}


def conv(p: dict[str, Any], x: Any, size: int, stride: int = 1, padding: int = 0) -> Any:
    """A size×size convolution of (channels, height, width, batch); the weight's columns run over
    (row, column, channel).
    """
    if padding:
        x = jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    channels, height, width, batch = x.shape
    rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    patches = jnp.stack(
        [
            x[
                :,
                i : i + stride * (rows - 1) + 1 : stride,
                j : j + stride * (columns - 1) + 1 : stride,
            ]
            for i in range(size)
            for j in range(size)
        ]
    )
    out = p["w"] @ patches.reshape(size * size * channels, rows * columns * batch) + p["b"][:, None]
    return out.reshape(-1, rows, columns, batch)


def max_pool(x: Any) -> Any:
    """2×2 maximum, odd borders cut off."""
    channels, height, width, batch = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(
        channels, height // 2, 2, width // 2, 2, batch
    )
    return x.max((2, 4))


def max_pool_3(x: Any) -> Any:
    """3×3 maximum with stride 2 and padding 1."""
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )


def norm_init(channels: int) -> dict[str, Any]:
    return {"scale": jnp.ones(channels), "shift": jnp.zeros(channels)}


def group_norm(p: dict[str, Any], x: Any, groups: int = 16) -> Any:
    """Group normalisation: as many parameters as batch normalisation, but no statistics that live
    outside the parameters.
    """
    g = x.reshape(groups, -1, x.shape[-1])
    mean = g.mean(1, keepdims=True)
    spread = jnp.square(g - mean).mean(1, keepdims=True)
    x = ((g - mean) * lax.rsqrt(spread + 1e-5)).reshape(x.shape)
    return x * p["scale"][:, None, None, None] + p["shift"][:, None, None, None]


def images(x: Any, shape: tuple[int, int, int]) -> Any:
    """Samples as stored, (batch, height·width·channels in any shape), as (channels, height, width,
    batch).
    """
    return jnp.transpose(x.reshape(-1, *shape), (3, 1, 2, 0))


def image_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(height, width, channels) of an input: (h, w), (h, w, c), or a flat square image of 1 or 3
    channels.
    """
    from coterie.core.errors import InvalidInput

    if len(input_shape) == 3:
        return input_shape[0], input_shape[1], input_shape[2]
    if len(input_shape) == 2:
        return input_shape[0], input_shape[1], 1
    if len(input_shape) == 1:
        for channels in (1, 3):
            side = math.isqrt(input_shape[0] // channels)
            if side * side * channels == input_shape[0]:
                return side, side, channels
    raise InvalidInput(
        f"the model {model!r} needs images, but the inputs have the shape {input_shape}."
    )
