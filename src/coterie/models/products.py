"""A matrix product whose gradients are matrix products, too, in the order of their operands.

JAX's own rule for the gradient by the right factor of A B gives (Cᵀ A)ᵀ: the product the wrong way
round, and a transposition. XLA does it as it is told, and for the patches of a convolution the
transposition takes longer than the product. Here it is Aᵀ C. Being bilinear is all that JAX has to
know, so derivatives of any order and in any mode work, and `vmap` adds a leading axis.
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
    if turn_a and not turn_b:
        depth, rows, columns = *a.shape[-2:], b.shape[-1]
        if columns * (depth + rows) < depth * rows:
            b = lax.optimization_barrier(b.swapaxes(-1, -2))
            out = _plain(b, a, turn_a=False, turn_b=False)
            return lax.optimization_barrier(out).swapaxes(-1, -2)
    if turn_a:  # Turned before: XLA's product of a matrix that is to be turned is slower.
        a = lax.optimization_barrier(a.swapaxes(-1, -2))
    axes = a.ndim - 2
    stacked = tuple(range(axes))
    return lax.dot_general(a, b, (((axes + 1,), (axes + turn_b,)), (stacked, stacked)))


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


_product.def_impl(jax.jit(_plain, static_argnames=("turn_a", "turn_b")))
_product.def_abstract_eval(_kind)
mlir.register_lowering(_product, mlir.lower_fun(_plain, multiple_results=False))
ad.defbilinear(_product, _by_a, _by_b)
batching.primitive_batchers[_product] = _stacked
