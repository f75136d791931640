"""The convolution by patches is XLA's convolution; pooling and normalisation are what their names
say.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from coterie.models import layers


@pytest.mark.parametrize(
    ("channels", "outputs", "height", "width", "size", "stride", "padding"),
    [
        (1, 3, 8, 8, 5, 1, 0),
        (3, 4, 9, 7, 3, 1, 1),
        (2, 5, 10, 10, 5, 1, 2),
        (2, 3, 11, 8, 3, 2, 1),
        (1, 2, 14, 14, 7, 2, 3),
        (4, 6, 7, 7, 1, 2, 0),
        (2, 2, 5, 5, 5, 1, 0),
        (2, 2, 9, 10, 4, 3, 2),
    ],
)
def test_patches_convolution_is_the_convolution(
    channels: int, outputs: int, height: int, width: int, size: int, stride: int, padding: int
) -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x = jnp.asarray(rng.standard_normal((channels, height, width, 2)))
        p = {
            "w": jnp.asarray(rng.standard_normal((outputs, size * size * channels))),
            "b": jnp.asarray(rng.standard_normal(outputs)),
        }
        got = layers.conv(p, x, size, stride=stride, padding=padding)
        kernel = p["w"].reshape(outputs, size, size, channels)
        expected = lax.conv_general_dilated(
            x,
            kernel,
            (stride, stride),
            [(padding, padding)] * 2,
            dimension_numbers=("CHWN", "OHWI", "CHWN"),
        )
        np.testing.assert_allclose(
            got, expected + p["b"][:, None, None, None], rtol=1e-12, atol=1e-12
        )


def test_different_weights_per_client_do_not_become_a_grouped_convolution() -> None:
    p = jax.vmap(lambda k: layers.conv_init(k, 1, 2, 3))(jax.random.split(jax.random.key(0), 4))
    x = jnp.ones((4, 1, 6, 6, 2))
    text = jax.jit(jax.vmap(lambda p, x: layers.conv(p, x, 3))).lower(p, x).as_text()
    assert "convolution" not in text
    assert "dot_general" in text


@pytest.mark.parametrize(("height", "width"), [(6, 6), (7, 5)])
def test_max_pool_2(height: int, width: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, height, width, 3)).astype(np.float32)
    got = np.asarray(layers.max_pool(x))
    for i in range(height // 2):
        for j in range(width // 2):
            np.testing.assert_array_equal(
                got[:, i, j], x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2))
            )
    assert got.shape == (2, height // 2, width // 2, 3)


def test_max_pool_3_with_stride_2_and_padding_1() -> None:
    x = np.random.default_rng(0).standard_normal((1, 7, 7, 1)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    got = np.asarray(layers.max_pool_3(jnp.asarray(x)))
    assert got.shape == (1, 4, 4, 1)
    for i in range(4):
        for j in range(4):
            assert got[0, i, j, 0] == padded[0, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3, 0].max()


def test_group_norm_normalises_each_group_of_each_sample() -> None:
    x = np.random.default_rng(0).standard_normal((8, 3, 3, 2)).astype(np.float32) * 5 + 2
    p = {"scale": jnp.arange(1.0, 9.0), "shift": jnp.arange(8.0)}
    got = np.asarray(layers.group_norm(p, jnp.asarray(x), groups=4))
    for g in range(4):
        for n in range(2):
            part = x[2 * g : 2 * g + 2, ..., n]
            normal = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
            expected = (
                normal * np.arange(2 * g + 1, 2 * g + 3)[:, None, None]
                + np.arange(2 * g, 2 * g + 2)[:, None, None]
            )
            np.testing.assert_allclose(
                got[2 * g : 2 * g + 2, ..., n], expected, rtol=1e-4, atol=1e-4
            )


def test_images_keep_rows_columns_and_channels_apart() -> None:
    x = np.arange(2 * 3 * 4 * 2, dtype=np.float32).reshape(2, 3, 4, 2)
    got = np.asarray(layers.images(x.reshape(2, -1), (3, 4, 2)))
    for b, i, j, c in np.ndindex(2, 3, 4, 2):
        assert got[c, i, j, b] == x[b, i, j, c]
