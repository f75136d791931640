"""Convolutions in tiles and their products: values, and derivatives of both orders, are those of
XLA's convolution.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from coterie.core.vector import Vector
from coterie.models import layers, tiles
from coterie.models.base import get_model
from coterie.models.products import product


def plain(p: dict[str, Any], x: Any, size: int, padding: int) -> Any:
    out = lax.conv_general_dilated(
        x,
        p["w"].reshape(-1, size, size, len(x)),
        (1, 1),
        [(padding, padding)] * 2,
        dimension_numbers=("CHWN", "OHWI", "CHWN"),
    )
    return layers.max_pool(jax.nn.relu(out + p["b"][:, None, None, None]))


def drawn(channels: int, size: int) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    p = {
        "w": jnp.asarray(rng.standard_normal((3, size * size * channels))),
        "b": jnp.asarray(rng.standard_normal(3)),
    }
    return p, jnp.asarray(rng.standard_normal((channels, 9, 8, 2)))


@pytest.mark.parametrize(
    ("channels", "size", "padding"),
    [(2, 5, 0), (tiles.MANY, 5, 2), (tiles.MANY, 3, 1)],
    ids=["few channels", "winograd 5", "winograd 3"],
)
def test_gradients_and_their_directional_derivatives(
    channels: int, size: int, padding: int
) -> None:
    with jax.enable_x64(True):
        p, x = drawn(channels, size)

        def second(layer: Any) -> Any:
            loss = lambda a: jnp.sum(jnp.cos(layer(a[0], a[1], size, padding)))
            return jax.jit(lambda a: jax.jvp(jax.grad(loss), (a,), (a,)))((p, x))

        got, expected = second(layers.conv_relu_pool), second(plain)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_winograd_in_single_precision_is_within_a_few_roundings() -> None:
    with jax.enable_x64(True):
        p, x = drawn(32, 5)
        exact = layers.conv(p, x, 5)
        short = [jnp.asarray(a, jnp.float32) for a in (p["w"], p["b"], x)]
        got = layers.conv({"w": short[0], "b": short[1]}, short[2], 5)
        assert got.dtype == jnp.float32
        assert np.abs(got - exact).max() < 1e-5 * np.abs(exact).max()


def test_equal_ones_share_the_gradient_of_the_largest() -> None:
    out = jnp.asarray([[1.0, 5.0], [1.0, 2.0], [0.0, 5.0], [1.0, 5.0]])
    got = jax.grad(lambda out: jnp.sum(tiles.largest(out) * jnp.asarray([3.0, 6.0])))(out)
    np.testing.assert_allclose(got, [[1, 2], [1, 0], [0, 2], [1, 2]], rtol=1e-6)


@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
def test_products_and_both_gradients(turn_a: bool, turn_b: bool) -> None:
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.standard_normal((3, 2) if turn_a else (2, 3)), jnp.float32)
    b = jnp.asarray(rng.standard_normal((4, 3, 5)), jnp.float32)  # one for each of 4 clients
    b = b.swapaxes(1, 2) if turn_b else b
    turned = lambda x, turn: x.T if turn else x
    ours = lambda a, b: product(a, b, turn_a, turn_b)
    usual = lambda a, b: turned(a, turn_a) @ turned(b, turn_b)

    def everything(of: Any) -> Any:
        loss = lambda a, b: jnp.sum(jnp.sin(of(a, b)))
        return jax.vmap(jax.value_and_grad(loss, (0, 1)), (None, 0))(a, b)

    for got, expected in zip(
        jax.tree.leaves(everything(ours)), jax.tree.leaves(everything(usual)), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_gradients_by_patches_need_no_transposition() -> None:
    text = jax.jit(jax.grad(lambda b: jnp.sum(jnp.sin(product(jnp.ones((2, 3)), b))))).lower(
        jnp.ones((3, 50))
    )
    assert "tensor<50x3xf32>" not in text.as_text()


def test_second_derivatives_through_a_convolutional_model() -> None:
    """Per-FedAvg takes them forward over reverse; between kinks they are those of differences."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        model = get_model("cnn").build((8, 8, 1), 2)
        x, y = jnp.asarray(rng.random((3, 8, 8, 1))), jnp.asarray([0, 1, 1])
        w, v = (
            Vector(jax.tree.map(lambda a: a.astype(float), model.init(jax.random.key(seed))))
            for seed in (0, 1)
        )

        def loss(w: Vector) -> Any:
            out = model.apply(w.tree, x)
            return jnp.mean(jax.nn.logsumexp(out, 0) - jnp.take_along_axis(out, y[None], 0)[0])

        gradient, step = jax.jit(jax.grad(loss)), 1e-6
        exact = jax.jit(lambda w, v: jax.jvp(jax.grad(loss), (w,), (v,))[1])(w, v)
        differences = (1 / (2 * step)) * (gradient(w + step * v) - gradient(w - step * v))
        assert exact.squared_norm() > 0
        assert (exact - differences).squared_norm() < 1e-8 * exact.squared_norm()
