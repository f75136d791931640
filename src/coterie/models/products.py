"""A matrix product whose gradients are matrix products, too, in the order of their operands.

JAX's own rule for the gradient by the right factor of A B gives (Cᵀ A)ᵀ: the product the wrong way
round, and a transposition. XLA does it as it is told, and on a CPU the transposition takes longer
than the product for the patches of a convolution. Here it is Aᵀ C. Being bilinear is all that JAX
has to know, so derivatives of any order and in any mode work, and `vmap` adds a leading axis.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

_product = Primitive("coterie_product")


def product(a: Any, b: Any, turn_a: bool = False, turn_b: bool = False) -> Any:
    """A B of stacked matrices with the same leading axes, each transposed before if asked for."""
    return _product.bind(a, b, turn_a=turn_a, turn_b=turn_b)


def _plain(a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    axes = a.ndim - 2
    stacked = tuple(range(axes))
    summed = (axes + 1 - turn_a,), (axes + turn_b,)
    return lax.dot_general(a, b, (summed, (stacked, stacked)))


def _on_cpu(a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    """XLA's product with a left factor that is to be turned takes up to three times as long there:
    either that is turned before, or, if they are smaller, the right factor and what comes out.
    """
    if not turn_a:
        return _plain(a, b, turn_a=False, turn_b=turn_b)
    depth, rows = a.shape[-2:]
    columns = b.shape[-2 if turn_b else -1]
    if columns * (depth + rows) >= depth * rows:
        a = lax.optimization_barrier(a.swapaxes(-1, -2))
        return _plain(a, b, turn_a=False, turn_b=turn_b)
    if not turn_b:
        b = lax.optimization_barrier(b.swapaxes(-1, -2))
    out = _plain(b, a, turn_a=False, turn_b=False)
    return lax.optimization_barrier(out).swapaxes(-1, -2)


def _shape(a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    return jax.eval_shape(lambda a, b: _plain(a, b, turn_a=turn_a, turn_b=turn_b), a, b)


def _by_a(c: Any, a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    return product(b, c, turn_b, True) if turn_a else product(c, b, False, not turn_b)


def _by_b(c: Any, a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    return product(c, a, True, turn_a) if turn_b else product(a, c, not turn_a, False)


def _stacked(operands: Any, axes: Any, *, turn_a: bool, turn_b: bool) -> Any:
    sizes = [x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None]
    a, b = (
        batching.bdim_at_front(x, axis, sizes[0]) for x, axis in zip(operands, axes, strict=True)
    )
    return product(a, b, turn_a, turn_b), 0


def _kind(a: Any, b: Any, *, turn_a: bool, turn_b: bool) -> Any:
    found = _shape(a, b, turn_a=turn_a, turn_b=turn_b)
    return jax.core.ShapedArray(found.shape, found.dtype)


_product.def_impl(jax.jit(_product.bind, static_argnames=("turn_a", "turn_b")))
_product.def_abstract_eval(_kind)
mlir.register_lowering(_product, mlir.lower_fun(_plain, multiple_results=False))
mlir.register_lowering(_product, mlir.lower_fun(_on_cpu, multiple_results=False), platform="cpu")
ad.defbilinear(_product, _by_a, _by_b)
batching.primitive_batchers[_product] = _stacked
