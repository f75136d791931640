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
    return out + p["b"][:, None, None, None]


def plain_pooled(p: dict[str, Any], x: Any, size: int, padding: int) -> Any:
    return layers.max_pool(jax.nn.relu(plain(p, x, size, padding)))


def ours(p: dict[str, Any], x: Any, size: int, padding: int) -> Any:
    return layers.conv(p, x, size, padding=padding)


def drawn(channels: int, size: int, image: tuple[int, int] = (9, 8)) -> tuple[dict[str, Any], Any]:
    rng = np.random.default_rng(0)
    p = {
        "w": jnp.asarray(rng.standard_normal((3, size * size * channels))),
        "b": jnp.asarray(rng.standard_normal(3)),
    }
    return p, jnp.asarray(rng.standard_normal((channels, *image, 2)))


@pytest.mark.parametrize("pool", [True, False], ids=["pooled", "not pooled"])
@pytest.mark.parametrize(
    ("channels", "size", "padding", "image", "side"),
    [
        (2, 5, 0, (9, 8), 2),
        (tiles.MANY, 5, 2, (9, 8), 4),
        (tiles.MANY, 5, 0, (6, 6), 2),
        (tiles.MANY, 3, 1, (9, 8), 4),
        (tiles.MANY, 3, 0, (5, 4), 2),
    ],
    ids=["few channels", "winograd 5, 4", "winograd 5, 2", "winograd 3, 4", "winograd 3, 2"],
)
def test_gradients_and_their_directional_derivatives(
    channels: int, size: int, padding: int, image: tuple[int, int], side: int, pool: bool
) -> None:
    made = [n + 2 * padding - size + 1 for n in image]
    made = [n // 2 * 2 for n in made] if pool else made
    assert tiles.side_of(channels, size, made[0], made[1]) == side
    with jax.enable_x64(True):
        p, x = drawn(channels, size, image)

        def second(layer: Any) -> Any:
            loss = lambda a: jnp.sum(jnp.cos(layer(a[0], a[1], size, padding)))
            return jax.jit(lambda a: jax.jvp(jax.grad(loss), (a,), (a,)))((p, x))

        got = second(layers.conv_relu_pool if pool else ours)
        expected = second(plain_pooled if pool else plain)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("side", tiles.SIDES)
def test_the_maps_of_winograd_are_exact(size: int, side: int) -> None:
    """Small integers come out as such, but for roundings of float64."""
    rng = np.random.default_rng(0)
    x, w = rng.integers(-8, 9, size + side - 1), rng.integers(-8, 9, size)
    of_inputs, of_weights, of_outputs = tiles.maps(size, side)
    got = of_outputs @ ((of_weights @ w) * (of_inputs @ x))
    expected = [w @ x[i : i + size] for i in (*range(0, side, 2), *range(1, side, 2))]
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [3, 5])
def test_winograd_in_single_precision_is_within_a_few_roundings(size: int) -> None:
    with jax.enable_x64(True):
        p, x = drawn(32, size)
        exact = plain(p, x, size, 0)
        short = [jnp.asarray(a, jnp.float32) for a in (p["w"], p["b"], x)]
        got = layers.conv({"w": short[0], "b": short[1]}, short[2], size)
        assert got.dtype == jnp.float32
        assert np.abs(got - exact).max() < 1e-5 * np.abs(exact).max()


def test_equal_ones_share_the_gradient_of_the_largest() -> None:
    out = jnp.asarray([[1.0, 5.0], [1.0, 2.0], [0.0, 5.0], [1.0, 5.0]])
    got = jax.grad(lambda out: jnp.sum(tiles.largest(out) * jnp.asarray([3.0, 6.0])))(out)
    np.testing.assert_allclose(got, [[1, 2], [1, 0], [0, 2], [1, 2]], rtol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(6, 7), (5, 8), (1, 3)])
def test_the_largest_of_3_by_3_and_its_derivatives(height: int, width: int) -> None:
    usual = lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    )
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(0).standard_normal((3, height, width, 2)))

        def all_of(pool: Any) -> Any:
            loss = lambda x: jnp.sum(jnp.cos(pool(x)))
            return pool(x), *jax.jit(lambda x: jax.jvp(jax.grad(loss), (x,), (x,)))(x)

        for got, expected in zip(all_of(layers.max_pool_3), all_of(usual), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_equal_ones_share_the_gradient_of_the_largest_of_3_by_3() -> None:
    """Of the 4 windows of 4×4 equal numbers, those at the borders have 4, 6, 6 and 9 of them."""
    got = jax.grad(lambda x: jnp.sum(layers.max_pool_3(x)))(jnp.ones((1, 4, 4, 1)))[0, :, :, 0]
    assert float(jnp.sum(got)) == pytest.approx(4)
    assert float(got[0, 0]) == pytest.approx(1 / 4)
    assert float(got[1, 1]) == pytest.approx(1 / 4 + 1 / 6 + 1 / 6 + 1 / 9)
    assert float(got[3, 3]) == pytest.approx(1 / 9)


@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(2, 3, 5), (8, 9, 2)])
def test_products_and_both_gradients(
    turn_a: bool, turn_b: bool, rows: int, depth: int, columns: int
) -> None:
    rng = np.random.default_rng(0)
    shape = (depth, rows) if turn_a else (rows, depth)
    a = jnp.asarray(rng.standard_normal(shape), jnp.float32)
    b = jnp.asarray(rng.standard_normal((4, depth, columns)), jnp.float32)  # of each of 4 clients
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


def test_gradients_by_few_samples_do_not_turn_the_weights() -> None:
    by_inputs = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(product(jnp.ones((40, 50)), x)))))
    assert "tensor<50x40xf32>" not in by_inputs.lower(jnp.ones((50, 2))).as_text()


def of_model(name: str, shape: tuple[int, int, int], second: bool) -> Any:
    """The gradient of a loss of a whole model, or its derivative along a direction."""
    rng = np.random.default_rng(0)
    model = get_model(name).build(shape, 2)
    x, y = jnp.asarray(rng.random((3, *shape))), jnp.asarray([0, 1, 1])
    p, v = (
        jax.tree.map(lambda a: a.astype(float), model.init(jax.random.key(seed))) for seed in (0, 1)
    )

    def loss(p: Any) -> Any:
        out = model.apply(p, x)
        return jnp.mean(jax.nn.logsumexp(out, 0) - jnp.take_along_axis(out, y[None], 0)[0])

    if second:
        return jax.jit(lambda p, v: jax.jvp(jax.grad(loss), (p,), (v,))[1])(p, v)
    return jax.jit(jax.grad(loss))(p)


@pytest.mark.parametrize(
    ("model", "shape", "second"),
    [
        ("cnn", (8, 8, 1), True),
        ("lenet", (16, 16, 1), True),
        pytest.param("resnet", (8, 8, 1), False, marks=pytest.mark.slow),
    ],
)
def test_whole_models_are_those_of_plain_convolutions(
    model: str, shape: tuple[int, int, int], second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Per-FedAvg takes second derivatives, forward over reverse."""
    with jax.enable_x64(True):
        got = of_model(model, shape, second)
        monkeypatch.setattr(layers, "_on_cpu", lambda: False)
        expected = of_model(model, shape, second)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_accelerators_get_the_grouped_convolution(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And products without transpositions of their own."""
    backend = {"cuda": "gpu"}.get(platform, platform)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    model = get_model("cnn").build((8, 8, 1), 2)
    clients = jax.eval_shape(jax.vmap(model.init), jax.random.split(jax.random.key(0), 3))
    x = jax.ShapeDtypeStruct((3, 2, 8, 8, 1), jnp.float32)
    traced = jax.jit(jax.vmap(jax.grad(lambda p, x: jnp.sum(model.apply(p, x))))).trace(clients, x)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("stablehlo.convolution" in text) == (platform != "cpu")
    assert ("feature_group_count = 3" in text) == (platform != "cpu")
    assert ("optimization_barrier" in text) == (platform == "cpu")


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
