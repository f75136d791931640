"""Layers in class-major form: activations are (features, batch) or (channels, height, width,
batch).

On a CPU a convolution is written as shifted slices and matrix products (`tiles`). Under `vmap`
with different weights per client these are ordinary batched matrix products, where XLA's own
convolution would become a grouped one, which is several times slower there.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from coterie.models import tiles
from coterie.models.products import product


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
    return product(p["w"], x) + p["b"][:, None]


def conv_init(key: Any, channels: int, outputs: int, size: int) -> dict[str, Any]:
    kw, kb = jax.random.split(key)
    fan_in = channels * size * size
    return {"w": uniform(kw, (outputs, fan_in), fan_in), "b": uniform(kb, (outputs,), fan_in)}


def conv(p: dict[str, Any], x: Any, size: int, stride: int = 1, padding: int = 0) -> Any:
    """A size×size convolution of (channels, height, width, batch); the weight's columns run over
    (row, column, channel).
    """
    rows, columns = ((s + 2 * padding - size) // stride + 1 for s in x.shape[1:3])
    if not _on_cpu():
        out = _xla_conv(p, x, size, stride, padding)
    elif tiles.tiled(size, stride):
        out = tiles.outputs(p["w"], _padded(x, padding), size, rows, columns)
        out = tiles.assembled(out)[:, :rows, :columns]
    else:
        x = _padded(x, padding)
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
        out = product(p["w"], patches.reshape(p["w"].shape[1], -1))
        out = out.reshape(-1, rows, columns, x.shape[-1])
    return out + p["b"][:, None, None, None]


def conv_relu_pool(p: dict[str, Any], x: Any, size: int, padding: int = 0) -> Any:
    """max_pool(relu(conv)), with the maximum taken first: the rest is then done on a quarter."""
    tall, wide = ((s + 2 * padding - size + 1) // 2 for s in x.shape[1:3])
    if _on_cpu():
        out = tiles.outputs(p["w"], _padded(x, padding), size, 2 * tall, 2 * wide)
        out = tiles.pooled(out)[:, :tall, :wide]
    else:
        out = max_pool(_xla_conv(p, x, size, 1, padding))
    return jax.nn.relu(out + p["b"][:, None, None, None])


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _padded(x: Any, padding: int) -> Any:
    return jnp.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))


def _xla_conv(p: dict[str, Any], x: Any, size: int, stride: int, padding: int) -> Any:
    """XLA's own, for accelerators: under `vmap` it becomes a grouped one."""
    return lax.conv_general_dilated(
        x,
        p["w"].reshape(-1, size, size, len(x)),
        (stride, stride),
        [(padding, padding)] * 2,
        dimension_numbers=("CHWN", "OHWI", "CHWN"),
    )


def max_pool(x: Any) -> Any:
    """2×2 maximum, odd borders cut off."""
    channels, height, width, batch = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(
        channels, height // 2, 2, width // 2, 2, batch
    )
    return x.max((2, 4))


def max_pool_3(x: Any) -> Any:
    """3×3 maximum with stride 2 and padding 1."""
    if _on_cpu():
        return tiles.pooled_by_three(x)
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )


def norm_init(channels: int) -> dict[str, Any]:
    return {"scale": jnp.ones(channels), "shift": jnp.zeros(channels)}


def group_norm(p: dict[str, Any], x: Any, groups: int = 16) -> Any:
    """Group normalisation: as many parameters as batch normalisation, but no statistics that live
    outside the parameters.
    """
    mean = _over_group(x.mean((1, 2)), groups)
    spread = _over_group(jnp.square(x - mean).mean((1, 2)), groups)
    factor = lax.rsqrt(spread + 1e-5) * p["scale"][:, None, None, None]
    return x * factor + (p["shift"][:, None, None, None] - mean * factor)


def _over_group(x: Any, groups: int) -> Any:
    """The mean over the channels of a group, for each of them: (channels, 1, 1, batch)."""
    channels, batch = x.shape
    mean = x.reshape(groups, -1, batch).mean(1, keepdims=True)
    spread = jnp.broadcast_to(mean, (groups, channels // groups, batch))
    return spread.reshape(channels, 1, 1, batch)


def images(x: Any, shape: tuple[int, int, int]) -> Any:
    """Samples as stored, (batch, height·width·channels in any shape), as (channels, height, width,
    batch).
    """
    height, width, channels = shape
    # A gather, not a transposition: XLA would repeat that in every slice that is taken of it.
    order = np.arange(height * width * channels).reshape(-1, channels).T
    return x.reshape(len(x), -1).T[order].reshape(channels, height, width, -1)


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
