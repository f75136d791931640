"""The convolutional networks of the papers."""

from __future__ import annotations

from typing import Any

import jax

from coterie.core.errors import InvalidInput
from coterie.core.options import option
from coterie.models.base import Model, ModelSpec, model_spec
from coterie.models.batch_norm import KINDS, Norm, normalised
from coterie.models.layers import (
    conv,
    conv_init,
    conv_relu_pool,
    dense,
    dense_init,
    group_norm,
    image_shape,
    images,
    max_pool_3,
    norm_init,
)

relu = jax.nn.relu


def _too_small(model: str, shape: tuple[int, int, int], least: int) -> None:
    if min(shape[:2]) < least:
        raise InvalidInput(
            f"the model {model!r} needs images of at least {least}×{least}, but they are"
            f" {shape[0]}×{shape[1]}."
        )


@model_spec("cnn")
class McMahanCNN(ModelSpec):
    """The CNN of McMahan et al.: two 5×5 convolutions (32, 64 channels, same size), each with 2×2
    max pooling, dense 512.
    """

    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        shape = image_shape(self.name, input_shape)
        _too_small(self.name, shape, 4)
        flat = (shape[0] // 4) * (shape[1] // 4) * 64

        def init(key: Any) -> dict[str, Any]:
            k = jax.random.split(key, 4)
            return {
                "conv1": conv_init(k[0], shape[2], 32, 5),
                "conv2": conv_init(k[1], 32, 64, 5),
                "dense": dense_init(k[2], flat, 512),
                "out": dense_init(k[3], 512, outputs),
            }

        def apply(p: dict[str, Any], x: Any) -> Any:
            h = conv_relu_pool(p["conv1"], images(x, shape), 5, padding=2)
            h = conv_relu_pool(p["conv2"], h, 5, padding=2)
            return dense(p["out"], relu(dense(p["dense"], h.reshape(flat, -1))))

        return Model(init, apply, class_major=True, l2=self.l2, name=self.name)


@model_spec("lenet")
class LeNet(ModelSpec):
    """LeNet of the lp-proj paper: 5×5 convolutions with 6 and 16 channels and 2×2 max pooling,
    dense 120 and 84.
    """

    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss", low=0)

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        shape = image_shape(self.name, input_shape)
        _too_small(self.name, shape, 16)
        side = [((s - 4) // 2 - 4) // 2 for s in shape[:2]]
        flat = side[0] * side[1] * 16

        def init(key: Any) -> dict[str, Any]:
            k = jax.random.split(key, 5)
            return {
                "conv1": conv_init(k[0], shape[2], 6, 5),
                "conv2": conv_init(k[1], 6, 16, 5),
                "dense1": dense_init(k[2], flat, 120),
                "dense2": dense_init(k[3], 120, 84),
                "out": dense_init(k[4], 84, outputs),
            }

        def apply(p: dict[str, Any], x: Any) -> Any:
            h = conv_relu_pool(p["conv1"], images(x, shape), 5)
            h = conv_relu_pool(p["conv2"], h, 5)
            h = relu(dense(p["dense1"], h.reshape(flat, -1)))
            return dense(p["out"], relu(dense(p["dense2"], h)))

        return Model(init, apply, class_major=True, l2=self.l2, name=self.name)


STAGES = {None: (2, 2), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
"""Residuals in each stage, by depth; the first stage has 64 channels, each other twice as many as
the one before.
"""


def residuals_of(depth: int | None) -> dict[str, tuple[int, int, int]]:
    """Channels in and out and stride of every residual, by name.

    >>> residuals_of(None)
    {'1a': (64, 64, 1), '1b': (64, 64, 1), '2a': (64, 128, 2), '2b': (128, 128, 1)}
    """
    out, channels = {}, 64
    for stage, count in enumerate(STAGES[depth]):
        wide = 64 << stage
        for i in range(count):
            out[f"{stage + 1}{'abcdef'[i]}"] = (channels, wide, 2 if stage and not i else 1)
            channels = wide
    return out


@model_spec("resnet")
class SmallResNet(ModelSpec):
    """The small ResNet of the lp-proj paper (App. C): 7×7 convolution with 64 channels, two blocks
    of two residuals (64, 128), average. `depth` 18 and 34 are those of He et al., with 512 channels
    at the end.

    The paper normalises by batch; its statistics are state outside the parameters. Group
    normalisation has the same number of parameters (678,794 in all for 28×28×1 and 10 classes) and
    none of that state. With `norm = "batch"` it is the paper's, with statistics of each client's
    own data.
    """

    norm: str | None = option(
        None,
        'normalisation: "batch" as in the paper, with statistics of each client, or with shared'
        " ones that are sent like parameters; nothing: by group",
        choices=KINDS,
    )
    depth: int | None = option(
        None,
        "layers: 18 (11 million parameters) or 34 (21 million); nothing: the paper's small one",
    )
    l2: float = option(0.0, "weight of (l2/2)‖w‖² in the loss", low=0)

    def validate(self) -> None:
        super().validate()
        if self.depth not in STAGES:
            raise InvalidInput(f"resnet.depth is {self.depth}, but must be 18 or 34, or left out.")

    def build(self, input_shape: tuple[int, ...], outputs: int) -> Model:
        shape = image_shape(self.name, input_shape)
        _too_small(self.name, shape, 8)
        residuals = residuals_of(self.depth)
        widest = max(wide for _, wide, _ in residuals.values())

        def init(key: Any) -> dict[str, Any]:
            k = iter(jax.random.split(key, 2 + 3 * len(residuals)))
            p: dict[str, Any] = {"conv": conv_init(next(k), shape[2], 64, 7), "norm": norm_init(64)}
            for name, (a, b, stride) in residuals.items():
                p[name] = {
                    "conv1": conv_init(next(k), a, b, 3),
                    "norm1": norm_init(b),
                    "conv2": conv_init(next(k), b, b, 3),
                    "norm2": norm_init(b),
                }
                if a != b or stride != 1:
                    p[name]["shortcut"] = conv_init(next(k), a, b, 1)
            p["out"] = dense_init(next(k), widest, outputs)
            return p

        def forward(p: dict[str, Any], x: Any, norm: Norm) -> Any:
            h = conv(p["conv"], images(x, shape), 7, stride=2, padding=3)
            h = relu(max_pool_3(norm("norm", p["norm"], h)))
            for name, (_, _, stride) in residuals.items():
                q = p[name]
                y = conv(q["conv1"], h, 3, stride=stride, padding=1)
                y = relu(norm(f"{name}.norm1", q["norm1"], y))
                y = norm(f"{name}.norm2", q["norm2"], conv(q["conv2"], y, 3, padding=1))
                h = relu(y + (conv(q["shortcut"], h, 1, stride=stride) if "shortcut" in q else h))
            return dense(p["out"], h.mean((1, 2)))

        if self.norm is None:
            by_group: Norm = lambda name, p, x: group_norm(p, x)
            return Model(
                init,
                lambda p, x: forward(p, x, by_group),
                class_major=True,
                l2=self.l2,
                name=self.name,
            )
        return normalised(init, forward, self)
