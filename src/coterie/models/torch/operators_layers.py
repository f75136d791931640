"""PyTorch's operators (ATen) written with JAX: the layers of networks.

Products and convolutions are those of coterie's own layers, which are fast where every client has
weights of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from coterie.models.layers import conv, conv_relu_pool
from coterie.models.products import product
from coterie.models.torch.operators import OPERATORS, Unsupported, operators

RANDOM = frozenset({"native_dropout", "bernoulli", "rand", "randn", "rand_like", "randn_like"})
"""Operators that draw: they get `key=`."""
OVER_BATCH = frozenset({"_native_batch_norm_legit_functional"})
"""Operators that look at the whole batch: they get `rows=`."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """Which samples of a batch count; the others are padding."""

    real: Any
    """True or False for each."""

    @property
    def count(self) -> Any:
        return jnp.maximum(jnp.sum(self.real), 1)


# -- products --------------------------------------------------------------------------------------


@operators("linear")
def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    flat = product(x.reshape(-1, x.shape[-1]), weight, turn_b=True)
    out = flat.reshape(*x.shape[:-1], len(weight))
    return out if bias is None else out + bias


@operators("mm", "bmm")
def _mm(a: Any, b: Any) -> Any:
    return product(a, b)


@operators("matmul")
def _matmul(a: Any, b: Any) -> Any:
    return a @ b


@operators("addmm")
def _addmm(added: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return beta * added + alpha * product(a, b)


@operators("embedding")
def _embedding(weight: Any, index: Any, padding_idx: int = -1, *_: Any, **__: Any) -> Any:
    if padding_idx >= 0:  # this row is not trained
        weight = weight.at[padding_idx].set(lax.stop_gradient(weight[padding_idx]))
    return weight[index]


# -- convolutions ----------------------------------------------------------------------------------


@operators("convolution")
def _convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """Of (batch, channels, …) with weights (outputs, channels, …)."""
    if transposed:
        raise Unsupported("aten.convolution, transposed")
    sides = weight.shape[2:]
    alike = all(len(set(given)) == 1 for given in (sides, stride, padding))
    if len(sides) == 2 and alike and set(dilation) == {1} and groups == 1:
        given = _own(weight, bias)
        out = conv(given, x.transpose(1, 2, 3, 0), sides[0], stride[0], padding[0])
        return out.transpose(3, 0, 1, 2)
    out = lax.conv_general_dilated(
        x,
        weight,
        tuple(stride),
        [(p, p) for p in padding],
        rhs_dilation=tuple(dilation),
        feature_group_count=groups,
    )
    return out if bias is None else out + bias.reshape(-1, *(1,) * len(sides))


def _own(weight: Any, bias: Any) -> dict[str, Any]:
    """Parameters as coterie's layers have them."""
    return {
        "w": weight.transpose(0, 2, 3, 1).reshape(len(weight), -1),
        "b": jnp.zeros(len(weight), weight.dtype) if bias is None else bias,
    }


def pooled_convolution(x: Any, weight: Any, bias: Any, padding: int) -> Any:
    """Convolution, ReLU and 2×2 maximum in one: the maximum comes first, on tiles as they are."""
    given = _own(weight, bias)
    out = conv_relu_pool(given, x.transpose(1, 2, 3, 0), weight.shape[2], padding)
    return out.transpose(3, 0, 1, 2)


# -- pooling ---------------------------------------------------------------------------------------


def _windows(x: Any, sides: Sequence[int], stride: Any, padding: Any, fill: float) -> Any:
    """What each window of the last axes holds, along a new first axis."""
    n = len(sides)
    steps = list(stride) if stride else list(sides)
    widths = list(padding) if isinstance(padding, Sequence) else [padding] * n
    sides, steps, widths = ((list(v) * n)[:n] for v in (sides, steps, widths))
    if any(widths):
        x = jnp.pad(x, [(0, 0)] * (x.ndim - n) + [(w, w) for w in widths], constant_values=fill)
    kept = x.ndim - n
    counts = [
        (size - side) // step + 1
        for size, side, step in zip(x.shape[kept:], sides, steps, strict=True)
    ]
    if sides == steps:  # side by side: no slices, whose gradients take long
        x = x[(..., *(slice(c * s) for c, s in zip(counts, sides, strict=True)))]
        pairs = [size for c, s in zip(counts, sides, strict=True) for size in (c, s)]
        x = x.reshape(*x.shape[:kept], *pairs)
        inner = [kept + 2 * i + 1 for i in range(n)]
        rest = [i for i in range(x.ndim) if i not in inner]
        x = x.transpose(*inner, *rest)
        return x.reshape(-1, *x.shape[n:])
    places: list[tuple[int, ...]] = [()]
    for side in sides:
        places = [(*p, i) for p in places for i in range(side)]
    return jnp.stack(
        [
            x[
                (
                    ...,
                    *(
                        slice(i, i + step * (count - 1) + 1, step)
                        for i, step, count in zip(place, steps, counts, strict=True)
                    ),
                )
            ]
            for place in places
        ]
    )


@jax.custom_jvp
def _largest(x: Any) -> Any:
    return x.max(0)


@_largest.defjvp
def _largest_moves(primals: Any, tangents: Any) -> Any:
    """Of equal ones the first has the slope, as in PyTorch."""
    (x,), (moved,) = primals, tangents
    first = jnp.argmax(x, 0)
    chosen = first == jnp.arange(len(x)).reshape(-1, *(1,) * first.ndim)
    return x.max(0), jnp.sum(chosen * moved, 0)


@operators("max_pool2d_with_indices")
def _max_pool(
    x: Any,
    sides: Sequence[int],
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    if ceil_mode or dilation not in (1, [1], [1, 1]):
        raise Unsupported("aten.max_pool2d with ceil_mode or dilation")
    return _largest(_windows(x, sides, stride, padding, -math.inf)), None


@operators("avg_pool1d", "avg_pool2d")
def _avg_pool(
    x: Any,
    sides: Sequence[int],
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    if ceil_mode or divisor_override is not None or not count_include_pad:
        raise Unsupported("aten.avg_pool with ceil_mode, a divisor or padding that does not count")
    return _windows(x, sides, stride, padding, 0.0).mean(0)


@operators("_adaptive_avg_pool2d")
def _adaptive(x: Any, sizes: Sequence[int]) -> Any:
    if any(n % size for n, size in zip(x.shape[-2:], sizes, strict=True)):
        raise Unsupported("aten.adaptive_avg_pool2d with windows of different sizes")
    sides = [n // size for n, size in zip(x.shape[-2:], sizes, strict=True)]
    return _windows(x, sides, None, 0, 0.0).mean(0)


# -- normalisation ---------------------------------------------------------------------------------


def _over_channels(v: Any, x: Any) -> Any:
    return v.reshape(-1, *(1,) * (x.ndim - 2))


def _normalised(x: Any, axes: tuple[int, ...], eps: float) -> Any:
    mean = x.mean(axes, keepdims=True)
    factor = lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    return (x - mean) * factor, mean, factor


@operators("native_layer_norm")
def _layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    out, mean, factor = _normalised(x, tuple(range(x.ndim - len(shape), x.ndim)), eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, factor


@operators("native_group_norm")
def _group_norm(
    x: Any, weight: Any, bias: Any, batch: int, channels: int, places: int, *rest: Any
) -> Any:
    groups, eps = rest
    out, mean, factor = _normalised(x.reshape(batch, groups, -1), (2,), eps)
    out = out.reshape(x.shape)
    out = out if weight is None else out * _over_channels(weight, x)
    out = out if bias is None else out + _over_channels(bias, x)
    return out, mean.reshape(batch, groups), factor.reshape(batch, groups)


def _by(x: Any, weight: Any, bias: Any, mean: Any, factor: Any) -> Any:
    out = (x - _over_channels(mean, x)) * _over_channels(factor, x)
    out = out if weight is None else out * _over_channels(weight, x)
    return out if bias is None else out + _over_channels(bias, x)


@operators("_native_batch_norm_legit_no_training")
def _batch_norm_by(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return _by(x, weight, bias, mean, lax.rsqrt(var + eps)), None, None


@operators("_native_batch_norm_legit_functional")
def _batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    var: Any,
    training: bool,
    *rest: float,
    rows: Rows,
) -> Any:
    """By the statistics of the samples that count; a single one is taken twice, as by the callback
    (`Host`), which matters for the correction of the variance only.
    """
    momentum, eps = rest
    if not training:
        return *_batch_norm_by(x, weight, bias, mean, var, momentum, eps), mean, var
    if len(x) != len(rows.real):
        raise Unsupported("batch normalisation of what is not one row per sample")
    axes, places = (0, *range(2, x.ndim)), math.prod(x.shape[2:])
    real = rows.real.reshape(-1, *(1,) * (x.ndim - 1))
    count = (rows.count * places).astype(x.dtype)
    now = jnp.sum(jnp.where(real, x, 0), axes) / count
    spread = jnp.sum(jnp.where(real, jnp.square(x - _over_channels(now, x)), 0), axes) / count
    factor = lax.rsqrt(spread + eps)
    many = jnp.where(rows.count == 1, 2 * count, count)
    after = (1 - momentum) * mean + momentum * now
    wide = (1 - momentum) * var + momentum * spread * many / (many - 1)
    return _by(x, weight, bias, now, factor), now, factor, after, wide


# -- what draws ------------------------------------------------------------------------------------


@operators("native_dropout")
def _dropout(x: Any, p: float, train: Any = True, *, key: Any) -> Any:
    if not train or p == 0:
        return x, jnp.ones(x.shape, jnp.bool_)
    kept = jax.random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(kept, x / (1 - p) if p < 1 else 0, 0), kept


@operators("bernoulli")
def _bernoulli(x: Any, p: Any = None, *, key: Any, **_: Any) -> Any:
    return jax.random.bernoulli(key, x if p is None else p, x.shape)


def _drawn(draw: Any, like: bool) -> Any:
    def given(x: Any, *, key: Any, **_: Any) -> Any:
        return draw(key, x.shape if like else tuple(x))

    return given


OPERATORS.update(
    rand=_drawn(jax.random.uniform, False),
    randn=_drawn(jax.random.normal, False),
    rand_like=_drawn(jax.random.uniform, True),
    randn_like=_drawn(jax.random.normal, True),
)
