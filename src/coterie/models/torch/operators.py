"""PyTorch's operators (ATen) written with JAX: arithmetic, shapes, reductions.

An operator takes what PyTorch's does, arrays in the place of tensors. The type of what it gives is
set by who calls it (`graph.py`), so that PyTorch's rules of promotion hold.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Operator = Callable[..., Any]

OPERATORS: dict[str, Operator] = {}
"""By the name that ATen has for them, without the overload."""


class Unsupported(Exception):
    """Says which operator JAX is not taught here."""


def operators(*names: str) -> Callable[[Operator], Operator]:
    def register(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


# -- one element by one ----------------------------------------------------------------------------

_ELEMENTWISE = (
    "abs exp exp2 expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh tanh floor ceil round trunc"
    " sign isnan isinf square reciprocal logical_not bitwise_not maximum minimum atan2 logical_and"
    " logical_or logical_xor bitwise_and bitwise_or bitwise_xor remainder fmod"
)
OPERATORS.update({name: getattr(jnp, name) for name in _ELEMENTWISE.split()})
OPERATORS.update(
    neg=operator.neg,
    mul=operator.mul,
    eq=operator.eq,
    ne=operator.ne,
    lt=operator.lt,
    le=operator.le,
    gt=operator.gt,
    ge=operator.ge,
    pow=lambda a, b: jnp.power(a, b),
    asin=jnp.arcsin,
    acos=jnp.arccos,
    atan=jnp.arctan,
    asinh=jnp.arcsinh,
    acosh=jnp.arccosh,
    atanh=jnp.arctanh,
    rsqrt=lax.rsqrt,
    erf=jax.scipy.special.erf,
    sigmoid=jax.nn.sigmoid,
    silu=jax.nn.silu,
    relu=jax.nn.relu,
    where=jnp.where,
)


@operators("add")
def _add(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + (b if alpha == 1 else alpha * b)


@operators("sub")
def _sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - (b if alpha == 1 else alpha * b)


@operators("rsub")
def _rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    return _sub(b, a, alpha)


@operators("div")
def _div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        return jnp.true_divide(a, b)
    return jnp.floor_divide(a, b) if rounding_mode == "floor" else jnp.trunc(a / b)


@operators("clamp")
def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """At a bound the slope is 1, as PyTorch has it."""
    low = x if min is None else jnp.where(x < min, min, x)
    return low if max is None else jnp.where(low > max, max, low)


@operators("hardtanh")
def _hardtanh(x: Any, low: float = -1.0, high: float = 1.0) -> Any:
    return jnp.where(x <= low, low, jnp.where(x >= high, high, x))


@operators("leaky_relu")
def _leaky_relu(x: Any, slope: float = 0.01) -> Any:
    return jnp.where(x > 0, x, slope * x)


@operators("elu")
def _elu(x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    below = alpha * jnp.expm1(input_scale * jnp.where(x > 0, 0, x))
    return scale * jnp.where(x > 0, x, below)


@operators("gelu")
def _gelu(x: Any, approximate: str = "none") -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@operators("clone", "alias", "lift_fresh_copy", "_to_copy", "contiguous")
def _itself(x: Any, **_: Any) -> Any:
    return x


@operators("copy")
def _copy(x: Any, source: Any) -> Any:
    return jnp.broadcast_to(source, x.shape)


# -- made from nothing -----------------------------------------------------------------------------


@operators("arange")
def _arange(start: Any, end: Any = None, step: Any = 1, **_: Any) -> Any:
    return jnp.arange(start) if end is None else jnp.arange(start, end, step)


@operators("full", "new_full")
def _full(shape: Sequence[int], value: Any, **_: Any) -> Any:
    return jnp.full(tuple(shape), value)


@operators("full_like")
def _full_like(x: Any, value: Any, **_: Any) -> Any:
    return jnp.full(x.shape, value)


@operators("scalar_tensor")
def _scalar(value: Any, **_: Any) -> Any:
    return jnp.asarray(value)


@operators("empty")
def _empty(shape: Sequence[int], **_: Any) -> Any:
    return jnp.zeros(tuple(shape))


# -- shapes ----------------------------------------------------------------------------------------


@operators("view", "_unsafe_view", "reshape")
def _view(x: Any, shape: Sequence[int]) -> Any:
    return x.reshape(tuple(shape))


@operators("permute")
def _permute(x: Any, axes: Sequence[int]) -> Any:
    return x.transpose(tuple(axes))


@operators("expand")
def _expand(x: Any, shape: Sequence[int], **_: Any) -> Any:
    own = (1,) * (len(shape) - x.ndim) + x.shape
    wanted = tuple(o if s == -1 else s for s, o in zip(shape, own, strict=True))
    return jnp.broadcast_to(x, wanted)


@operators("squeeze")
def _squeeze(x: Any, axes: Any = None) -> Any:
    if axes is None:
        return x.squeeze()
    axes = [axes] if isinstance(axes, int) else axes
    return x.squeeze(tuple(a for a in axes if x.shape[a] == 1))


@operators("unsqueeze")
def _unsqueeze(x: Any, axis: int) -> Any:
    return jnp.expand_dims(x, axis)


def _places(x: Any, axis: int, place: Any) -> tuple[Any, ...]:
    axis %= x.ndim
    return (slice(None),) * axis + (place,)


@operators("select")
def _select(x: Any, axis: int, index: int) -> Any:
    return x[_places(x, axis, index)]


@operators("slice")
def _slice(x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[_places(x, axis, slice(start, end, step))]


@operators("slice_scatter")
def _slice_scatter(
    x: Any, source: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    return x.at[_places(x, axis, slice(start, end, step))].set(source)


@operators("select_scatter")
def _select_scatter(x: Any, source: Any, axis: int, index: int) -> Any:
    return x.at[_places(x, axis, index)].set(source)


@operators("cat")
def _cat(parts: Sequence[Any], axis: int = 0) -> Any:
    return jnp.concatenate(parts, axis)


@operators("split_with_sizes")
def _split_with_sizes(x: Any, sizes: Sequence[int], axis: int = 0) -> Any:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_slice(x, axis, end - n, end) for n, end in zip(sizes, ends, strict=True)]


@operators("repeat")
def _repeat(x: Any, times: Sequence[int]) -> Any:
    return jnp.tile(x, tuple(times))


@operators("flip")
def _flip(x: Any, axes: Sequence[int]) -> Any:
    return jnp.flip(x, tuple(axes))


@operators("constant_pad_nd")
def _pad(x: Any, widths: Sequence[int], value: Any = 0.0) -> Any:
    """Widths are given from the last axis on; negative ones cut off."""
    pairs = [(widths[i], widths[i + 1], 0) for i in range(0, len(widths), 2)][::-1]
    given = [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs
    return lax.pad(x, jnp.asarray(value, x.dtype), given)


@operators("gather")
def _gather(x: Any, axis: int, index: Any, **_: Any) -> Any:
    axis %= x.ndim
    kept = tuple(slice(None if i == axis else n) for i, n in enumerate(index.shape))
    return jnp.take_along_axis(x[kept], index, axis)


@operators("index_select")
def _index_select(x: Any, axis: int, index: Any) -> Any:
    return jnp.take(x, index, axis)


@operators("index")
def _index(x: Any, places: Sequence[Any]) -> Any:
    if any(p is not None and p.dtype == jnp.bool_ for p in places):
        raise Unsupported("aten.index with a mask, whose result has no fixed shape")
    return x[tuple(slice(None) if p is None else p for p in places)]


# -- reductions ------------------------------------------------------------------------------------


def _axes(axes: Any) -> Any:
    return None if axes is None or axes == [] else tuple([axes] if isinstance(axes, int) else axes)


def _reduced(function: Operator) -> Operator:
    return lambda x, axes=None, keepdim=False, **_: function(x, axis=_axes(axes), keepdims=keepdim)


OPERATORS.update(
    {
        name: _reduced(getattr(jnp, name))
        for name in ("sum", "mean", "amax", "amin", "prod", "any", "all")
    }
)


@operators("var")
def _var(x: Any, axes: Any = None, correction: Any = 1, keepdim: bool = False, **_: Any) -> Any:
    return jnp.var(x, _axes(axes), ddof=1 if correction is None else correction, keepdims=keepdim)


@operators("linalg_vector_norm")
def _norm(x: Any, order: float = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Of nothing but zeros it has the slope 0."""
    if order not in (1, 2):
        raise Unsupported(f"aten.linalg_vector_norm of order {order}")
    if order == 1:
        return jnp.sum(jnp.abs(x), _axes(axes), keepdims=keepdim)
    square = jnp.sum(jnp.square(x), _axes(axes), keepdims=keepdim)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


@operators("cumsum")
def _cumsum(x: Any, axis: int, **_: Any) -> Any:
    return jnp.cumsum(x, axis)


def _found(x: Any, axis: int | None, keepdim: bool, arg: Operator) -> Any:
    """The value at the first place of the largest (smallest), to which its slope belongs, and the
    place.
    """
    if axis is None:
        return x.reshape(-1)[arg(x.reshape(-1))]
    place = arg(x, axis=axis, keepdims=True)
    value = jnp.take_along_axis(x, place, axis)
    return (value, place) if keepdim else (value.squeeze(axis), place.squeeze(axis))


@operators("max")
def _max(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    return jnp.max(x) if axis is None else _found(x, axis, keepdim, jnp.argmax)


@operators("min")
def _min(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    return jnp.min(x) if axis is None else _found(x, axis, keepdim, jnp.argmin)


@operators("argmax")
def _argmax(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    return jnp.argmax(x, axis, keepdims=keepdim)


@operators("argmin")
def _argmin(x: Any, axis: int | None = None, keepdim: bool = False) -> Any:
    return jnp.argmin(x, axis, keepdims=keepdim)


@operators("softmax", "_softmax")
def _softmax(x: Any, axis: int, *_: Any, **__: Any) -> Any:
    return jax.nn.softmax(x, axis)


@operators("log_softmax", "_log_softmax")
def _log_softmax(x: Any, axis: int, *_: Any, **__: Any) -> Any:
    return jax.nn.log_softmax(x, axis)


@operators("scaled_dot_product_attention")
def _attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout or enable_gqa:
        raise Unsupported("aten.scaled_dot_product_attention with dropout or grouped queries")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    fit = query @ key.swapaxes(-1, -2) * factor
    if is_causal:
        mask = jnp.tril(jnp.ones(fit.shape[-2:], jnp.bool_))
    if mask is not None:
        fit = jnp.where(mask, fit, -jnp.inf) if mask.dtype == jnp.bool_ else fit + mask
    return jax.nn.softmax(fit, -1) @ value
